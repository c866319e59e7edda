package karpenter

import (
	"fmt"
	"unique"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// NodesPool stands for the name of a pool that will be called like its node, which is not
// known before. No published pool can have this name, and Karpenter writes it nowhere.
const NodesPool = "<node>"

// DynamicResources gives templates in Karpenter's types, in the same order: Karpenter's
// allocator, like kube-scheduler's, takes the first devices that will do. Counters and
// devices of one slice become two slices, as Karpenter wants.
//
// A binding is handed over as it is. Karpenter takes no notice of one with a single
// device, and then refuses a claim for that device with matchAttribute, so that device
// is named twice.
//
// The result shares maps with the templates; neither may be changed afterwards.
//
// An error names the driver, pool and device that Karpenter has no way to express (see
// the package's documentation), or that are wrong in themselves: a device or counter set
// that is there twice, counters that the pool does not have, a binding of a device that
// the template does not have.
func DynamicResources(templates []allocator.Template) (cloudprovider.DynamicResources, error) {
	var result cloudprovider.DynamicResources
	pools := make(map[poolID]*pool)
	for _, t := range templates {
		id := poolID{driver: t.Driver, name: t.Pool}
		if pools[id] == nil {
			pools[id] = newPool()
		}
		if err := pools[id].add(t); err != nil {
			return cloudprovider.DynamicResources{}, fmt.Errorf("%s: %w", id, err)
		}
		result.ResourceSliceTemplates = append(result.ResourceSliceTemplates, slicesOf(t)...)
		bindings, err := bindingsOf(t)
		if err != nil {
			return cloudprovider.DynamicResources{}, fmt.Errorf("%s: %w", id, err)
		}
		result.AttributeBindings = append(result.AttributeBindings, bindings...)
	}
	// Counters may come after the devices that consume them, so these are checked last.
	for _, t := range templates {
		id := poolID{driver: t.Driver, name: t.Pool}
		if err := pools[id].checkCounters(t); err != nil {
			return cloudprovider.DynamicResources{}, fmt.Errorf("%s: %w", id, err)
		}
	}
	return result, nil
}

func slicesOf(t allocator.Template) []*cloudprovider.ResourceSliceTemplate {
	driver := unique.Make(t.Driver)
	pool := cloudprovider.ResourcePool{Name: poolName(t)}
	var result []*cloudprovider.ResourceSliceTemplate
	for _, s := range t.Slices {
		if len(s.SharedCounters) > 0 {
			result = append(result, &cloudprovider.ResourceSliceTemplate{Driver: driver, Pool: pool, SharedCounters: s.SharedCounters})
		}
		if len(s.Devices) > 0 {
			devices := make([]cloudprovider.Device, len(s.Devices))
			for i := range s.Devices {
				devices[i] = device(&s.Devices[i])
			}
			result = append(result, &cloudprovider.ResourceSliceTemplate{Driver: driver, Pool: pool, Devices: devices})
		}
	}
	return result
}

func device(d *resourceapi.Device) cloudprovider.Device {
	return cloudprovider.Device{
		Name:                     unique.Make(d.Name),
		Attributes:               d.Attributes,
		Capacity:                 d.Capacity,
		AllowMultipleAllocations: ptr.Deref(d.AllowMultipleAllocations, false),
		ConsumesCounters:         d.ConsumesCounters,
	}
}

func bindingsOf(t allocator.Template) ([]*cloudprovider.AttributeBinding, error) {
	names := make(map[string]bool)
	for _, s := range t.Slices {
		for i := range s.Devices {
			names[s.Devices[i].Name] = true
		}
	}
	var result []*cloudprovider.AttributeBinding
	for _, b := range t.Bindings {
		binding := &cloudprovider.AttributeBinding{Attribute: resourceapi.QualifiedName(b.Attribute)}
		for _, name := range b.Devices {
			if !names[name] {
				return nil, fmt.Errorf("binding of attribute %s names device %s, which the template does not have", b.Attribute, name)
			}
			binding.Devices = append(binding.Devices, cloudprovider.DeviceID{
				Driver: unique.Make(t.Driver), Pool: poolName(t), Device: unique.Make(name),
			})
		}
		if len(binding.Devices) == 1 {
			binding.Devices = append(binding.Devices, binding.Devices[0])
		}
		result = append(result, binding)
	}
	return result, nil
}

func poolName(t allocator.Template) unique.Handle[string] {
	if t.Pool == "" {
		return unique.Make(NodesPool)
	}
	return unique.Make(t.Pool)
}
