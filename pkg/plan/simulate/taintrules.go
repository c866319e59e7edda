package simulate

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// withTaintRules gives the slices with the taints that DeviceTaintRules add to their
// devices, as the ResourceSlice tracker of kube-scheduler does: a rule without a selector
// selects nothing, and one that does not name driver, pool or device selects any. Slices
// that no rule selects are the same ones.
func withTaintRules(slices []*resourceapi.ResourceSlice, rules []*resourceapi.DeviceTaintRule) []*resourceapi.ResourceSlice {
	result := make([]*resourceapi.ResourceSlice, len(slices))
	for i, slice := range slices {
		tainted := slice
		for _, rule := range rules {
			for d := range slice.Spec.Devices {
				if !selects(rule.Spec.DeviceSelector, slice, slice.Spec.Devices[d].Name) {
					continue
				}
				if tainted == slice {
					tainted = slice.DeepCopy()
				}
				tainted.Spec.Devices[d].Taints = append(tainted.Spec.Devices[d].Taints, rule.Spec.Taint)
			}
		}
		result[i] = tainted
	}
	return result
}

func selects(selector *resourceapi.DeviceTaintSelector, slice *resourceapi.ResourceSlice, device string) bool {
	return selector != nil &&
		(selector.Driver == nil || *selector.Driver == slice.Spec.Driver) &&
		(selector.Pool == nil || *selector.Pool == slice.Spec.Pool.Name) &&
		(selector.Device == nil || *selector.Device == device)
}

// taintTemplates gives templates the taints of rules that will select their devices on
// any node: those that name neither pool nor device.
func taintTemplates(templates []allocator.Template, rules []*resourceapi.DeviceTaintRule) []allocator.Template {
	tainted := slices.Clone(templates)
	for i := range tainted {
		var taints []resourceapi.DeviceTaint
		for _, rule := range rules {
			selector := rule.Spec.DeviceSelector
			if selector != nil && selector.Pool == nil && selector.Device == nil && (selector.Driver == nil || *selector.Driver == tainted[i].Driver) {
				taints = append(taints, rule.Spec.Taint)
			}
		}
		if len(taints) == 0 {
			continue
		}
		tainted[i].Slices = slices.Clone(tainted[i].Slices)
		for j := range tainted[i].Slices {
			slice := &tainted[i].Slices[j]
			slice.Devices = slices.Clone(slice.Devices)
			for k := range slice.Devices {
				slice.Devices[k].Taints = slices.Concat(slice.Devices[k].Taints, taints)
			}
		}
	}
	return tainted
}
