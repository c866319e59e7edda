// Package products holds facts about NVIDIA's GPU products, as data: one file each.
//
// A [Product] is what NVML reports of a GPU, whatever machine it is in. The package
// knows nothing of nodes, clouds or Kubernetes. The instance types of package catalog
// and the fake hardware of package fakegpu both take their products from here, so that
// what is foretold of a node is what a fake one of the same kind reports.
package products

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

//go:embed data/*.yaml
var files embed.FS

// load reads the embedded products once. Its error is a defect of the package's data,
// which a test excludes.
var load = sync.OnceValues(func() ([]Product, error) {
	entries, err := files.ReadDir("data")
	if err != nil {
		return nil, fmt.Errorf("read the GPU products: %w", err)
	}
	products := make([]Product, 0, len(entries))
	for _, entry := range entries {
		data, err := files.ReadFile("data/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read the GPU product %s: %w", entry.Name(), err)
		}
		var p Product
		if err := yaml.UnmarshalStrict(data, &p); err != nil {
			return nil, fmt.Errorf("parse the GPU product %s: %w", entry.Name(), err)
		}
		if err := p.Validate(); err != nil {
			return nil, fmt.Errorf("the GPU product %s: %w", entry.Name(), err)
		}
		products = append(products, p)
	}
	slices.SortFunc(products, func(a, b Product) int { return strings.Compare(a.Name, b.Name) })
	return products, nil
})

// All are the known products, by name. They share their MIG profiles with later
// calls, so these must not be modified.
func All() []Product {
	products, err := load()
	if err != nil {
		return nil
	}
	return slices.Clone(products)
}

// Lookup finds a product by name. The error lists the known names.
func Lookup(name string) (Product, error) {
	products, err := load()
	if err != nil {
		return Product{}, err
	}
	known := make([]string, 0, len(products))
	for _, p := range products {
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return Product{}, fmt.Errorf("unknown GPU product %q; known are: %s", name, strings.Join(known, ", "))
}
