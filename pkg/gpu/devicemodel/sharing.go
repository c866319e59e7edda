package devicemodel

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// SharingPolicy is what an administrator decides about shares of a GPU and of its
// partitions.
type SharingPolicy struct {
	// MaxShares is how many shares one device can have at once, 0 for as many as
	// its memory has room for. It is published as the capacity "shares", so that the
	// scheduler keeps it.
	MaxShares int
	// MinMemory is the least memory that a share may take, in bytes, 0 for 1 MiB.
	// The scheduler does not know it (see [Device.CheckShare]).
	MinMemory int64
	// ReservedMemory is taken off the published memory of a whole GPU, in bytes. A
	// GPU that has no more than that is published without memory, and not shared.
	ReservedMemory int64
	// Disabled is true where sharing is not offered: devices are then exclusive.
	Disabled bool
}

// ProductPolicy is the sharing policy of some products.
type ProductPolicy struct {
	// Product is a product name in any case, also with the patterns of path.Match
	// ("NVIDIA H100*").
	Product string
	SharingPolicy
}

// sharingOf returns the policy of a GPU: that of the first product that it is, else
// the default. They are not mixed.
func (p Policy) sharingOf(gpu inventory.GPU) SharingPolicy {
	sharing := p.Sharing
	for _, product := range p.Products {
		if isProduct(gpu, product.Product) {
			sharing = product.SharingPolicy
			break
		}
	}
	sharing.Disabled = sharing.Disabled || p.NoShares
	return sharing
}

// isProduct says whether a GPU's product has a name or matches a pattern.
func isProduct(gpu inventory.GPU, pattern string) bool {
	pattern, product := strings.ToLower(strings.TrimSpace(pattern)), strings.ToLower(gpu.ProductName)
	matched, err := path.Match(pattern, product)
	return product == pattern || err == nil && matched
}

func (p Policy) validateSharing() error {
	errs := []error{p.Sharing.validate("sharing policy")}
	for _, product := range p.Products {
		what := fmt.Sprintf("sharing policy of product %q", product.Product)
		if strings.TrimSpace(product.Product) == "" {
			errs = append(errs, errors.New(what+": give a product name (NVIDIA L4, or a pattern such as *T4*)"))
		}
		if _, err := path.Match(product.Product, ""); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w; give a product name (NVIDIA L4, or a pattern such as *T4*)", what, err))
		}
		errs = append(errs, product.validate(what))
	}
	return errors.Join(errs...)
}

func (s SharingPolicy) validate(what string) error {
	var errs []error
	if s.MaxShares < 0 {
		errs = append(errs, fmt.Errorf("%s: the number of shares %d is negative; give 0 for no limit", what, s.MaxShares))
	}
	if s.MinMemory < 0 {
		errs = append(errs, fmt.Errorf("%s: the smallest share's memory of %d bytes is negative", what, s.MinMemory))
	}
	if s.ReservedMemory < 0 {
		errs = append(errs, fmt.Errorf("%s: the memory of %d bytes that is held back is negative", what, s.ReservedMemory))
	}
	return errors.Join(errs...)
}
