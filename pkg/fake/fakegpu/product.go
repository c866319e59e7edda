package fakegpu

import (
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/gpu/products"
)

// What is known of GPU products is the catalog's, and this package's name for it.
type (
	// Product is what NVML reports of one GPU product.
	Product = products.Product
	// Topology says what is at the other end of a product's NVLink connections.
	Topology = products.Topology
	// MIG is what a product can do with partitions.
	MIG = products.MIG
	// Profile is a GPU instance profile with its placements.
	Profile = products.Profile
	// Engines counts a GPU's or an instance's fixed-function engines.
	Engines = products.Engines
)

// Values of [Topology].
const (
	TopologyNone   = products.TopologyNone
	TopologyBridge = products.TopologyBridge
	TopologyMesh   = products.TopologyMesh
	TopologySwitch = products.TopologySwitch
)

var brands = map[string]nvml.BrandType{
	"Nvidia":    nvml.BRAND_NVIDIA,
	"NvidiaRTX": nvml.BRAND_NVIDIA_RTX,
	"Tesla":     nvml.BRAND_TESLA,
	"GeForce":   nvml.BRAND_GEFORCE,
}

var architectures = map[string]nvml.DeviceArchitecture{
	"Volta":     nvml.DEVICE_ARCH_VOLTA,
	"Turing":    nvml.DEVICE_ARCH_TURING,
	"Ampere":    nvml.DEVICE_ARCH_AMPERE,
	"Ada":       nvml.DEVICE_ARCH_ADA,
	"Hopper":    nvml.DEVICE_ARCH_HOPPER,
	"Blackwell": nvml.DEVICE_ARCH_BLACKWELL,
}

// Products are all known products, by name.
func Products() []Product { return products.All() }

// LookupProduct finds a product by name. The error lists the known names.
func LookupProduct(name string) (Product, error) {
	p, err := products.Lookup(name)
	if err != nil {
		return Product{}, inputErrorf("%s", err)
	}
	return p, nil
}

// knownProducts are all products by name, for those who keep a pointer to one.
var knownProducts = sync.OnceValue(func() map[string]*Product {
	known := map[string]*Product{}
	for _, p := range products.All() {
		known[p.Name] = &p
	}
	return known
})

// knownProduct is a product whose name was looked up before. States with
// unknown names are refused when they are read or made. There is one pointer for each
// name.
func knownProduct(name string) *Product {
	if p, ok := knownProducts()[name]; ok {
		return p
	}
	return &Product{Name: name}
}
