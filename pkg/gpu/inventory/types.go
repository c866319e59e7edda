// Package inventory holds the facts about the NVIDIA GPUs of a node.
//
// A [Node] is a value without policy: what hardware there is and what its
// driver says about it. Where a fact cannot be had it is absent (a nil pointer,
// an empty string or an empty list), never an error: one property that cannot be
// read does not hide the GPU, and one GPU that cannot be read does not hide its
// neighbours.
//
// The package reads NVML through the interfaces of go-nvml and sysfs through an
// fs.FS. It does not know Kubernetes objects, claims or policies, and it does
// not know whether the hardware is real.
package inventory

import (
	"context"
	"fmt"
)

// Node is what is known of the GPUs of one node at one moment.
type Node struct {
	// DriverVersion is the NVIDIA driver's version (nvmlSystemGetDriverVersion).
	DriverVersion Version `json:"driverVersion,omitzero"`
	// CUDADriverVersion is the highest CUDA version that the driver supports
	// (nvmlSystemGetCudaDriverVersion_v2).
	CUDADriverVersion Version `json:"cudaDriverVersion,omitzero"`
	// GPUs are sorted by PCI address; those without one come last, by UUID.
	GPUs []GPU `json:"gpus"`
	// Problem says in words why the driver as a whole could not be read, for
	// example because no NVIDIA driver is installed. Empty when it could.
	Problem string `json:"problem,omitempty"`
	// RestartNeeded is true if only a new process can read the driver: it was
	// replaced, and this process holds the library of the old one, which cannot
	// be unloaded (see [Library]).
	RestartNeeded bool `json:"restartNeeded,omitempty"`
}

// Version is a version number as the driver writes it, and as semantic
// versioning does. The driver's own form ("580.95.05", "13.0") is not semver.
type Version struct {
	// Raw is the version as NVML gives it.
	Raw string `json:"raw,omitempty"`
	// Semver is the same as major.minor.patch without leading zeros, or empty
	// where Raw has no such reading.
	Semver string `json:"semver,omitempty"`
}

// GPU is one physical GPU.
type GPU struct {
	// UUID is NVML's identifier, "GPU-" and an RFC 4122 UUID. It is the one
	// property without which a GPU cannot be named; a GPU whose UUID cannot be
	// read keeps the last known one for its PCI address, or is left out of the
	// published devices.
	UUID string `json:"uuid,omitempty"`
	// Index is NVML's index at the time of reading. It is not stable.
	Index int `json:"index"`
	// Minor is the number in /dev/nvidiaN.
	Minor *int `json:"minor,omitempty"`
	// PCIBusID is the PCI address as "dddd:bb:dd.f" in lower case.
	PCIBusID string `json:"pciBusID,omitempty"`
	// PCIeRoot names the PCIe root complex, as
	// deviceattribute.GetPCIeRootAttributeByPCIBusID gives it ("pci0000:00").
	PCIeRoot string `json:"pcieRoot,omitempty"`
	// NUMANode is the NUMA node of the PCI device; absent where the platform
	// reports none (-1 in sysfs).
	NUMANode *int `json:"numaNode,omitempty"`
	// ProductName is NVML's name, for example "NVIDIA H100 80GB HBM3".
	ProductName string `json:"productName,omitempty"`
	// Brand is the marketing line: "Nvidia", "Tesla", "GeForce", ...
	Brand string `json:"brand,omitempty"`
	// Architecture is the architecture's name: "Turing", "Ampere", "Ada",
	// "Hopper", "Blackwell".
	Architecture string `json:"architecture,omitempty"`
	// CUDAComputeCapability is, for example, "9.0", and "9.0.0" as semver.
	CUDAComputeCapability Version `json:"cudaComputeCapability,omitzero"`
	// MemoryBytes is the size of the GPU's memory in bytes
	// (nvmlMemory_t.total).
	MemoryBytes *uint64 `json:"memoryBytes,omitempty"`
	// MIG is what the GPU can do with partitions and which it has.
	MIG MIG `json:"mig,omitzero"`
	// NVLink says which GPUs it is linked with.
	NVLink NVLink `json:"nvlink,omitzero"`
	// MemoryLimits is true if NVML can limit the memory that a cgroup may take on
	// this GPU (nvmlDeviceSetMemoryLimits_v1 and nvmlDeviceGetMemoryLimits_v1).
	MemoryLimits *bool `json:"memoryLimits,omitempty"`
	// XIDs are the critical errors that the driver reported since this process
	// began to listen and that nothing has cured since, sorted and distinct.
	// Those that an application causes by itself are left out (see
	// [Options.IgnoreXIDs]).
	XIDs []XID `json:"xids,omitempty"`
	// Problem says in words why the GPU cannot be used or cannot be read ("GPU
	// is lost"). Empty for a GPU in order. Properties that merely do not exist
	// on this hardware are no problem.
	Problem string `json:"problem,omitempty"`
}

// XID is a critical error that NVIDIA's driver reported (an Xid message).
type XID struct {
	// Code is the number in NVIDIA's Xid catalog, for example 79.
	Code int `json:"code"`
	// GPUInstance is the id of the GPU instance that it struck
	// ([MIGInstance.ID]); nil where it concerns the whole GPU.
	GPUInstance *int `json:"gpuInstance,omitempty"`
}

// MIG describes the Multi-Instance GPU feature of one GPU.
type MIG struct {
	// Capable is false where nvmlDeviceGetMigMode is not supported.
	Capable *bool `json:"capable,omitempty"`
	// Enabled is the current mode, Pending the mode after the next reset.
	Enabled *bool `json:"enabled,omitempty"`
	Pending *bool `json:"pending,omitempty"`
	// ModeNeedsReset is true if a change of the mode takes a reset of the GPU, so
	// that the current mode decides whether the GPU can be partitioned or used
	// whole. It is also true where the architecture cannot be read.
	ModeNeedsReset bool `json:"modeNeedsReset,omitempty"`
	// Profiles are the GPU instance profiles the GPU supports, by ID.
	Profiles []MIGProfile `json:"profiles,omitempty"`
	// Instances are the GPU instances that exist, by placement start.
	Instances []MIGInstance `json:"instances,omitempty"`
}

// MIGProfile is one GPU instance profile of one GPU
// (nvmlGpuInstanceProfileInfo_t and nvmlGpuInstancePlacement_t).
type MIGProfile struct {
	// Name is what users know, for example "1g.10gb" or "1g.10gb+me".
	Name string `json:"name"`
	// ID is nvmlGpuInstanceProfileInfo_t.id, with which instances are created;
	// Index is the NVML_GPU_INSTANCE_PROFILE_* constant it was asked for by.
	ID    int `json:"id"`
	Index int `json:"index"`
	// Slices is the number of compute slices.
	Slices int `json:"slices"`
	// MemoryMiB is the instance's memory in MiB.
	MemoryMiB       uint64 `json:"memoryMiB"`
	Multiprocessors int    `json:"multiprocessors"`
	CopyEngines     int    `json:"copyEngines"`
	Decoders        int    `json:"decoders"`
	Encoders        int    `json:"encoders"`
	JPEGEngines     int    `json:"jpegEngines"`
	OFAEngines      int    `json:"ofaEngines"`
	// MaxInstances is how many of this profile fit on an empty GPU.
	MaxInstances int `json:"maxInstances"`
	// Placements are where an instance may lie, by start.
	Placements []MIGPlacement `json:"placements"`
}

// Partition names a partition: a MIG profile at a placement of a GPU. At one
// place there is at most one instance of a profile, so the name is also the key by
// which partitions are compared.
type Partition struct {
	// GPU is the UUID of the physical GPU.
	GPU string
	// Profile is the name of the MIG profile ([MIGProfile.Name]).
	Profile string
	// Start is the first memory slice of the placement.
	Start int
}

func (p Partition) String() string {
	return fmt.Sprintf("%s at %d of GPU %s", p.Profile, p.Start, p.GPU)
}

// MIGPlacement is a place among a GPU's memory slices.
type MIGPlacement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

// Overlaps says whether two places of one GPU share a memory slice.
func (p MIGPlacement) Overlaps(q MIGPlacement) bool {
	return p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
}

// MIGInstance is a GPU instance that exists.
type MIGInstance struct {
	// ID is the GPU instance's id on its GPU (nvmlGpuInstanceInfo_t.id).
	ID int `json:"id"`
	// ProfileID is the ID of its MIGProfile.
	ProfileID int          `json:"profileID"`
	Placement MIGPlacement `json:"placement"`
	// UUID is the MIG device's ("MIG-..."), empty while it has no compute
	// instance.
	UUID string `json:"uuid,omitempty"`
}

// NVLink describes a GPU's active NVLink connections.
type NVLink struct {
	// Switch is true if at least one active link ends at an NVSwitch.
	Switch bool `json:"switch,omitempty"`
	// Peers are the PCI addresses of GPUs at the other end of a direct link,
	// sorted and without repetition.
	Peers []string `json:"peers,omitempty"`
}

// Source is where the facts come from.
type Source interface {
	// Snapshot reads everything now. It returns an error only if ctx ended; all
	// else is said in the Node.
	Snapshot(ctx context.Context) (Node, error)
	// Watch calls changed with the first snapshot and then whenever the node
	// differs from the last one given, also by Snapshot, until ctx ends. Calls do not overlap. It
	// returns when ctx has ended and nothing it started is running.
	Watch(ctx context.Context, changed func(Node))
	// Current says whether the hardware was read as lately as Watch should have
	// read it. It is false while a read hangs, and never waits for one.
	Current() bool
}
