package simulate

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
)

// extendedResources tells which class serves an extended resource.
func (in *Input) extendedResources() *extendedresourcecache.ExtendedResourceCache {
	cache := extendedresourcecache.NewExtendedResourceCache(klog.Logger{})
	for _, class := range sorted(in.Classes, func(a, b *resourceapi.DeviceClass) int { return cmp.Compare(a.Name, b.Name) }) {
		cache.OnAdd(class, true)
	}
	return cache
}

func sorted[T any](all []T, compare func(a, b T) int) []T {
	return slices.SortedStableFunc(slices.Values(all), compare)
}

// claimBook finds the claims of pods, and makes those that a controller would.
type claimBook struct {
	claims    map[types.NamespacedName]*resourceapi.ResourceClaim
	templates map[types.NamespacedName]*resourceapi.ResourceClaimTemplate
	extended  *extendedresourcecache.ExtendedResourceCache
	// made are the claims that are not in the input.
	made map[*resourceapi.ResourceClaim]bool
}

func newClaimBook(in *Input) *claimBook {
	b := &claimBook{
		claims:    map[types.NamespacedName]*resourceapi.ResourceClaim{},
		templates: map[types.NamespacedName]*resourceapi.ResourceClaimTemplate{},
		extended:  in.extendedResources(),
		made:      map[*resourceapi.ResourceClaim]bool{},
	}
	for _, claim := range in.Claims {
		b.claims[nameOf(claim)] = claim
	}
	for _, template := range in.ClaimTemplates {
		b.templates[nameOf(template)] = template
	}
	return b
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// podClaims gives the claims of a pod in its order, without that for extended resources.
// The error says, for the user, why the pod cannot be scheduled.
func (b *claimBook) podClaims(pod *corev1.Pod) ([]*resourceapi.ResourceClaim, error) {
	var claims []*resourceapi.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		podClaim := &pod.Spec.ResourceClaims[i]
		claim, err := b.podClaim(pod, podClaim)
		if err != nil {
			return nil, err
		}
		if claim != nil {
			claims = append(claims, claim)
		}
	}
	return claims, nil
}

// podClaim finds or makes one claim; nil if the pod needs none for this entry.
func (b *claimBook) podClaim(pod *corev1.Pod, podClaim *corev1.PodResourceClaim) (*resourceapi.ResourceClaim, error) {
	name, mustCheckOwner, err := resourceclaim.Name(pod, podClaim)
	switch {
	case err != nil && podClaim.ResourceClaimTemplateName != nil:
		return b.fromTemplate(pod, podClaim)
	case err != nil:
		return nil, fmt.Errorf("claim %s names neither a ResourceClaim nor a ResourceClaimTemplate", podClaim.Name)
	case name == nil:
		return nil, nil
	}
	claim := b.claims[types.NamespacedName{Namespace: pod.Namespace, Name: *name}]
	switch {
	case claim == nil:
		return nil, fmt.Errorf("ResourceClaim %s is missing: create it in namespace %s", *name, pod.Namespace)
	case claim.DeletionTimestamp != nil:
		return nil, fmt.Errorf("ResourceClaim %s is being deleted", *name)
	case mustCheckOwner && resourceclaim.IsForPod(pod, claim, false) != nil:
		return nil, fmt.Errorf("ResourceClaim %s was not made for this pod, but for another of the same name: delete the claim", *name)
	}
	if !resourceclaim.IsReservedForPod(pod, claim, false) && len(claim.Status.ReservedFor) >= resourceapi.ResourceClaimReservedForMaxSize {
		return nil, fmt.Errorf("ResourceClaim %s is reserved for %d pods already, which is the most", *name, len(claim.Status.ReservedFor))
	}
	return claim, nil
}

// fromTemplate makes the claim that the ResourceClaim controller will.
func (b *claimBook) fromTemplate(pod *corev1.Pod, podClaim *corev1.PodResourceClaim) (*resourceapi.ResourceClaim, error) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: *podClaim.ResourceClaimTemplateName}
	template := b.templates[name]
	if template == nil {
		return nil, fmt.Errorf("ResourceClaimTemplate %s is missing: create it in namespace %s", name.Name, name.Namespace)
	}
	return b.make(pod, podClaim.Name, template.Spec.ObjectMeta, template.Spec.Spec), nil
}

// make gives a pod a claim of its own, with a name that no other claim has.
func (b *claimBook) make(pod *corev1.Pod, suffix string, meta metav1.ObjectMeta, spec resourceapi.ResourceClaimSpec) *resourceapi.ResourceClaim {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name + "-" + suffix}
	for i := 2; b.claims[name] != nil; i++ {
		name.Name = fmt.Sprintf("%s-%s-%d", pod.Name, suffix, i)
	}
	isController := true
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace, Name: name.Name, UID: types.UID("simulated/" + name.String()),
			Labels: meta.Labels, Annotations: meta.Annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &isController}},
		},
		Spec: *spec.DeepCopy(),
	}
	b.claims[name] = claim
	b.made[claim] = true
	return claim
}
