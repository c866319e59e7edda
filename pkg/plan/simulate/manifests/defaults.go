package manifests

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/types"
)

func lower(text string) string { return strings.ToLower(text) }

// setDefaults fills in what the API server would of what scheduling depends on
// (SetDefaults functions of resource.k8s.io and v1, admission plugin Priority).
func (o *Objects) setDefaults(known []*schedulingv1.PriorityClass) error {
	for _, claim := range o.Claims {
		defaultClaim(&claim.Spec)
		setUID(&claim.UID, "claim", claim.Namespace, claim.Name)
	}
	for _, template := range o.ClaimTemplates {
		defaultClaim(&template.Spec.Spec)
	}
	priorities, err := newPriorities(append(slices.Clone(known), o.PriorityClasses...))
	if err != nil {
		return err
	}
	for _, pod := range o.Pods {
		defaultPod(pod)
		setUID(&pod.UID, "pod", pod.Namespace, pod.Name)
		if missing := priorities.set(pod); missing != "" && !slices.Contains(o.missingClasses, missing) {
			o.missingClasses = append(o.missingClasses, missing)
		}
	}
	for _, node := range o.Nodes {
		setUID(&node.UID, "node", "", node.Name)
	}
	return nil
}

// setUID gives what is in no API server yet a UID that is always the same.
func setUID(uid *types.UID, parts ...string) {
	if *uid == "" {
		*uid = types.UID(strings.Join(parts, "/"))
	}
}

func defaultClaim(spec *resourceapi.ResourceClaimSpec) {
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if exactly := request.Exactly; exactly != nil {
			defaultCount(&exactly.AllocationMode, &exactly.Count)
		}
		for j := range request.FirstAvailable {
			sub := &request.FirstAvailable[j]
			defaultCount(&sub.AllocationMode, &sub.Count)
		}
	}
}

func defaultCount(mode *resourceapi.DeviceAllocationMode, count *int64) {
	if *mode == "" {
		*mode = resourceapi.DeviceAllocationModeExactCount
	}
	if *mode == resourceapi.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
}

// defaultPod lets containers request what limits allow them.
func defaultPod(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			resources := &containers[i].Resources
			for name, limit := range resources.Limits {
				if _, requested := resources.Requests[name]; requested {
					continue
				}
				if resources.Requests == nil {
					resources.Requests = corev1.ResourceList{}
				}
				resources.Requests[name] = limit.DeepCopy()
			}
		}
	}
}

// priorities are values of PriorityClasses.
type priorities struct {
	byName    map[string]*schedulingv1.PriorityClass
	byDefault *schedulingv1.PriorityClass
}

// newPriorities reads PriorityClasses; of two with the same name the last counts.
func newPriorities(classes []*schedulingv1.PriorityClass) (priorities, error) {
	p := priorities{byName: map[string]*schedulingv1.PriorityClass{
		"system-cluster-critical": {Value: 2000000000}, "system-node-critical": {Value: 2000001000},
	}}
	for _, class := range classes {
		p.byName[class.Name] = class
		if !class.GlobalDefault {
			continue
		}
		if p.byDefault != nil && p.byDefault.Name != class.Name {
			return p, fmt.Errorf("PriorityClasses %s and %s are both the global default: only one may be", p.byDefault.Name, class.Name)
		}
		p.byDefault = class
	}
	return p, nil
}

// set resolves a pod's priority class, and names it if it is not known.
func (p priorities) set(pod *corev1.Pod) (missing string) {
	if pod.Spec.Priority != nil {
		return ""
	}
	class := p.byDefault
	if name := pod.Spec.PriorityClassName; name != "" {
		if class = p.byName[name]; class == nil {
			return name
		}
	}
	if class != nil {
		value := class.Value
		pod.Spec.Priority = &value
	}
	return ""
}
