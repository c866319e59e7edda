package catalog

import (
	"cmp"
	"fmt"
	"slices"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/gpu/products"
)

// Node is what the inventory of a node of the type will say, so far as it follows from
// the type: that its GPUs are in order, and have no partitions yet. What only the node
// knows is absent, except what tells its GPUs apart: UUIDs and PCI addresses are
// placeholders, which are the same every time, with the GPU's index in them.
//
// Versions of the driver, and what follows from these, are absent, as is whether a GPU
// is in MIG mode: it is given as off.
func Node(t InstanceType) inventory.Node {
	node := inventory.Node{GPUs: make([]inventory.GPU, 0, t.GPUs)}
	for i := range t.GPUs {
		node.GPUs = append(node.GPUs, gpu(t, i))
	}
	return node
}

// placeholderUUID makes the name of a device say which GPU it is: gpu-00000002.
func placeholderUUID(index int) string {
	return fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000000", index)
}

func placeholderAddress(index int) string { return fmt.Sprintf("0000:%02x:00.0", index+1) }

func gpu(t InstanceType, index int) inventory.GPU {
	p := t.Product
	memory := p.Memory.TotalMiB << 20
	capable := p.MIG != nil
	minor := index
	g := inventory.GPU{
		UUID: placeholderUUID(index), PCIBusID: placeholderAddress(index), Index: index, Minor: &minor,
		ProductName: p.ProductName, Brand: p.Brand, Architecture: p.Architecture,
		CUDAComputeCapability: inventory.ParseVersion(p.ComputeCapability),
		MemoryBytes:           &memory,
		MIG:                   inventory.MIG{Capable: &capable},
		NVLink:                inventory.NVLink{Switch: p.NVLink.Topology == products.TopologySwitch},
	}
	for other := range t.GPUs {
		if p.NVLink.Topology.Linked(index, other) {
			g.NVLink.Peers = append(g.NVLink.Peers, placeholderAddress(other))
		}
	}
	if capable {
		enabled, pending := false, false
		g.MIG.Enabled, g.MIG.Pending = &enabled, &pending
		g.MIG.ModeNeedsReset = p.MIG.ModeNeedsReset
		g.MIG.Profiles = migProfiles(p.MIG.Profiles)
	}
	return g
}

// migProfiles are the profiles as the inventory has them.
func migProfiles(profiles []products.Profile) []inventory.MIGProfile {
	result := make([]inventory.MIGProfile, 0, len(profiles))
	for _, q := range profiles {
		profile := inventory.MIGProfile{
			Name: q.Name, ID: q.ID, Index: q.Index, Slices: q.Slices, MemoryMiB: q.MemoryMiB,
			Multiprocessors: q.Multiprocessors, CopyEngines: q.Engines.Copy, Decoders: q.Engines.Decoder,
			Encoders: q.Engines.Encoder, JPEGEngines: q.Engines.JPEG, OFAEngines: q.Engines.OFA,
			MaxInstances: q.MaxInstances,
		}
		for _, start := range q.Placements.Starts {
			profile.Placements = append(profile.Placements, inventory.MIGPlacement{Start: start, Size: q.Placements.Size})
		}
		slices.SortFunc(profile.Placements, func(a, b inventory.MIGPlacement) int { return cmp.Compare(a.Start, b.Start) })
		result = append(result, profile)
	}
	slices.SortStableFunc(result, func(a, b inventory.MIGProfile) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Index, b.Index))
	})
	return result
}
