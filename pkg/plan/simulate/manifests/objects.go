package manifests

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// Objects are what was read, each kind in the order of the files.
type Objects struct {
	Nodes  []*corev1.Node
	Slices []*resourceapi.ResourceSlice
	// Templates are slices of instance types and not of nodes: those with the label
	// node.kubernetes.io/instance-type and without a node.
	Templates       []*resourceapi.ResourceSlice
	TaintRules      []*resourceapi.DeviceTaintRule
	Classes         []*resourceapi.DeviceClass
	Claims          []*resourceapi.ResourceClaim
	ClaimTemplates  []*resourceapi.ResourceClaimTemplate
	Pods            []*corev1.Pod
	PriorityClasses []*schedulingv1.PriorityClass

	// Ignored are objects of other kinds.
	Ignored []Ignored

	workloads []workload
	// missingClasses are PriorityClasses that pods name.
	missingClasses []string
	// seen says where an object was read first.
	seen map[string]string
}

// Ignored is an object that does not matter here, or of a kind of which it is not known
// which pods come of it.
type Ignored struct {
	Kind, Name string
}

// Warnings say what else there is to know of the files, in one line each.
func (o *Objects) Warnings() []string {
	var warnings []string
	if ignored := o.ignored(); ignored != "" {
		warnings = append(warnings, ignored)
	}
	if len(o.missingClasses) > 0 {
		warnings = append(warnings, "Taken as priority 0, as the files do not have them: PriorityClass "+strings.Join(o.missingClasses, ", "))
	}
	return warnings
}

// ignored lists what was ignored, a kind with its names.
func (o *Objects) ignored() string {
	var kinds []string
	names := map[string][]string{}
	for _, i := range o.Ignored {
		if names[i.Kind] == nil {
			kinds = append(kinds, i.Kind)
		}
		names[i.Kind] = append(names[i.Kind], i.Name)
	}
	if len(kinds) == 0 {
		return ""
	}
	slices.Sort(kinds)
	for i, kind := range kinds {
		if all := names[kind]; len(all) > 3 {
			kinds[i] = fmt.Sprintf("%s (%d)", kind, len(all))
		} else {
			kinds[i] = kind + " " + strings.Join(all, ", ")
		}
	}
	return "Ignored, with whatever pods they make, which can be given as Pods: " + strings.Join(kinds, "; ")
}
