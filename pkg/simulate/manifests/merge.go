package manifests

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/simulate"
)

// isTemplate says whether a ResourceSlice is no node's, but that of an instance type, as
// "apportion templates" prints them.
func isTemplate(slice *resourceapi.ResourceSlice) bool {
	spec := slice.Spec
	return spec.NodeName == nil && spec.NodeSelector == nil && spec.AllNodes == nil && spec.PerDeviceNodeSelection == nil &&
		slice.Labels[corev1.LabelInstanceTypeStable] != ""
}

// MergeInto adds the objects to those of a cluster. Of two objects with one name that of
// the files counts, as if it was applied.
func (o *Objects) MergeInto(in *simulate.Input) {
	in.Nodes = merge(in.Nodes, o.Nodes)
	in.Slices = merge(in.Slices, o.Slices)
	in.TaintRules = merge(in.TaintRules, o.TaintRules)
	in.Classes = merge(in.Classes, o.Classes)
	in.Claims = merge(in.Claims, o.Claims)
	in.ClaimTemplates = merge(in.ClaimTemplates, o.ClaimTemplates)
	in.Pods = merge(in.Pods, o.Pods)
}

func merge[T metav1.Object](old, more []T) []T {
	type name struct{ namespace, name string }
	newer := map[name]bool{}
	for _, object := range more {
		newer[name{object.GetNamespace(), object.GetName()}] = true
	}
	kept := slices.DeleteFunc(slices.Clone(old), func(object T) bool { return newer[name{object.GetNamespace(), object.GetName()}] })
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
