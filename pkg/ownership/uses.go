package ownership

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// uses says how the containers of a pod come by one request of a claim.
type uses struct {
	// request is the request's name without subrequest, which is all that a pod can
	// name.
	request string
	// entries are the names that the claim has in the pod: containers use these.
	entries map[string]bool
	// containers are those that the scheduler gave the request to, of a claim for
	// extended resources.
	containers map[string]bool
}

// usesOf finds out how a pod refers to a claim of its namespace.
func usesOf(pod *corev1.Pod, claim, request string) uses {
	u := uses{entries: map[string]bool{}, containers: map[string]bool{}}
	u.request, _, _ = strings.Cut(request, "/")
	generated := generatedEntries(pod, claim)
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		if isGiven(entry, claim) || isGenerated(entry, generated) {
			u.entries[entry.Name] = true
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil && extended.ResourceClaimName == claim {
		for i := range extended.RequestMappings {
			if extended.RequestMappings[i].RequestName == u.request {
				u.containers[extended.RequestMappings[i].ContainerName] = true
			}
		}
	}
	return u
}

// generatedEntries are the names of a pod's entries for which a claim was generated.
func generatedEntries(pod *corev1.Pod, claim string) map[string]bool {
	entries := map[string]bool{}
	for i := range pod.Status.ResourceClaimStatuses {
		if s := &pod.Status.ResourceClaimStatuses[i]; s.ResourceClaimName != nil && *s.ResourceClaimName == claim {
			entries[s.Name] = true
		}
	}
	return entries
}

// by says whether a container with a name and claims uses the request. It may name the
// request, or else uses all of the claim.
func (u *uses) by(container string, claims []corev1.ResourceClaim) bool {
	for i := range claims {
		if (claims[i].Request == "" || claims[i].Request == u.request) && u.entries[claims[i].Name] {
			return true
		}
	}
	return u.containers[container]
}

// HasClaims says whether a pod refers to claims, or has one for extended resources.
func HasClaims(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// Refers says whether a pod refers to the claim of that name in its namespace: by name,
// by a template, or for extended resources.
func Refers(pod *corev1.Pod, namespace, claim string) bool {
	if pod.Namespace != namespace {
		return false
	}
	bySpec, byStatus := references(pod, claim)
	return bySpec || byStatus
}

// references says how a pod refers to a claim of its namespace: by name in its spec,
// which whoever makes the pod writes, or in its status, as the claim was made for it of
// a template or for its extended resources.
func references(pod *corev1.Pod, claim string) (bySpec, byStatus bool) {
	extended := pod.Status.ExtendedResourceClaimStatus
	byStatus = extended != nil && extended.ResourceClaimName == claim
	generated := generatedEntries(pod, claim)
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		bySpec = bySpec || isGiven(entry, claim)
		byStatus = byStatus || isGenerated(entry, generated)
	}
	return bySpec, byStatus
}

func isGiven(entry *corev1.PodResourceClaim, claim string) bool {
	return entry.ResourceClaimName != nil && *entry.ResourceClaimName == claim
}

func isGenerated(entry *corev1.PodResourceClaim, generated map[string]bool) bool {
	return entry.ResourceClaimName == nil && entry.ResourceClaimTemplateName != nil && generated[entry.Name]
}

// namedClaims are the claims that a pod may refer to, some more than once.
func namedClaims(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			names = append(names, *name)
		}
	}
	for i := range pod.Status.ResourceClaimStatuses {
		if name := pod.Status.ResourceClaimStatuses[i].ResourceClaimName; name != nil {
			names = append(names, *name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	return names
}
