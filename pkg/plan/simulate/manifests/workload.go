package manifests

import (
	"fmt"
	"slices"

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
			result.pods = max(0, min(result.pods, *w.Spec.Completions-w.Status.Succeeded))
		}
		ended := func(c batchv1.JobCondition) bool {
			return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
		}
		if w.Spec.Suspend != nil && *w.Spec.Suspend || slices.ContainsFunc(w.Status.Conditions, ended) {
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

// makePods makes the pods of all workloads, named by their numbers, but for those that
// are among the files. Where two workloads would have pods of the same name, those of the
// second have its kind in their names.
func (o *Objects) makePods() {
	o.leaveOutMade()
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

// leaveOutMade leaves out what other objects of the files stand for, as in what kubectl
// prints of a cluster: a ReplicaSet of a Deployment, and as many pods as workloads have.
func (o *Objects) leaveOutMade() {
	workloads := map[workloadKey]*workload{}
	for i := range o.workloads {
		w := &o.workloads[i]
		workloads[workloadKey{w.kind, w.meta.GetNamespace(), w.meta.GetName()}] = w
	}
	// maker is the workload that makes an object, in the end: nil if it is not here.
	maker := func(object metav1.Object) (last *workload) {
		for range 2 { // A Deployment, its ReplicaSet and that one's pods are the longest.
			controller := metav1.GetControllerOf(object)
			if controller == nil {
				break
			}
			w := workloads[workloadKey{controller.Kind, object.GetNamespace(), controller.Name}]
			if w == nil {
				break
			}
			object, last = w.meta, w
		}
		return last
	}
	for _, pod := range o.Pods {
		if w := maker(pod); w != nil && pod.DeletionTimestamp == nil &&
			pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			w.pods = max(0, w.pods-1)
		}
	}
	for i := range o.workloads {
		if maker(o.workloads[i].meta) != nil {
			o.workloads[i].pods = 0
		}
	}
}

// workloadKey identifies a workload.
type workloadKey struct{ kind, namespace, name string }

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
