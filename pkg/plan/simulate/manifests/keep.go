package manifests

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// keep puts an object where it belongs.
func (o *Objects) keep(object runtime.Object, where, namespace string) error {
	meta, ok := object.(metav1.Object)
	if !ok {
		return fmt.Errorf("%s: %T has no metadata", where, object)
	}
	namespaced := true
	kind := ""
	switch object := object.(type) {
	case *corev1.Node:
		kind, namespaced, o.Nodes = "Node", false, append(o.Nodes, object)
	case *resourceapi.ResourceSlice:
		kind, namespaced = "ResourceSlice", false
		if isTemplate(object) {
			o.Templates = append(o.Templates, object)
		} else {
			o.Slices = append(o.Slices, object)
		}
	case *resourceapi.DeviceTaintRule:
		kind, namespaced, o.TaintRules = "DeviceTaintRule", false, append(o.TaintRules, object)
	case *resourceapi.DeviceClass:
		kind, namespaced, o.Classes = "DeviceClass", false, append(o.Classes, object)
	case *schedulingv1.PriorityClass:
		kind, namespaced, o.PriorityClasses = "PriorityClass", false, append(o.PriorityClasses, object)
	case *resourceapi.ResourceClaim:
		kind, o.Claims = "ResourceClaim", append(o.Claims, object)
	case *resourceapi.ResourceClaimTemplate:
		kind, o.ClaimTemplates = "ResourceClaimTemplate", append(o.ClaimTemplates, object)
	case *corev1.Pod:
		kind, o.Pods = "Pod", append(o.Pods, object)
	case *appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *batchv1.Job:
		kind = strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1.")
		o.workloads = append(o.workloads, workloadOf(object))
	}
	if namespaced && meta.GetNamespace() == "" {
		meta.SetNamespace(namespace)
	}
	if err := o.nameIt(meta, kind, where); err != nil {
		return err
	}
	if twice, found := o.seen[kind+" "+meta.GetNamespace()+"/"+meta.GetName()]; found {
		return fmt.Errorf("%s: %s %s is there twice, first in %s: remove one of them", where, kind, meta.GetName(), twice)
	}
	o.seen[kind+" "+meta.GetNamespace()+"/"+meta.GetName()] = where
	return nil
}

// nameIt makes sure that an object has a name: one with generateName gets the name that
// the API server might give it.
func (o *Objects) nameIt(meta metav1.Object, kind, where string) error {
	if meta.GetName() != "" {
		return nil
	}
	if meta.GetGenerateName() == "" {
		return fmt.Errorf("%s: %s without a name: give metadata.name", where, kind)
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s%d", meta.GetGenerateName(), i)
		if _, taken := o.seen[kind+" "+meta.GetNamespace()+"/"+name]; !taken {
			meta.SetName(name)
			return nil
		}
	}
}
