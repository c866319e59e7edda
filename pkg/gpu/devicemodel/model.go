// Package devicemodel turns facts about a node's GPUs and a policy into the
// devices that are published: their names, attributes, capacities and counters,
// and the ResourceSlices that hold them.
//
// It is pure: equal input gives deeply equal output, whatever the order of the
// GPUs. It does no I/O and reads no clock, environment variable or feature gate.
// It knows the rules of the resource.k8s.io API for devices, and what kube-scheduler
// makes of them. It does not know claims, nor who holds a device: of the partitions
// that are in use it is told with the policy.
package devicemodel

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// Model is what one node publishes. It and all that its methods return must not
// be modified.
type Model struct {
	// Devices are in publishing order, which is the order in which the scheduler
	// tries them: by PCI address of the GPU, and of one GPU the smallest first.
	// All devices of one GPU are neighbours.
	Devices []Device
	// CounterSets has one set for each physical GPU that has devices, in the same
	// order; none where the policy offers no partitions.
	CounterSets []resourceapi.CounterSet
	// Skipped are the GPUs of the node that have no device, in the same order.
	Skipped []Skipped

	byName map[string]int
}

// Device is one device with the facts that a driver needs to prepare it.
type Device struct {
	// Name is the parsed form of API.Name.
	Name Name
	// GPUUUID is the UUID of the physical GPU ("GPU-...").
	GPUUUID string
	// PCIBusID is the GPU's PCI address ("dddd:bb:dd.f"), empty if unknown.
	PCIBusID string
	// Minor is the number in the GPU's /dev/nvidiaN, nil if unknown.
	Minor *int
	// Partition names the partition that the device is, nil for a whole GPU. Size is
	// how many memory slices it has.
	Partition *inventory.Partition
	Size      int
	// MIGDevice is the UUID ("MIG-...") of a partition that somebody else made,
	// which must not be destroyed. It is empty for one that is made on demand.
	MIGDevice string
	// PartOfGPU is 1 for a whole GPU and for a partition its memory slices over the
	// GPU's, also where no counters are published.
	PartOfGPU float64
	// MemoryBytes is the published memory capacity in bytes, 0 if unknown.
	MemoryBytes int64
	// Shareable says whether several claims may hold the device at once, each
	// with a part of its capacity (allowMultipleAllocations, KEP-5075).
	Shareable bool
	// MaxShares is how many claims may hold a shareable device at once, and
	// MinShareBytes the least memory that one may take, in bytes.
	MaxShares     int
	MinShareBytes int64
	// Enforced says whether NVML limits the memory of a share.
	Enforced bool
	// Problem says in words why the device cannot be used now, empty if it can.
	// It is published all the same, so that its name and its claims stay valid.
	Problem string
	// Missing is true for a partition in use that somebody else destroyed. Problem
	// says so too, but preparing its claim makes it anew.
	Missing bool
	// API is the device as published. Its attributes are also those of the
	// claim's metadata files (KEP-5304).
	API resourceapi.Device
}

// Skipped is a GPU for which no device is published.
type Skipped struct {
	// UUID and PCIBusID identify the GPU; either may be empty.
	UUID, PCIBusID string
	// Reason says why in words and, where something can be done, what.
	Reason string
	// ByPolicy is true where the policy asked for it, so that nobody needs to be
	// told.
	ByPolicy bool
}

// Build makes the model of a node. Entries of the policy that [Policy.Validate]
// rejects have no effect.
func Build(node inventory.Node, policy Policy) *Model {
	gpus := slices.Clone(node.GPUs)
	slices.SortStableFunc(gpus, inventory.CompareGPUs)
	node.GPUs = gpus

	names := gpuNames(gpus)
	domains := nvlinkDomains(node)
	excluded := policy.exclusions()
	m := &Model{byName: map[string]int{}}
	seen := map[string]string{}
	for i, gpu := range gpus {
		reason, byPolicy := skipReason(gpu, excluded, seen)
		if reason != "" {
			m.Skipped = append(m.Skipped, Skipped{UUID: gpu.UUID, PCIBusID: gpu.PCIBusID, Reason: reason, ByPolicy: byPolicy})
			continue
		}
		name := names[uuidDigits(gpu.UUID)]
		l := layOut(name, gpu, policy)
		if l.nothing != "" {
			m.Skipped = append(m.Skipped, Skipped{UUID: gpu.UUID, PCIBusID: gpu.PCIBusID, Reason: l.nothing})
			continue
		}
		m.addGPU(name, gpu, l, policy, nodeFacts{
			driverVersion:     node.DriverVersion,
			cudaDriverVersion: node.CUDADriverVersion,
			nvlinkDomain:      domains[i],
		})
	}
	return m
}

// skipReason says why a GPU gets no device, or returns "". seen maps the UUIDs
// met so far to the PCI address of their GPU.
func skipReason(gpu inventory.GPU, excluded []exclusion, seen map[string]string) (reason string, byPolicy bool) {
	digits := uuidDigits(gpu.UUID)
	for _, e := range excluded {
		if e.matches(gpu) {
			return fmt.Sprintf("excluded by the policy's entry %q", e.entry), true
		}
	}
	switch other, twice := seen[digits]; {
	case gpu.UUID == "" && gpu.Problem != "":
		return "its UUID cannot be read, so it cannot be named: " + gpu.Problem, false
	case gpu.UUID == "":
		return "its UUID cannot be read, so it cannot be named", false
	case digits == "":
		return fmt.Sprintf("its UUID %q is not of the form GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", gpu.UUID), false
	case twice:
		return fmt.Sprintf("it reports the same UUID as the GPU at %s", other), false
	}
	seen[digits] = gpu.PCIBusID
	return "", false
}

// addGPU adds the devices of one GPU: its partitions, and itself last.
func (m *Model) addGPU(name Name, gpu inventory.GPU, l layout, policy Policy, facts nodeFacts) {
	all := l.counters.counters()
	if !policy.NoPartitions {
		m.CounterSets = append(m.CounterSets, resourceapi.CounterSet{Name: name.String(), Counters: all})
	}
	sharing := policy.sharingOf(gpu)
	common, byInstance := faultsOf(gpu)
	add := func(d Device, takes amounts, own []fault) {
		consumed := takes.counters()
		d.PartOfGPU = PartOfGPU(consumed, all)
		if !policy.NoPartitions {
			d.API.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: name.String(), Counters: consumed}}
		}
		d.blame(policy.TaintDomain, slices.Concat(own, common))
		m.byName[d.API.Name] = len(m.Devices)
		m.Devices = append(m.Devices, d)
	}
	for _, p := range l.partitions {
		add(p.device(gpu, facts, sharing), p.takes, p.faults(byInstance))
	}
	if l.whole {
		add(wholeGPU(name, gpu, facts, sharing, policy.MemoryEnforcement == MemoryEnforcementNVML), l.counters, nil)
	}
}

// Device returns the device with a name as it is published.
func (m *Model) Device(name string) (Device, bool) {
	i, ok := m.byName[name]
	if !ok {
		return Device{}, false
	}
	return m.Devices[i], true
}

// DevicesOf returns the devices of one physical GPU, in publishing order.
func (m *Model) DevicesOf(gpuUUID string) []Device {
	var devices []Device
	for _, d := range m.Devices {
		if strings.EqualFold(d.GPUUUID, gpuUUID) {
			devices = append(devices, d)
		}
	}
	return devices
}

// GPU returns the device that is one physical GPU as a whole, if there is one.
func (m *Model) GPU(gpuUUID string) (Device, bool) {
	for _, d := range m.DevicesOf(gpuUUID) {
		if !d.Name.IsPartition() {
			return d, true
		}
	}
	return Device{}, false
}
