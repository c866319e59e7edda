package manifests

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/plan/simulate"
)

// isTemplate says whether a ResourceSlice is no node's, but that of an instance type, as
// "apportion templates" prints them.
func isTemplate(slice *resourceapi.ResourceSlice) bool {
	spec := slice.Spec
	return spec.NodeName == nil && spec.NodeSelector == nil && spec.AllNodes == nil && spec.PerDeviceNodeSelection == nil &&
		slice.Labels[corev1.LabelInstanceTypeStable] != ""
}

// MergeInto adds the objects to those of a cluster. Of two objects with one name that of
// the files counts, as if it was applied: a claim keeps what it has, and a pod that runs
// stays where it is.
func (o *Objects) MergeInto(in *simulate.Input) {
	in.Nodes = merge(in.Nodes, o.Nodes)
	in.Slices = merge(in.Slices, o.Slices)
	in.TaintRules = merge(in.TaintRules, o.TaintRules)
	in.Classes = merge(in.Classes, o.Classes)
	in.Claims = mergeKeeping(in.Claims, o.Claims, keepAllocation)
	in.ClaimTemplates = merge(in.ClaimTemplates, o.ClaimTemplates)
	in.Pods = mergeKeeping(in.Pods, o.Pods, keepPlace)
}

// keepAllocation gives a claim of the files the devices that it has in the cluster.
func keepAllocation(claim, cluster *resourceapi.ResourceClaim) {
	if claim.Status.Allocation == nil {
		claim.UID, claim.Status = cluster.UID, cluster.Status
	}
}

// keepPlace leaves a pod of the files on the node on which it runs.
func keepPlace(pod, cluster *corev1.Pod) {
	runs := cluster.Spec.NodeName != "" && cluster.DeletionTimestamp == nil &&
		cluster.Status.Phase != corev1.PodSucceeded && cluster.Status.Phase != corev1.PodFailed
	if runs && pod.Spec.NodeName == "" {
		pod.UID, pod.Spec.NodeName, pod.Status = cluster.UID, cluster.Spec.NodeName, cluster.Status
	}
}

func merge[T metav1.Object](old, more []T) []T { return mergeKeeping(old, more, func(_, _ T) {}) }

// mergeKeeping is merge, with what is to be kept of the old object of the same name.
func mergeKeeping[T metav1.Object](old, more []T, keep func(object, old T)) []T {
	type name struct{ namespace, name string }
	newer := map[name]T{}
	for _, object := range more {
		newer[name{object.GetNamespace(), object.GetName()}] = object
	}
	kept := slices.DeleteFunc(slices.Clone(old), func(object T) bool {
		newest, replaced := newer[name{object.GetNamespace(), object.GetName()}]
		if replaced {
			keep(newest, object)
		}
		return replaced
	})
	return append(kept, more...)
}

// AddClasses adds DeviceClasses that are not among the files.
func (o *Objects) AddClasses(classes []*resourceapi.DeviceClass) {
	o.Classes = merge(classes, o.Classes)
}

// DriverClasses are the DeviceClasses that the chart makes with its default values, for
// a driver's name.
func DriverClasses(driver string) []*resourceapi.DeviceClass {
	extended := "nvidia.com/gpu"
	_, domain, _ := strings.Cut(driver, ".")
	class := func(name, deviceType string, extended *string) *resourceapi.DeviceClass {
		return &resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourceapi.DeviceClassSpec{
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
					Expression: `device.driver == "` + driver + `" && device.attributes["` + driver + `"].type == "` + deviceType + `"`,
				}}},
				ExtendedResourceName: extended,
			},
		}
	}
	return []*resourceapi.DeviceClass{class(driver, "gpu", &extended), class("mig."+domain, "mig", nil)}
}
