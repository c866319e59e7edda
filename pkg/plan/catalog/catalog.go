// Package catalog knows the cloud instance types that carry NVIDIA GPUs, and foretells
// what a node of one will publish.
//
// Instance types are data, one file for each cloud, with their public sources named in
// the file. The GPU products in them are those of package products. A user's own types
// come from files of the same form. [Node] turns a type into the facts that the
// inventory of its node will have, and [Templates] these into the slices that the node
// driver will publish, by the same devicemodel.Build that the driver uses. So an
// allocator can place pods on nodes that do not exist yet.
//
// What only the running node knows is not made up: UUIDs, and with them the names of
// devices, and PCI addresses. Where it is known that devices will share a value, a
// binding says so.
//
// The package knows no prices, zones or quotas, reads nothing but files that it is given,
// and does not know whether hardware is real.
package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"apportion.dev/apportion/internal/natural"
	"apportion.dev/apportion/pkg/gpu/products"
)

// InstanceType is a kind of machine with GPUs that a cloud has, or somebody else.
type InstanceType struct {
	// Name is what the node's label node.kubernetes.io/instance-type says
	// ("p5.48xlarge").
	Name string
	// Cloud is the cloud that has it ("aws", "azure", "gcp"), or any word for own types.
	Cloud string
	// Arch is the architecture of its processors, as the node's label kubernetes.io/arch
	// says it ("amd64", "arm64").
	Arch string
	// Product is what all its GPUs are.
	Product products.Product
	// GPUs is their number.
	GPUs int
	// PCIeRoots are groups of GPUs that share a PCIe root complex. GPUs are counted from
	// 0 in the order of PCI addresses. Nothing is known of those that are in no group.
	PCIeRoots [][]int
}

// MaxGPUs is how many GPUs an instance type may have.
const MaxGPUs = 64

// builtin reads the embedded files once. Its error is a defect of the package's data,
// which a test excludes.
var builtin = sync.OnceValues(readBuiltin)

// Types are the instance types of the known clouds, by cloud and name. They share
// their products' data with later calls, which must not be modified.
func Types() []InstanceType {
	types, err := builtin()
	if err != nil {
		return nil
	}
	return slices.Clone(types)
}

// Lookup finds an instance type of the known clouds by its name. The error names those
// that are written alike, and says how to add one.
func Lookup(name string) (InstanceType, error) {
	types, err := builtin()
	if err != nil {
		return InstanceType{}, err
	}
	return Find(types, name)
}

// Merge adds own types to others. One that has the name of another takes its place.
func Merge(types, own []InstanceType) []InstanceType {
	merged := slices.DeleteFunc(slices.Clone(types), func(t InstanceType) bool {
		return slices.ContainsFunc(own, func(o InstanceType) bool { return o.Name == t.Name })
	})
	merged = append(merged, own...)
	slices.SortFunc(merged, compareTypes)
	return merged
}

// Find finds an instance type among others, as [Lookup] does among those of the clouds.
func Find(types []InstanceType, name string) (InstanceType, error) {
	for _, t := range types {
		if t.Name == name {
			return t, nil
		}
	}
	if alike := namesAlike(types, name); len(alike) > 0 {
		return InstanceType{}, fmt.Errorf("unknown instance type %q; known are: %s; others can be added with a file of instance types", name, strings.Join(alike, ", "))
	}
	return InstanceType{}, fmt.Errorf("unknown instance type %q, and none is called alike; it can be added with a file of instance types", name)
}

// compareTypes orders by cloud and by name, in which numbers count by their value
// ("g5.2xlarge" before "g5.12xlarge").
func compareTypes(a, b InstanceType) int {
	return cmp.Or(cmp.Compare(a.Cloud, b.Cloud), natural.Compare(a.Name, b.Name))
}
