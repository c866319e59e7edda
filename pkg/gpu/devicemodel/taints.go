package devicemodel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// Names of taint keys, after [Policy.TaintDomain] and a slash. Their effect is
// NoSchedule: a claim that has the device keeps it.
const (
	// TaintUnhealthy is on a device that must not be used now. Its value says why:
	// TaintValueLost, TaintValueNeedsReset, TaintValueUnusable, or "xid-79" for a
	// critical error of the driver. A device may have it with several values.
	TaintUnhealthy = "unhealthy"
	// TaintMissing is on a partition in use that somebody else destroyed. Its value
	// is TaintValueDestroyed.
	TaintMissing = "missing"
)

// Values of taints.
const (
	TaintValueLost       = "lost"
	TaintValueNeedsReset = "needs-reset"
	// TaintValueUnusable stands for any other problem.
	TaintValueUnusable  = "unusable"
	TaintValueDestroyed = "destroyed"
)

// maxFaults is how many values of a taint a device has at most. The API allows 16
// taints (DeviceTaintsMaxLength).
const maxFaults = 12

// fault is something wrong with a device.
type fault struct {
	taint, value string
	// problem says it in words.
	problem string
}

// faultsOf returns what is wrong with a whole GPU, and what is wrong with each of its
// GPU instances alone.
func faultsOf(gpu inventory.GPU) (common []fault, byInstance map[int][]fault) {
	if gpu.Problem != "" {
		common = append(common, fault{TaintUnhealthy, problemValue(gpu.Problem), gpu.Problem})
	}
	byInstance = map[int][]fault{}
	byCode := func(a, b inventory.XID) int { return cmp.Compare(a.Code, b.Code) }
	for _, xid := range slices.SortedStableFunc(slices.Values(gpu.XIDs), byCode) {
		value := fmt.Sprintf("xid-%d", xid.Code)
		if xid.GPUInstance == nil {
			common = append(common, fault{TaintUnhealthy, value, fmt.Sprintf(
				"the NVIDIA driver reported Xid %d on the GPU: stop its users and reset it (nvidia-smi --gpu-reset), or reboot the node", xid.Code)})
			continue
		}
		byInstance[*xid.GPUInstance] = append(byInstance[*xid.GPUInstance], fault{TaintUnhealthy, value, fmt.Sprintf(
			"the NVIDIA driver reported Xid %d in the partition: delete the pods that use it, then it is made anew", xid.Code)})
	}
	return common, byInstance
}

// problemValue is a problem as the value of a taint, which cannot hold a sentence.
func problemValue(problem string) string {
	switch {
	case strings.Contains(problem, "is lost"):
		return TaintValueLost
	case strings.Contains(problem, "needs a reset"):
		return TaintValueNeedsReset
	}
	return TaintValueUnusable
}

// faults are what is wrong with a partition besides the faults of its GPU.
func (p partition) faults(byInstance map[int][]fault) []fault {
	var faults []fault
	if p.missing {
		faults = append(faults, fault{TaintMissing, TaintValueDestroyed,
			"somebody else destroyed the partition while it was in use: delete the pods that use it"})
	}
	for _, instance := range p.instances {
		faults = append(faults, byInstance[instance]...)
	}
	return faults
}

// blame records on a device what is wrong with it.
func (d *Device) blame(domain string, faults []fault) {
	var problems []string
	for _, f := range faults {
		key := f.taint
		if domain != "" {
			key = domain + "/" + f.taint
		}
		taint := resourceapi.DeviceTaint{Key: key, Value: f.value, Effect: resourceapi.DeviceTaintEffectNoSchedule}
		if len(d.API.Taints) == maxFaults || slices.Contains(d.API.Taints, taint) {
			continue
		}
		d.API.Taints = append(d.API.Taints, taint)
		problems = append(problems, f.problem)
	}
	d.Problem = strings.Join(problems, "; ")
}
