package karpenter_test

import (
	"fmt"
	"testing"
	"unique"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/catalog/karpenter"
)

const (
	driver   = "gpu.apportion.dev"
	pcieRoot = resourceapi.FullyQualifiedName("resource.kubernetes.io/pcieRoot")
)

type (
	attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	capacities = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
)

func text(s string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: &s}
}

func counters(memory string) map[string]resourceapi.Counter {
	return map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(memory)}}
}

// gpu is a GPU of 40 GiB that can be shared, and consumes all of the counters of its set.
func gpu(index int) resourceapi.Device {
	return resourceapi.Device{
		Name:                     fmt.Sprintf("gpu-%d", index),
		Attributes:               attributes{"type": text("gpu")},
		AllowMultipleAllocations: ptr.To(true),
		Capacity: capacities{"memory": {
			Value:         resource.MustParse("40Gi"),
			RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: ptr.To(resource.MustParse("40Gi"))},
		}},
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: fmt.Sprintf("set-%d", index), Counters: counters("40Gi")}},
	}
}

// partition is one of 20 GiB of a GPU.
func partition(index, number int) resourceapi.Device {
	return resourceapi.Device{
		Name:             fmt.Sprintf("gpu-%d-mig-%d", index, number),
		Attributes:       attributes{"type": text("mig")},
		Capacity:         capacities{"memory": {Value: resource.MustParse("20Gi")}},
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: fmt.Sprintf("set-%d", index), Counters: counters("20Gi")}},
	}
}

// fourGPUs are in two pairs that will share a pcieRoot each. GPUs of one pair are not
// neighbours, so that the first two devices do not match.
func fourGPUs() allocator.Template {
	t := allocator.Template{
		Driver: driver,
		Slices: make([]allocator.TemplateSlice, 2),
		Bindings: []allocator.Binding{
			{Attribute: pcieRoot, Devices: []string{"gpu-0", "gpu-2"}},
			{Attribute: pcieRoot, Devices: []string{"gpu-1", "gpu-3"}},
		},
	}
	for i := range 4 {
		t.Slices[0].SharedCounters = append(t.Slices[0].SharedCounters, resourceapi.CounterSet{Name: fmt.Sprintf("set-%d", i), Counters: counters("40Gi")})
		t.Slices[1].Devices = append(t.Slices[1].Devices, partition(i, 0), partition(i, 1), gpu(i))
	}
	return t
}

func TestDynamicResources(t *testing.T) {
	first, second := gpu(0), partition(0, 1)
	got, err := karpenter.DynamicResources([]allocator.Template{
		{
			Driver: driver,
			// One slice with both is not valid in the API, but clear enough.
			Slices: []allocator.TemplateSlice{
				{Devices: []resourceapi.Device{first}, SharedCounters: []resourceapi.CounterSet{{Name: "set-0", Counters: counters("40Gi")}}},
				{},
				{Devices: []resourceapi.Device{second}},
			},
			Bindings: []allocator.Binding{
				{Attribute: pcieRoot, Devices: []string{"gpu-0", "gpu-0-mig-1"}},
				{Attribute: "example.com/rack", Devices: []string{"gpu-0"}},
			},
		},
		{Driver: "nic.example.com", Pool: "nics", Slices: []allocator.TemplateSlice{{Devices: []resourceapi.Device{{
			Name:   "nic-0",
			Taints: []resourceapi.DeviceTaint{{Key: "example.com/seen", Effect: resourceapi.DeviceTaintEffectNone}},
		}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	node := cloudprovider.ResourcePool{Name: unique.Make("<node>")}
	id := func(device string) cloudprovider.DeviceID {
		return cloudprovider.DeviceID{Driver: unique.Make(driver), Pool: node.Name, Device: unique.Make(device)}
	}
	want := cloudprovider.DynamicResources{
		ResourceSliceTemplates: []*cloudprovider.ResourceSliceTemplate{
			{Driver: unique.Make(driver), Pool: node, SharedCounters: []resourceapi.CounterSet{{Name: "set-0", Counters: counters("40Gi")}}},
			{Driver: unique.Make(driver), Pool: node, Devices: []cloudprovider.Device{{
				Name: unique.Make("gpu-0"), Attributes: first.Attributes, Capacity: first.Capacity,
				AllowMultipleAllocations: true, ConsumesCounters: first.ConsumesCounters,
			}}},
			{Driver: unique.Make(driver), Pool: node, Devices: []cloudprovider.Device{{
				Name: unique.Make("gpu-0-mig-1"), Attributes: second.Attributes, Capacity: second.Capacity,
				ConsumesCounters: second.ConsumesCounters,
			}}},
			{
				Driver: unique.Make("nic.example.com"), Pool: cloudprovider.ResourcePool{Name: unique.Make("nics")},
				Devices: []cloudprovider.Device{{Name: unique.Make("nic-0")}},
			},
		},
		AttributeBindings: []*cloudprovider.AttributeBinding{
			{Attribute: "resource.kubernetes.io/pcieRoot", Devices: []cloudprovider.DeviceID{id("gpu-0"), id("gpu-0-mig-1")}},
			{Attribute: "example.com/rack", Devices: []cloudprovider.DeviceID{id("gpu-0"), id("gpu-0")}},
		},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b unique.Handle[string]) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// changed is fourGPUs with a change to its first device.
func changed(change func(*resourceapi.Device)) []allocator.Template {
	t := fourGPUs()
	change(&t.Slices[1].Devices[0])
	return []allocator.Template{t}
}

func TestDynamicResourcesErrors(t *testing.T) {
	twice := fourGPUs()
	twice.Slices = append(twice.Slices, allocator.TemplateSlice{Devices: []resourceapi.Device{{Name: "gpu-3"}}})
	sets := fourGPUs()
	sets.Slices = append(sets.Slices, allocator.TemplateSlice{SharedCounters: []resourceapi.CounterSet{{Name: "set-1"}}})
	unbound := fourGPUs()
	unbound.Bindings[1].Devices[1] = "gpu-9"
	for _, tc := range []struct {
		name      string
		templates []allocator.Template
		want      string
	}{
		{
			name: "a taint",
			templates: changed(func(d *resourceapi.Device) {
				d.Taints = []resourceapi.DeviceTaint{{Key: "example.com/broken", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
			}),
			want: "driver gpu.apportion.dev: pool of the node: device gpu-0-mig-0: Karpenter cannot express its taint example.com/broken:NoSchedule: leave the device out, or the taint if claims tolerate it",
		},
		{
			name:      "a device for all nodes",
			templates: changed(func(d *resourceapi.Device) { d.AllNodes = ptr.To(true) }),
			want:      "driver gpu.apportion.dev: pool of the node: device gpu-0-mig-0: Karpenter cannot express which nodes reach it: templates are for the node's own devices, leave it out",
		},
		{
			name: "resources of the node",
			templates: changed(func(d *resourceapi.Device) {
				d.NodeAllocatableResources = map[corev1.ResourceName]resourceapi.NodeAllocatableResource{corev1.ResourceMemory: {}}
			}),
			want: "driver gpu.apportion.dev: pool of the node: device gpu-0-mig-0: Karpenter cannot express the resources of the node that it takes",
		},
		{
			name:      "compatibility groups",
			templates: changed(func(d *resourceapi.Device) { d.ConsumesCounters[0].CompatibilityGroups = []string{"mig"} }),
			want:      "driver gpu.apportion.dev: pool of the node: device gpu-0-mig-0: Karpenter cannot express its compatibility groups",
		},
		{
			name:      "a device twice in a template",
			templates: []allocator.Template{twice},
			want:      "driver gpu.apportion.dev: pool of the node: device gpu-3 is there twice",
		},
		{
			name: "a device twice in two templates of a pool",
			templates: []allocator.Template{
				{Driver: driver, Pool: "p", Slices: []allocator.TemplateSlice{{Devices: []resourceapi.Device{{Name: "a"}}}}},
				{Driver: driver, Pool: "p", Slices: []allocator.TemplateSlice{{Devices: []resourceapi.Device{{Name: "a"}}}}},
			},
			want: "driver gpu.apportion.dev: pool p: device a is there twice",
		},
		{
			name:      "a counter set twice",
			templates: []allocator.Template{sets},
			want:      "driver gpu.apportion.dev: pool of the node: counter set set-1 is there twice",
		},
		{
			name:      "a counter set that is not there",
			templates: changed(func(d *resourceapi.Device) { d.ConsumesCounters[0].CounterSet = "set-7" }),
			want:      "driver gpu.apportion.dev: pool of the node: device gpu-0-mig-0 consumes of counter set set-7, which is not there",
		},
		{
			name:      "a counter that is not there",
			templates: changed(func(d *resourceapi.Device) { d.ConsumesCounters[0].Counters["slices"] = resourceapi.Counter{} }),
			want:      "driver gpu.apportion.dev: pool of the node: device gpu-0-mig-0 consumes counter slices, which counter set set-0 does not have",
		},
		{
			name:      "a binding of a device that is not there",
			templates: []allocator.Template{unbound},
			want:      "driver gpu.apportion.dev: pool of the node: binding of attribute resource.kubernetes.io/pcieRoot names device gpu-9, which the template does not have",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := karpenter.DynamicResources(tc.templates)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

// One pool of a driver in two templates is the same devices in the same pool.
func TestCountersAndDevicesInDifferentTemplates(t *testing.T) {
	whole := fourGPUs()
	_, err := karpenter.DynamicResources([]allocator.Template{
		{Driver: driver, Slices: whole.Slices[1:]}, {Driver: driver, Slices: whole.Slices[:1]},
	})
	if err != nil {
		t.Error(err)
	}
}
