package fakegpu

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"sigs.k8s.io/yaml"
)

// Product is what NVML reports of one GPU product. Products are data: one file
// each in the folder products.
type Product struct {
	// Name is the name used on the command line, for example "h100-sxm5-80gb".
	Name string `json:"name"`
	// ProductName is nvmlDeviceGetName.
	ProductName string `json:"productName"`
	// Brand is a key of brands.
	Brand string `json:"brand"`
	// Architecture is a key of architectures.
	Architecture string `json:"architecture"`
	// ComputeCapability is CUDA's, "major.minor".
	ComputeCapability string `json:"computeCapability"`
	Memory            struct {
		// TotalMiB is nvmlMemory_t.total; ReservedMiB is the part that the driver
		// keeps for itself.
		TotalMiB     uint64 `json:"totalMiB"`
		ReservedMiB  uint64 `json:"reservedMiB"`
		BusWidthBits uint32 `json:"busWidthBits"`
	} `json:"memory"`
	Multiprocessors int    `json:"multiprocessors"`
	Cores           int    `json:"cores"`
	BoardPartNumber string `json:"boardPartNumber"`
	PCI             struct {
		// DeviceID holds the device in the upper and the vendor in the lower 16
		// bits, as nvmlPciInfo_t.pciDeviceId does; SubsystemID likewise.
		DeviceID    uint32 `json:"deviceID"`
		SubsystemID uint32 `json:"subsystemID"`
		Generation  int    `json:"generation"`
		Width       int    `json:"width"`
	} `json:"pci"`
	Power struct {
		IdleWatts  uint32 `json:"idleWatts"`
		MinWatts   uint32 `json:"minWatts"`
		LimitWatts uint32 `json:"limitWatts"`
	} `json:"power"`
	Clocks struct {
		GraphicsMHz uint32 `json:"graphicsMHz"`
		MemoryMHz   uint32 `json:"memoryMHz"`
	} `json:"clocks"`
	NVLink struct {
		Topology Topology `json:"topology"`
		Links    int      `json:"links"`
		Version  uint32   `json:"version"`
	} `json:"nvlink"`
	// MIG is nil for products that cannot be partitioned.
	MIG *MIG `json:"mig,omitempty"`
}

// Topology says what is at the other end of a product's NVLink connections.
type Topology string

const (
	// TopologyNone is for products without NVLink.
	TopologyNone Topology = "none"
	// TopologyBridge links the GPUs of slots 2n and 2n+1 where both hold the
	// same product.
	TopologyBridge Topology = "bridge"
	// TopologySwitch links all GPUs through NVSwitches.
	TopologySwitch Topology = "switch"
)

// MIG is what a product can do with partitions.
type MIG struct {
	// ModeNeedsReset is true where a change of the MIG mode takes effect by a
	// reset of the GPU (Ampere), for which nothing may be running on it.
	ModeNeedsReset bool `json:"modeNeedsReset"`
	// MaxDevices is nvmlDeviceGetMaxMigDeviceCount with the mode enabled.
	MaxDevices int `json:"maxDevices"`
	// MemorySlices is the number of slices that placements count.
	MemorySlices int       `json:"memorySlices"`
	Profiles     []Profile `json:"profiles"`
}

// Profile is a GPU instance profile (nvmlGpuInstanceProfileInfo_t) with its
// placements.
type Profile struct {
	// Name is, for example, "1g.10gb+me".
	Name string `json:"name"`
	// Index is the NVML_GPU_INSTANCE_PROFILE_* constant by which the profile is
	// asked for; ID is the id by which instances are made and which
	// `nvidia-smi mig -lgip` prints.
	Index int `json:"index"`
	ID    int `json:"id"`
	// Slices is the number of compute slices.
	Slices          int     `json:"slices"`
	MemoryMiB       uint64  `json:"memoryMiB"`
	Multiprocessors int     `json:"multiprocessors"`
	Engines         Engines `json:"engines"`
	// MaxInstances is how many fit on an empty GPU.
	MaxInstances int `json:"maxInstances"`
	// Placements are the starts an instance may have, and its size, in memory
	// slices (`nvidia-smi mig -lgipp`).
	Placements struct {
		Size   int   `json:"size"`
		Starts []int `json:"starts"`
	} `json:"placements"`
}

// Engines counts a GPU's or an instance's fixed-function engines.
type Engines struct {
	Copy    int `json:"copy"`
	Decoder int `json:"decoder"`
	Encoder int `json:"encoder"`
	JPEG    int `json:"jpeg"`
	OFA     int `json:"ofa"`
}

var brands = map[string]nvml.BrandType{
	"Nvidia":    nvml.BRAND_NVIDIA,
	"NvidiaRTX": nvml.BRAND_NVIDIA_RTX,
	"Tesla":     nvml.BRAND_TESLA,
	"GeForce":   nvml.BRAND_GEFORCE,
}

var architectures = map[string]nvml.DeviceArchitecture{
	"Turing":    nvml.DEVICE_ARCH_TURING,
	"Ampere":    nvml.DEVICE_ARCH_AMPERE,
	"Ada":       nvml.DEVICE_ARCH_ADA,
	"Hopper":    nvml.DEVICE_ARCH_HOPPER,
	"Blackwell": nvml.DEVICE_ARCH_BLACKWELL,
}

//go:embed products/*.yaml
var productFiles embed.FS

// loadProducts reads the embedded products once. Its error is a defect of the
// package's data, which a test excludes.
var loadProducts = sync.OnceValues(func() ([]Product, error) {
	entries, err := productFiles.ReadDir("products")
	if err != nil {
		return nil, fmt.Errorf("read the GPU products: %w", err)
	}
	products := make([]Product, 0, len(entries))
	for _, entry := range entries {
		data, err := productFiles.ReadFile("products/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read the GPU product %s: %w", entry.Name(), err)
		}
		var p Product
		if err := yaml.UnmarshalStrict(data, &p); err != nil {
			return nil, fmt.Errorf("parse the GPU product %s: %w", entry.Name(), err)
		}
		products = append(products, p)
	}
	slices.SortFunc(products, func(a, b Product) int { return strings.Compare(a.Name, b.Name) })
	return products, nil
})

// Products are all known products, by name.
func Products() []Product {
	products, err := loadProducts()
	if err != nil {
		return nil
	}
	return slices.Clone(products)
}

// LookupProduct finds a product by name. The error lists the known names.
func LookupProduct(name string) (Product, error) {
	products, err := loadProducts()
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
	return Product{}, inputErrorf("unknown GPU product %q; known are: %s", name, strings.Join(known, ", "))
}

// knownProduct is a product whose name was looked up before. States with
// unknown names are refused when they are read or made.
func knownProduct(name string) *Product {
	products, _ := loadProducts()
	for i := range products {
		if products[i].Name == name {
			return &products[i]
		}
	}
	return &Product{Name: name}
}

func (p *Product) computeCapability() (major, minor int, err error) {
	if _, err := fmt.Sscanf(p.ComputeCapability, "%d.%d", &major, &minor); err != nil {
		return 0, 0, fmt.Errorf("compute capability %q of %s: %w", p.ComputeCapability, p.Name, err)
	}
	return major, minor, nil
}

// profile finds a MIG profile by a condition.
func (p *Product) profile(match func(*Profile) bool) (*Profile, bool) {
	if p.MIG == nil {
		return nil, false
	}
	for i := range p.MIG.Profiles {
		if match(&p.MIG.Profiles[i]) {
			return &p.MIG.Profiles[i], true
		}
	}
	return nil, false
}

func (p *Product) profileByID(id int) (*Profile, bool) {
	return p.profile(func(q *Profile) bool { return q.ID == id })
}

// ProfileByName finds a MIG profile by its name. The error lists the known ones.
func (p *Product) ProfileByName(name string) (*Profile, error) {
	if p.MIG == nil {
		return nil, inputErrorf("a %s has no MIG", p.ProductName)
	}
	if q, ok := p.profile(func(q *Profile) bool { return q.Name == name }); ok {
		return q, nil
	}
	known := make([]string, 0, len(p.MIG.Profiles))
	for _, q := range p.MIG.Profiles {
		known = append(known, q.Name)
	}
	return nil, inputErrorf("unknown MIG profile %q; a %s has: %s", name, p.ProductName, strings.Join(known, ", "))
}
