package manifests

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	drav1beta1 "k8s.io/dynamic-resource-allocation/api/v1beta1"
	drav1beta2 "k8s.io/dynamic-resource-allocation/api/v1beta2"
)

// scheme has the kinds that are read, and how old versions of resource.k8s.io become
// the newest.
var scheme = newScheme()

// strict decodes and complains about fields that there are not.
var strict = serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, schedulingv1.AddToScheme, resourceapi.AddToScheme,
		drav1beta1.AddToScheme, drav1beta2.AddToScheme,
	} {
		utilruntime.Must(add(s)) // It fails only if two types have the same name.
	}
	return s
}

// kinds are those that are read, by group and kind.
var kinds = map[schema.GroupKind]bool{
	{Kind: "Node"}: true, {Kind: "Pod"}: true,
	{Group: resourceapi.GroupName, Kind: "ResourceSlice"}:         true,
	{Group: resourceapi.GroupName, Kind: "ResourceClaim"}:         true,
	{Group: resourceapi.GroupName, Kind: "ResourceClaimTemplate"}: true,
	{Group: resourceapi.GroupName, Kind: "DeviceClass"}:           true,
	{Group: resourceapi.GroupName, Kind: "DeviceTaintRule"}:       true,
	{Group: schedulingv1.GroupName, Kind: "PriorityClass"}:        true,
	{Group: appsv1.GroupName, Kind: "Deployment"}:                 true,
	{Group: appsv1.GroupName, Kind: "ReplicaSet"}:                 true,
	{Group: appsv1.GroupName, Kind: "StatefulSet"}:                true,
	{Group: batchv1.GroupName, Kind: "Job"}:                       true,
}

func known(meta metav1.TypeMeta) bool { return kinds[meta.GroupVersionKind().GroupKind()] }

// newest converts an object of an old version of resource.k8s.io.
func newest(object runtime.Object) (runtime.Object, error) {
	gvk := object.GetObjectKind().GroupVersionKind()
	if gvk.Group != resourceapi.GroupName || gvk.Version == resourceapi.SchemeGroupVersion.Version {
		return object, nil
	}
	to, err := scheme.New(resourceapi.SchemeGroupVersion.WithKind(gvk.Kind))
	if err != nil {
		return nil, fmt.Errorf("convert from version %s: %w", gvk.Version, err)
	}
	if err := scheme.Convert(object, to, nil); err != nil {
		return nil, fmt.Errorf("convert from version %s: %w", gvk.Version, err)
	}
	return to, nil
}
