package manifests

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// workload is what a controller makes pods for.
type workload struct {
	kind, apiVersion string
	meta             metav1.Object
	template         corev1.PodTemplateSpec
	// start and pods are the number of the first pod and how many there are at once.
	start, pods int32
}

// workloadOf reads how many pods a workload has at once.
func workloadOf(object runtime.Object) workload {
	switch w := object.(type) {
	case *appsv1.Deployment:
		return workload{kind: "Deployment", apiVersion: "apps/v1", meta: w, template: w.Spec.Template, pods: orOne(w.Spec.Replicas)}
	case *appsv1.ReplicaSet:
		return workload{kind: "ReplicaSet", apiVersion: "apps/v1", meta: w, template: w.Spec.Template, pods: orOne(w.Spec.Replicas)}
	case *appsv1.StatefulSet:
		result := workload{kind: "StatefulSet", apiVersion: "apps/v1", meta: w, template: w.Spec.Template, pods: orOne(w.Spec.Replicas)}
		if w.Spec.Ordinals != nil {
			result.start = w.Spec.Ordinals.Start
		}
		return result
	case *batchv1.Job:
		result := workload{kind: "Job", apiVersion: "batch/v1", meta: w, template: w.Spec.Template, pods: orOne(w.Spec.Parallelism)}
		if w.Spec.Completions != nil {
			result.pods = min(result.pods, *w.Spec.Completions)
		}
		if w.Spec.Suspend != nil && *w.Spec.Suspend {
			result.pods = 0
		}
		return result
	}
	return workload{}
}

func orOne(n *int32) int32 {
	if n == nil {
		return 1
	}
	return max(0, *n)
}

// makePods makes the pods of all workloads, named by their numbers. Where two workloads
// would have pods of the same name, those of the second have its kind in their names.
func (o *Objects) makePods() {
	taken := map[types.NamespacedName]bool{}
	for _, pod := range o.Pods {
		taken[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = true
	}
	for _, w := range o.workloads {
		base := w.meta.GetName()
		for w.clashes(base, taken) {
			base += "-" + lower(w.kind)
		}
		for i := range w.pods {
			pod := w.pod(fmt.Sprintf("%s-%d", base, w.start+i))
			taken[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = true
			o.Pods = append(o.Pods, pod)
		}
	}
	o.workloads = nil
}

func (w workload) clashes(base string, taken map[types.NamespacedName]bool) bool {
	for i := range w.pods {
		if taken[types.NamespacedName{Namespace: w.meta.GetNamespace(), Name: fmt.Sprintf("%s-%d", base, w.start+i)}] {
			return true
		}
	}
	return false
}

func (w workload) pod(name string) *corev1.Pod {
	isController := true
	template := w.template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.meta.GetNamespace(), Name: name, Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: w.apiVersion, Kind: w.kind, Name: w.meta.GetName(), UID: w.meta.GetUID(), Controller: &isController,
			}},
		},
		Spec: template.Spec,
	}
	pod.Status.Phase = corev1.PodPending
	return pod
}
