package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/gpu/products"
	"apportion.dev/apportion/pkg/plan/allocator"
)

const driverName = "gpu.example.com"

// fakeMachine is a fake node with some GPUs of a product.
type fakeMachine struct {
	*fakegpu.Machine
	source *inventory.NVML
	policy Policy
}

// newFakeMachine makes a machine. In MIG mode are those GPUs of which the mode needs a
// reset, if any.
func newFakeMachine(t *testing.T, product products.Product, gpus int, policy Policy) fakeMachine {
	t.Helper()
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{
		Node: "node-a", DriverVersion: policy.DriverVersion, GPUs: slices.Repeat([]string{product.Name}, gpus),
	})
	if err != nil {
		t.Fatal(err)
	}
	source := inventory.NewNVML(inventory.Options{Library: m.NVML(), SysFS: m.SysFS()})
	t.Cleanup(func() {
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	})
	machine := fakeMachine{Machine: m, source: source, policy: policy}
	if policy.MIGMode && modeNeedsReset(product) {
		for _, gpu := range machine.node(t, gpus).GPUs {
			if err := m.SetMIGMode(gpu.UUID, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	return machine
}

func modeNeedsReset(product products.Product) bool {
	return product.MIG != nil && product.Architecture == "Ampere"
}

// node is the node as the node driver reads it, which must have a number of GPUs.
func (m fakeMachine) node(t *testing.T, gpus int) inventory.Node {
	t.Helper()
	node, err := m.source.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(node.GPUs) != gpus {
		t.Fatalf("the fake machine has %d GPUs, want %d: %s", len(node.GPUs), gpus, node.Problem)
	}
	return node
}

// policies are what an administrator may decide.
func policies() map[string]devicemodel.Policy {
	return map[string]devicemodel.Policy{
		"default":       {},
		"no partitions": {NoPartitions: true},
		"cgroup v1":     {MemoryEnforcement: devicemodel.MemoryEnforcementNone},
		"exclusive":     {NoShares: true},
		"sharing":       {Sharing: devicemodel.SharingPolicy{MaxShares: 4, MinMemory: 3 << 30, ReservedMemory: 1 << 30}},
		"by product": {
			Exclude: []string{"NVIDIA L4*"},
			Products: []devicemodel.ProductPolicy{
				{Product: "*h100*", SharingPolicy: devicemodel.SharingPolicy{Disabled: true}},
				{Product: "*", SharingPolicy: devicemodel.SharingPolicy{MaxShares: 2}},
			},
		},
	}
}

// The slices of a template are those that the node driver publishes on a node of the
// kind, but for what only the node knows.
func TestTemplatesAreWhatTheNodePublishes(t *testing.T) {
	for _, product := range products.All() {
		t.Run(product.Name, func(t *testing.T) {
			for _, migMode := range []bool{false, true} {
				if migMode && !modeNeedsReset(product) {
					continue
				}
				policy := Policy{DriverName: driverName, DriverVersion: "580.95.05", CUDADriverVersion: "13.0", MIGMode: migMode}
				m := newFakeMachine(t, product, fakegpu.MaxGPUs, policy)
				for gpus := fakegpu.MaxGPUs; gpus > 0; gpus-- {
					node := m.node(t, gpus)
					it := InstanceType{Name: "test", Product: product, GPUs: gpus}
					// Slices fill up between one and two GPUs and the most there are; policies
					// are of single GPUs, and more are in the test of instance types.
					switch gpus {
					case fakegpu.MaxGPUs, fakegpu.MaxGPUs - 1, 8, 7, 4, 3:
						check(t, node, it, policy, "default")
					case 2, 1:
						checkAll(t, node, it, policy)
					}
					if err := m.RemoveGPU(node.GPUs[gpus-1].UUID); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// The same on machines that were built with the number of GPUs, and with a driver that
// can limit the memory of shares.
func TestTemplatesOfEveryInstanceType(t *testing.T) {
	// Types of one product and number differ in their PCIe roots at most.
	checked := map[string]bool{}
	for _, it := range Types() {
		key := fmt.Sprint(it.Product.Name, it.GPUs, it.PCIeRoots)
		if checked[key] {
			continue
		}
		checked[key] = true
		t.Run(it.Name, func(t *testing.T) {
			policy := Policy{DriverName: driverName, DriverVersion: "615.12", CUDADriverVersion: "13.4", MIGMode: true}
			m := newFakeMachine(t, it.Product, it.GPUs, policy)
			checkAll(t, m.node(t, it.GPUs), it, policy)
		})
	}
}

// checkAll checks the templates of an instance type under all policies against what is
// published of a node.
func checkAll(t *testing.T, node inventory.Node, it InstanceType, policy Policy) {
	t.Helper()
	for name := range policies() {
		check(t, node, it, policy, name)
	}
}

// check does so under one policy of the node driver.
func check(t *testing.T, node inventory.Node, it InstanceType, policy Policy, name string) {
	t.Helper()
	policy.Devices = policies()[name]
	templates, err := Templates(it, policy)
	if err != nil {
		t.Fatal(err)
	}
	if len(templates) != 1 || templates[0].Driver != driverName || templates[0].Pool != "" {
		t.Fatalf("templates are %+v, want one of the driver", templates)
	}
	devices := policy.Devices
	devices.TaintDomain = driverName
	if devices.MemoryEnforcement == "" {
		// What the node driver finds out about a node with cgroups of version 2.
		devices.MemoryEnforcement = devicemodel.MemoryEnforcementNVML
	}
	model := devicemodel.Build(node, devices)
	what := fmt.Sprintf("%d GPUs, policy %q", it.GPUs, name)
	checkSlices(t, what, model, templates[0])
	checkBindings(t, what, model, templates[0])
}

// placeholders maps the names of a node's GPUs to those of a template's.
func placeholders(model *devicemodel.Model) *strings.Replacer {
	var pairs []string
	seen := map[string]bool{}
	for _, d := range model.Devices {
		whole := d.Name.Whole().String()
		if !seen[whole] {
			pairs = append(pairs, whole, fmt.Sprintf("gpu-%08x", len(seen)))
			seen[whole] = true
		}
	}
	return strings.NewReplacer(pairs...)
}

// onlyTheNodeKnows are the names of attributes that a template lacks.
var onlyTheNodeKnows = []resourceapi.QualifiedName{
	"uuid", "parentUUID", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode",
}

func checkSlices(t *testing.T, what string, model *devicemodel.Model, template allocator.Template) {
	t.Helper()
	names := placeholders(model)
	var want []allocator.TemplateSlice
	for _, published := range model.Slices() {
		want = append(want, withoutTheNode(published, names))
	}
	// Diff takes long.
	if !equality.Semantic.DeepEqual(want, template.Slices) {
		t.Fatalf("%s: slices (-node +template):\n%s", what, cmp.Diff(want, template.Slices))
	}
}

func withoutTheNode(slice devicemodel.Slice, names *strings.Replacer) allocator.TemplateSlice {
	published := (&resourceapi.ResourceSliceSpec{Devices: slice.Devices, SharedCounters: slice.SharedCounters}).DeepCopy()
	for i := range published.SharedCounters {
		published.SharedCounters[i].Name = names.Replace(published.SharedCounters[i].Name)
	}
	for i := range published.Devices {
		d := &published.Devices[i]
		d.Name = names.Replace(d.Name)
		for j := range d.ConsumesCounters {
			d.ConsumesCounters[j].CounterSet = names.Replace(d.ConsumesCounters[j].CounterSet)
		}
		for _, name := range onlyTheNodeKnows {
			delete(d.Attributes, name)
		}
		if domain := d.Attributes["nvlinkDomain"].StringValue; domain != nil && strings.HasPrefix(*domain, "nvlink-") {
			delete(d.Attributes, "nvlinkDomain")
		}
	}
	return allocator.TemplateSlice{Devices: published.Devices, SharedCounters: published.SharedCounters}
}

// checkBindings checks that what bindings say is true of the node, and that they say of
// all that a template lacks what can be said: all devices of a GPU, all partitions of
// one, the GPU that shares are of, and all GPUs of an NVLink domain are bound.
func checkBindings(t *testing.T, what string, model *devicemodel.Model, template allocator.Template) {
	t.Helper()
	names := placeholders(model)
	byName := map[string]devicemodel.Device{}
	byGPU, byDomain := map[string][]string{}, map[string][]string{}
	partitions, whole := map[string][]string{}, map[string][]string{}
	for _, d := range model.Devices {
		name := names.Replace(d.API.Name)
		byName[name] = d
		byGPU[d.GPUUUID] = append(byGPU[d.GPUUUID], name)
		if d.Partition != nil {
			partitions[d.GPUUUID] = append(partitions[d.GPUUUID], name)
		} else {
			whole[d.GPUUUID] = append(whole[d.GPUUUID], name)
		}
		if domain := d.API.Attributes["nvlinkDomain"].StringValue; domain != nil && strings.HasPrefix(*domain, "nvlink-") {
			byDomain[*domain] = append(byDomain[*domain], name)
		}
	}
	got := map[string]bool{}
	for _, b := range template.Bindings {
		// The driver's own attributes are published without its domain.
		attribute := resourceapi.QualifiedName(strings.TrimPrefix(string(b.Attribute), driverName+"/"))
		first := byName[b.Devices[0]].API.Attributes[attribute]
		if first.StringValue == nil {
			t.Fatalf("%s: device %s has no %s, which a binding names", what, b.Devices[0], attribute)
		}
		for _, name := range b.Devices {
			if other := byName[name].API.Attributes[attribute].StringValue; other == nil || *other != *first.StringValue {
				t.Fatalf("%s: %s of %s and %s differ: %s", what, attribute, b.Devices[0], name, *first.StringValue)
			}
		}
		got[fmt.Sprint(b.Attribute, b.Devices)] = true
	}
	want := map[string]bool{}
	expect := func(attribute string, groups map[string][]string) {
		for _, group := range groups {
			want[fmt.Sprint(attribute, group)] = true
		}
	}
	expect("resource.kubernetes.io/pciBusID", byGPU)
	expect("resource.kubernetes.io/pcieRoot", byGPU)
	expect(driverName+"/uuid", whole)
	expect(driverName+"/parentUUID", partitions)
	expect(driverName+"/nvlinkDomain", byDomain)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s: bindings (-node +template):\n%s", what, diff)
	}
}
