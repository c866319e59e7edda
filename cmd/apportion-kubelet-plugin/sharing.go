package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
)

// sharingOptions are the flags about shares and partitions.
type sharingOptions struct {
	noPartitions, noShares    bool
	maxShares                 int
	minMemory, reservedMemory string
	products                  string
}

func (o *sharingOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.noPartitions, "no-partitions", false, "Offer no MIG partitions on demand.")
	flags.BoolVar(&o.noShares, "no-shares", false, "Offer no shares: each GPU and each partition is for one claim.")
	flags.IntVar(&o.maxShares, "sharing-max-shares", 0, "How many shares a GPU or partition has at most; 0 for as many as its memory allows.")
	flags.StringVar(&o.minMemory, "sharing-min-memory", "", `The smallest share's memory, such as "2Gi"; empty for 1Mi.`)
	flags.StringVar(&o.reservedMemory, "sharing-reserved-memory", "", `Memory of each GPU that is not given out, such as "512Mi".`)
	flags.StringVar(&o.products, "sharing-products", "", `Other settings for some products, as JSON: [{"product": "NVIDIA L4*", "maxShares": 4, "minMemory": "4Gi", "reservedMemory": "512Mi", "disabled": false}].`)
}

// productSharing is one entry of --sharing-products.
type productSharing struct {
	Product        string `json:"product"`
	MaxShares      int    `json:"maxShares"`
	MinMemory      string `json:"minMemory"`
	ReservedMemory string `json:"reservedMemory"`
	Disabled       bool   `json:"disabled"`
}

// apply adds what the flags say to the policy.
func (o *sharingOptions) apply(policy *devicemodel.Policy) error {
	var errs []error
	policy.NoPartitions, policy.NoShares = o.noPartitions, o.noShares
	var err error
	policy.Sharing, err = sharingPolicy(productSharing{MaxShares: o.maxShares, MinMemory: o.minMemory, ReservedMemory: o.reservedMemory},
		"--sharing-min-memory", "--sharing-reserved-memory")
	errs = append(errs, err)
	if o.products == "" {
		return errors.Join(errs...)
	}
	var products []productSharing
	decoder := json.NewDecoder(strings.NewReader(o.products))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&products); err != nil {
		return errors.Join(append(errs, fmt.Errorf("--sharing-products is not the JSON list that --help shows: %w", err))...)
	}
	for i, product := range products {
		where := fmt.Sprintf("--sharing-products, entry %d: ", i)
		sharing, err := sharingPolicy(product, where+"minMemory", where+"reservedMemory")
		errs = append(errs, err)
		policy.Products = append(policy.Products, devicemodel.ProductPolicy{Product: product.Product, SharingPolicy: sharing})
	}
	return errors.Join(errs...)
}

func sharingPolicy(p productSharing, minName, reservedName string) (devicemodel.SharingPolicy, error) {
	minMemory, err := parseBytes(minName, p.MinMemory)
	reserved, err2 := parseBytes(reservedName, p.ReservedMemory)
	return devicemodel.SharingPolicy{
		MaxShares: p.MaxShares, MinMemory: minMemory, ReservedMemory: reserved, Disabled: p.Disabled,
	}, errors.Join(err, err2)
}

func parseBytes(name, value string) (int64, error) {
	if value == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w; give an amount such as 2Gi", name, value, err)
	}
	return q.Value(), nil
}
