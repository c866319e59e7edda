package products

import (
	"fmt"
	"strings"
)

// Product is what NVML reports of one GPU product.
type Product struct {
	// Name is the name by which users know it, for example "h100-sxm5-80gb".
	Name string `json:"name"`
	// ProductName is nvmlDeviceGetName.
	ProductName string `json:"productName"`
	// Brand is one of [Brands].
	Brand string `json:"brand"`
	// Architecture is one of [Architectures].
	Architecture string `json:"architecture"`
	// ComputeCapability is CUDA's, "major.minor".
	ComputeCapability string `json:"computeCapability"`
	Memory            Memory `json:"memory"`
	Multiprocessors   int    `json:"multiprocessors"`
	Cores             int    `json:"cores"`
	BoardPartNumber   string `json:"boardPartNumber"`
	PCI               PCI    `json:"pci"`
	Power             Power  `json:"power"`
	Clocks            Clocks `json:"clocks"`
	NVLink            NVLink `json:"nvlink"`
	// MIG is nil for products that cannot be partitioned.
	MIG *MIG `json:"mig,omitempty"`
}

// Memory is a product's memory, in MiB.
type Memory struct {
	// TotalMiB is nvmlMemory_t.total with ECC as the product is delivered;
	// ReservedMiB is the part that the driver keeps for itself.
	TotalMiB     uint64 `json:"totalMiB"`
	ReservedMiB  uint64 `json:"reservedMiB"`
	BusWidthBits uint32 `json:"busWidthBits"`
}

// PCI is what a product is on PCI Express.
type PCI struct {
	// DeviceID holds the device in the upper and the vendor in the lower 16 bits, as
	// nvmlPciInfo_t.pciDeviceId does; SubsystemID likewise.
	DeviceID    uint32 `json:"deviceID"`
	SubsystemID uint32 `json:"subsystemID"`
	Generation  int    `json:"generation"`
	Width       int    `json:"width"`
}

// Power is what a product draws, in watts.
type Power struct {
	IdleWatts  uint32 `json:"idleWatts"`
	MinWatts   uint32 `json:"minWatts"`
	LimitWatts uint32 `json:"limitWatts"`
}

// Clocks are a product's highest, in MHz.
type Clocks struct {
	GraphicsMHz uint32 `json:"graphicsMHz"`
	MemoryMHz   uint32 `json:"memoryMHz"`
}

// NVLink says how GPUs of a product are linked.
type NVLink struct {
	Topology Topology `json:"topology"`
	Links    int      `json:"links"`
	Version  uint32   `json:"version"`
}

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
	Placements Placements `json:"placements"`
}

// Placements are the places among a GPU's memory slices where an instance may lie.
type Placements struct {
	Size   int   `json:"size"`
	Starts []int `json:"starts"`
}

// Engines counts a GPU's or an instance's fixed-function engines.
type Engines struct {
	Copy    int `json:"copy"`
	Decoder int `json:"decoder"`
	Encoder int `json:"encoder"`
	JPEG    int `json:"jpeg"`
	OFA     int `json:"ofa"`
}

// ComputeCapabilityNumbers are the two numbers of ComputeCapability.
func (p *Product) ComputeCapabilityNumbers() (major, minor int, err error) {
	if _, err := fmt.Sscanf(p.ComputeCapability, "%d.%d", &major, &minor); err != nil {
		return 0, 0, fmt.Errorf("compute capability %q of %s: %w", p.ComputeCapability, p.Name, err)
	}
	return major, minor, nil
}

// Profile finds a MIG profile by a condition.
func (p *Product) Profile(match func(*Profile) bool) (*Profile, bool) {
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

// ProfileByID finds a MIG profile by its ID.
func (p *Product) ProfileByID(id int) (*Profile, bool) {
	return p.Profile(func(q *Profile) bool { return q.ID == id })
}

// ProfileByName finds a MIG profile by its name. The error lists the known ones.
func (p *Product) ProfileByName(name string) (*Profile, error) {
	if p.MIG == nil {
		return nil, fmt.Errorf("a %s has no MIG", p.ProductName)
	}
	if q, ok := p.Profile(func(q *Profile) bool { return q.Name == name }); ok {
		return q, nil
	}
	known := make([]string, 0, len(p.MIG.Profiles))
	for _, q := range p.MIG.Profiles {
		known = append(known, q.Name)
	}
	return nil, fmt.Errorf("unknown MIG profile %q; a %s has: %s", name, p.ProductName, strings.Join(known, ", "))
}
