package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// BindingsAnnotation is the annotation of a template's first ResourceSlice that holds the
// template's bindings, as a JSON list of {"attribute": "...", "devices": ["..."]}.
const BindingsAnnotation = "resource.apportion.dev/bindings"

// Objects are a template of an instance type as ResourceSlices without node fields, for
// files. The label node.kubernetes.io/instance-type names the type. The pool has no name
// unless the template gives it one. These are not for an API server, which would take
// them for devices that exist.
func Objects(instanceType string, t allocator.Template) ([]*resourceapi.ResourceSlice, error) {
	var objects []*resourceapi.ResourceSlice
	for i, slice := range t.Slices {
		objects = append(objects, &resourceapi.ResourceSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
			ObjectMeta: metav1.ObjectMeta{
				Name:   fmt.Sprintf("%s-%s-%d", objectName(instanceType), t.Driver, i),
				Labels: map[string]string{corev1.LabelInstanceTypeStable: instanceType},
			},
			Spec: resourceapi.ResourceSliceSpec{
				Driver:         t.Driver,
				Pool:           resourceapi.ResourcePool{Name: t.Pool, Generation: 1, ResourceSliceCount: int64(len(t.Slices))},
				Devices:        slice.Devices,
				SharedCounters: slice.SharedCounters,
			},
		})
	}
	if len(t.Bindings) > 0 && len(objects) > 0 {
		text, err := json.Marshal(t.Bindings)
		if err != nil {
			return nil, fmt.Errorf("write the bindings of %s: %w", instanceType, err)
		}
		objects[0].Annotations = map[string]string{BindingsAnnotation: string(text)}
	}
	return objects, nil
}

// objectName is an instance type's name as part of an object's.
func objectName(instanceType string) string {
	return strings.ReplaceAll(strings.ToLower(instanceType), "_", "-")
}

// FromObjects gives the templates of each instance type back from their ResourceSlices:
// those of [Objects], or of any driver if they have the same label. The slices of a pool
// are taken in the order of the list.
func FromObjects(objects []*resourceapi.ResourceSlice) (map[string][]allocator.Template, error) {
	templates := map[string][]allocator.Template{}
	for _, object := range objects {
		instanceType := object.Labels[corev1.LabelInstanceTypeStable]
		if instanceType == "" {
			return nil, fmt.Errorf("ResourceSlice %q does not say of which instance type it is a template: give it the label %s", object.Name, corev1.LabelInstanceTypeStable)
		}
		of := templates[instanceType]
		i := slices.IndexFunc(of, func(t allocator.Template) bool {
			return t.Driver == object.Spec.Driver && t.Pool == object.Spec.Pool.Name
		})
		if i < 0 {
			i = len(of)
			of = append(of, allocator.Template{Driver: object.Spec.Driver, Pool: object.Spec.Pool.Name})
		}
		of[i].Slices = append(of[i].Slices, allocator.TemplateSlice{Devices: object.Spec.Devices, SharedCounters: object.Spec.SharedCounters})
		if text := object.Annotations[BindingsAnnotation]; text != "" {
			var bindings []allocator.Binding
			if err := json.Unmarshal([]byte(text), &bindings); err != nil {
				return nil, fmt.Errorf("ResourceSlice %q: annotation %s: %w", object.Name, BindingsAnnotation, err)
			}
			of[i].Bindings = append(of[i].Bindings, bindings...)
		}
		templates[instanceType] = of
	}
	for _, of := range templates {
		slices.SortStableFunc(of, func(a, b allocator.Template) int {
			return strings.Compare(a.Driver+"/"+a.Pool, b.Driver+"/"+b.Pool)
		})
	}
	return templates, nil
}
