package report

import (
	"context"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"apportion.dev/apportion/pkg/ownership"
)

// makers knows who made the ReplicaSets and Jobs that pods were made by. It is a
// refinement: without it, or where they may not be read, a pod's own names must do. One
// goroutine uses it at a time.
type makers struct {
	metadata  metadata.Interface
	namespace string

	// known are the workloads behind ReplicaSets and Jobs by UID: themselves, where
	// nobody made them, and nil for those that are gone.
	known map[types.UID]*ownership.Workload
	// refused is why kinds are not asked for again.
	refused map[schema.GroupVersionResource]error
}

// intermediate are what stands between a pod and its workload.
var intermediate = map[schema.GroupKind]schema.GroupVersionResource{
	{Group: appsv1.GroupName, Kind: "ReplicaSet"}: appsv1.SchemeGroupVersion.WithResource("replicasets"),
	{Group: batchv1.GroupName, Kind: "Job"}:       batchv1.SchemeGroupVersion.WithResource("jobs"),
}

// newMakers is nil where workloads are not shown.
func (s *Cluster) newMakers() *makers {
	if s.Options.By != ByWorkload && s.Options.Output == Table {
		return nil
	}
	return &makers{
		metadata: s.Metadata, namespace: s.Options.Namespace,
		known: map[types.UID]*ownership.Workload{}, refused: map[schema.GroupVersionResource]error{},
	}
}

// load reads all ReplicaSets and Jobs; what cannot be read is left out.
func (m *makers) load(ctx context.Context) {
	if m == nil {
		return
	}
	for kind, resource := range intermediate {
		read := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return m.metadata.Resource(resource).Namespace(m.namespace).List(ctx, o)
		}
		err := pager.New(read).EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			if o, ok := object.(*metav1.PartialObjectMetadata); ok {
				m.learn(kind, resource, o)
			}
			return nil
		})
		if err != nil {
			m.refused[resource] = err
		}
	}
}

func (m *makers) learn(kind schema.GroupKind, resource schema.GroupVersionResource, o *metav1.PartialObjectMetadata) *ownership.Workload {
	w := &ownership.Workload{APIVersion: resource.GroupVersion().String(), Kind: kind.Kind, Name: o.Name}
	if maker := metav1.GetControllerOfNoCopy(o); maker != nil {
		w = &ownership.Workload{APIVersion: maker.APIVersion, Kind: maker.Kind, Name: maker.Name}
	}
	m.known[o.UID] = w
	return w
}

// of gives a function that finds a pod's workload, for one call of ownership.Join.
func (m *makers) of(ctx context.Context) func(*corev1.Pod) *ownership.Workload {
	if m == nil {
		return nil
	}
	// What failed for another reason than a missing right is asked for again.
	maps.DeleteFunc(m.refused, func(_ schema.GroupVersionResource, err error) bool { return !apierrors.IsForbidden(err) })
	return func(pod *corev1.Pod) *ownership.Workload {
		if w := m.find(ctx, pod); w != nil {
			return w
		}
		return ownership.WorkloadOf(pod)
	}
}

// find is nil where there is nobody between the pod and its workload, or the API server
// does not say who.
func (m *makers) find(ctx context.Context, pod *corev1.Pod) *ownership.Workload {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return nil
	}
	kind := schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind).GroupKind()
	resource, ok := intermediate[kind]
	if !ok {
		return nil
	}
	if w, known := m.known[controller.UID]; known || m.refused[resource] != nil {
		return w
	}
	// It is younger than the list.
	o, err := m.metadata.Resource(resource).Namespace(pod.Namespace).Get(ctx, controller.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && o.UID != controller.UID:
		m.known[controller.UID] = nil
		return nil
	case err != nil:
		m.refused[resource] = err
		return nil
	}
	return m.learn(kind, resource, o)
}
