package setting

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/plan/allocator"
)

const (
	gpuDriver = "gpu.apportion.dev"
	nicDriver = "nic.example.com"
)

type (
	attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	capacities = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
)

func text(s string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: &s}
}

// gpu is a GPU of a product. Those of one product differ only in their names.
func gpu(name, product string) resourceapi.Device {
	return resourceapi.Device{
		Name: name,
		Attributes: attributes{
			"type":                  text("gpu"),
			"productName":           text(product),
			"brand":                 text("Nvidia"),
			"architecture":          text("Hopper"),
			"cudaComputeCapability": {VersionValue: ptr.To("9.0.0")},
			"driverVersion":         {VersionValue: ptr.To("580.95.5")},
			"migCapable":            {BoolValue: ptr.To(true)},
		},
		Capacity: capacities{"memory": {Value: resource.MustParse("80Gi")}},
	}
}

// published adds what only a running node knows.
func published(d resourceapi.Device, node string) resourceapi.Device {
	d.Attributes["uuid"] = text("GPU-" + node + "-" + d.Name)
	d.Attributes["resource.kubernetes.io/pciBusID"] = text("0000:" + d.Name[len(d.Name)-1:] + "0:00.0")
	return d
}

func gpus(prefix, product string, count int) []resourceapi.Device {
	devices := make([]resourceapi.Device, count)
	for i := range devices {
		devices[i] = gpu(fmt.Sprintf("%s-%d", prefix, i), product)
	}
	return devices
}

// node is one in a zone.
func node(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: zone,
	}}}
}

// nodeSlices are all slices of a pool of the GPU driver, with the node's name.
func nodeSlices(node string, contents ...allocator.TemplateSlice) []*resourceapi.ResourceSlice {
	slices := make([]*resourceapi.ResourceSlice, len(contents))
	for i, c := range contents {
		slices[i] = &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver:   gpuDriver,
				Pool:     resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(contents))},
				NodeName: &node, Devices: c.Devices, SharedCounters: c.SharedCounters,
			},
		}
	}
	return slices
}

// instanceType is one with templates of one slice each.
func instanceType(name string, templates ...allocator.Template) *allocator.InstanceType {
	return &allocator.InstanceType{
		Name:      name,
		Labels:    map[string][]string{corev1.LabelInstanceTypeStable: {name}, corev1.LabelTopologyZone: {"a", "b", "c", "d", "e"}},
		Templates: templates,
	}
}

func template(driver string, devices ...resourceapi.Device) allocator.Template {
	return allocator.Template{Driver: driver, Slices: []allocator.TemplateSlice{{Devices: devices}}}
}

// partitioned are partitions of one GPU, of which each takes 1 Gi of a counter that has
// less than enough for the given number: one unit, here a byte, is missing.
func partitioned(count, oneShortFor int) []allocator.TemplateSlice {
	enough := resource.MustParse(fmt.Sprintf("%dGi", oneShortFor))
	enough.Sub(resource.MustParse("1"))
	partitions := make([]resourceapi.Device, count)
	for i := range partitions {
		partitions[i] = resourceapi.Device{
			Name:       fmt.Sprintf("gpu-0-mig-%d", i),
			Attributes: attributes{"type": text("mig"), "profile": text("1g.1gb")},
			Capacity:   capacities{"memory": {Value: resource.MustParse("1Gi")}},
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "gpu-0", Counters: map[string]resourceapi.Counter{
				"memory": {Value: resource.MustParse("1Gi")},
			}}},
		}
	}
	return []allocator.TemplateSlice{
		{SharedCounters: []resourceapi.CounterSet{{Name: "gpu-0", Counters: map[string]resourceapi.Counter{"memory": {Value: enough}}}}},
		{Devices: partitions},
	}
}
