package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	gpufacts "apportion.dev/apportion/pkg/gpu"
	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/gpu/products"
	"apportion.dev/apportion/pkg/plan/allocator"
)

// DefaultDriverName is the name of the DRA driver if a [Policy] gives none.
const DefaultDriverName = "gpu.apportion.dev"

// Policy is what an administrator knows and decides of the nodes that will be made.
type Policy struct {
	// DriverName is the DRA driver's name, DefaultDriverName if empty.
	DriverName string
	// DriverVersion and CUDADriverVersion are the versions that the nodes' image has, as
	// nvidia-smi shows them ("580.95.05", "13.0"). Devices of templates lack the
	// attribute where one is empty.
	DriverVersion, CUDADriverVersion string
	// MIGMode says that GPUs which change their MIG mode only by a reset (Ampere) are in
	// MIG mode: they are offered in partitions, and otherwise only whole. Those of later
	// architectures are offered either way.
	MIGMode bool
	// Devices is the policy of the node driver. Its taint domain is the driver's name.
	// Nodes have cgroups of version 2, and so limit the memory of shares where NVIDIA's
	// driver can, unless MemoryEnforcement says otherwise.
	Devices devicemodel.Policy
}

// Templates are what the node driver will publish on a node of the type, in one template
// for the driver's pool, which has the node's name. Errors are of the policy.
func Templates(t InstanceType, policy Policy) ([]allocator.Template, error) {
	driver := policy.DriverName
	if driver == "" {
		driver = DefaultDriverName
	}
	if reasons := validation.IsDNS1123Subdomain(driver); len(reasons) > 0 {
		return nil, fmt.Errorf("driver name %q: %s", driver, strings.Join(reasons, "; "))
	}
	if err := policy.Devices.Validate(); err != nil {
		return nil, oneLine(err)
	}
	node, err := policy.node(t)
	if err != nil {
		return nil, err
	}
	devices := policy.Devices
	devices.TaintDomain = driver
	if devices.MemoryEnforcement == "" {
		devices.MemoryEnforcement = devicemodel.MemoryEnforcementNVML
	}
	model := devicemodel.Build(node, devices)
	template := allocator.Template{Driver: driver, Bindings: bindings(t, driver, model)}
	for _, s := range model.Slices() {
		slice := allocator.TemplateSlice{SharedCounters: s.SharedCounters}
		for _, d := range s.Devices {
			slice.Devices = append(slice.Devices, knownBefore(d, t.Product))
		}
		template.Slices = append(template.Slices, slice)
	}
	return []allocator.Template{template}, nil
}

// node is the node of an instance type under the policy.
func (p Policy) node(t InstanceType) (inventory.Node, error) {
	node := Node(t)
	var err error
	if node.DriverVersion, err = version("driver version", p.DriverVersion); err != nil {
		return inventory.Node{}, err
	}
	if node.CUDADriverVersion, err = version("CUDA version of the driver", p.CUDADriverVersion); err != nil {
		return inventory.Node{}, err
	}
	branch, _, _ := strings.Cut(p.DriverVersion, ".")
	number, err := strconv.Atoi(branch)
	limits := err == nil && number >= gpufacts.MemoryLimitsSince
	for i := range node.GPUs {
		gpu := &node.GPUs[i]
		gpu.MemoryLimits = &limits
		if t.Product.MIG != nil && t.Product.MIG.ModeNeedsReset {
			enabled, pending := p.MIGMode, p.MIGMode
			gpu.MIG.Enabled, gpu.MIG.Pending = &enabled, &pending
		}
	}
	return node, nil
}

func version(what, raw string) (inventory.Version, error) {
	if raw == "" {
		return inventory.Version{}, nil
	}
	v := inventory.ParseVersion(raw)
	if v.Semver == "" {
		return inventory.Version{}, fmt.Errorf("%s %q is no version; write it as nvidia-smi shows it, such as 580.95.05 or 13.0", what, raw)
	}
	return v, nil
}

// Attributes of which the value is not known before the node runs.
const (
	pciBusID = deviceattribute.StandardDeviceAttributePCIBusID
	pcieRoot = deviceattribute.StandardDeviceAttributePCIeRoot
	numaNode = deviceattribute.StandardDeviceAttributeNUMANode
)

// knownBefore is a device without the attributes that only the running node knows.
func knownBefore(d resourceapi.Device, product products.Product) resourceapi.Device {
	d.Attributes = maps.Clone(d.Attributes)
	for _, name := range []resourceapi.QualifiedName{
		pciBusID, pcieRoot, numaNode, devicemodel.AttributeUUID, devicemodel.AttributeParentUUID,
	} {
		delete(d.Attributes, name)
	}
	if linkedDirectly(product) {
		delete(d.Attributes, devicemodel.AttributeNVLinkDomain)
	}
	return d
}

// linkedDirectly says whether GPUs of the product are linked with each other and not
// through NVSwitches. An NVLink domain is then named after the PCI address of one of
// them; those of NVSwitches have the same name on every node.
func linkedDirectly(p products.Product) bool { return p.NVLink.Topology != products.TopologySwitch }

// bindings are what is known of values that are not known: the devices of one GPU share
// its PCI address and its PCIe root, shares of a GPU its UUID, and its partitions that of
// their parent; GPUs share a PCIe root where the type says so; and those that are linked
// by NVLink share a domain.
//
// There is none for NUMA nodes: virtual machines often report none.
func bindings(t InstanceType, driver string, model *devicemodel.Model) []allocator.Binding {
	var result []allocator.Binding
	bind := func(attribute string, devices []string) {
		// That of one device says that it will have the attribute.
		if len(devices) > 0 {
			result = append(result, allocator.Binding{Attribute: resourceapi.FullyQualifiedName(attribute), Devices: devices})
		}
	}
	names := func(gpu int, only func(devicemodel.Device) bool) []string {
		var names []string
		for _, d := range model.DevicesOf(placeholderUUID(gpu)) {
			if only(d) {
				names = append(names, d.API.Name)
			}
		}
		return names
	}
	for i := range t.GPUs {
		bind(string(pciBusID), names(i, anyDevice))
		bind(driver+"/"+devicemodel.AttributeUUID, names(i, func(d devicemodel.Device) bool { return d.Partition == nil }))
		bind(driver+"/"+devicemodel.AttributeParentUUID, names(i, func(d devicemodel.Device) bool { return d.Partition != nil }))
	}
	for _, group := range rootGroups(t) {
		var devices []string
		for _, i := range group {
			devices = append(devices, names(i, anyDevice)...)
		}
		bind(string(pcieRoot), devices)
	}
	if linkedDirectly(t.Product) {
		for _, devices := range linked(model) {
			bind(driver+"/"+devicemodel.AttributeNVLinkDomain, devices)
		}
	}
	return result
}

// linked are the devices of each NVLink domain, in order of their first one.
func linked(model *devicemodel.Model) [][]string {
	var groups [][]string
	index := map[string]int{}
	for _, d := range model.Devices {
		domain := d.API.Attributes[devicemodel.AttributeNVLinkDomain].StringValue
		if domain == nil {
			continue
		}
		i, known := index[*domain]
		if !known {
			i = len(groups)
			index[*domain] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], d.API.Name)
	}
	return groups
}

func anyDevice(devicemodel.Device) bool { return true }

// rootGroups are the groups of GPUs that share a PCIe root, in order of their first
// GPU. A GPU of which nothing is known is a group of its own.
func rootGroups(t InstanceType) [][]int {
	var groups [][]int
	grouped := map[int]bool{}
	for i := range t.GPUs {
		if grouped[i] {
			continue
		}
		group := []int{i}
		for _, g := range t.PCIeRoots {
			if slices.Contains(g, i) {
				group = slices.Sorted(slices.Values(g))
			}
		}
		for _, member := range group {
			grouped[member] = true
		}
		groups = append(groups, group)
	}
	return groups
}

// Allocator is the type as the allocator takes it: with its templates, the zones in which
// nodes of it can be had, and what one costs in any unit, 0 if that is not known. Without
// zones nothing is said of them.
func (t InstanceType) Allocator(zones []string, price float64, policy Policy) (*allocator.InstanceType, error) {
	templates, err := Templates(t, policy)
	if err != nil {
		return nil, err
	}
	labels := map[string][]string{corev1.LabelInstanceTypeStable: {t.Name}, corev1.LabelArchStable: {t.Arch}}
	if len(zones) > 0 {
		labels[corev1.LabelTopologyZone] = slices.Clone(zones)
	}
	return &allocator.InstanceType{Name: t.Name, Labels: labels, Templates: templates, Price: price}, nil
}
