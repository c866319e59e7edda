package ownership

import (
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// uses says how the containers of a pod come by one request of a claim.
type uses struct {
	// request is the request's name without subrequest, which is all that a pod can
	// name.
	request string
	// entries are the names that the claim has in the pod: containers use these.
	entries set
	// containers are those that the scheduler gave the request to, of a claim for
	// extended resources.
	containers set
}

// usesOf finds out how a pod refers to a claim of its namespace.
func usesOf(pod *corev1.Pod, claim, request string) uses {
	var u uses
	u.request, _, _ = strings.Cut(request, "/")
	generated := generatedEntries(pod, claim)
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		if isGiven(entry, claim) || isGenerated(entry, generated) {
			u.entries.add(entry.Name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil && extended.ResourceClaimName == claim {
		for i := range extended.RequestMappings {
			if extended.RequestMappings[i].RequestName == u.request {
				u.containers.add(extended.RequestMappings[i].ContainerName)
			}
		}
	}
	return u
}

// generatedEntries are the names of a pod's entries for which a claim was generated.
func generatedEntries(pod *corev1.Pod, claim string) (entries set) {
	for i := range pod.Status.ResourceClaimStatuses {
		if s := &pod.Status.ResourceClaimStatuses[i]; s.ResourceClaimName != nil && *s.ResourceClaimName == claim {
			entries.add(s.Name)
		}
	}
	return entries
}

// by says whether a container with a name and claims uses the request. It may name the
// request, or else uses all of the claim.
func (u *uses) by(container string, claims []corev1.ResourceClaim) bool {
	for i := range claims {
		if (claims[i].Request == "" || claims[i].Request == u.request) && u.entries.has(claims[i].Name) {
			return true
		}
	}
	return u.containers.has(container)
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

func isGenerated(entry *corev1.PodResourceClaim, generated set) bool {
	return entry.ResourceClaimName == nil && entry.ResourceClaimTemplateName != nil && generated.has(entry.Name)
}

// namedClaims are the claims that a pod may refer to, some more than once.
func namedClaims(pod *corev1.Pod) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range pod.Spec.ResourceClaims {
			if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil && !yield(*name) {
				return
			}
		}
		for i := range pod.Status.ResourceClaimStatuses {
			if name := pod.Status.ResourceClaimStatuses[i].ResourceClaimName; name != nil && !yield(*name) {
				return
			}
		}
		if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
			yield(extended.ResourceClaimName)
		}
	}
}

// set is a set of names. Nearly all have one or none; a map keeps those that somebody
// made large from costing the square of that.
type set struct {
	first string
	any   bool
	more  map[string]bool
}

func (s *set) add(name string) {
	switch {
	case !s.any:
		s.first, s.any = name, true
	case name != s.first:
		if s.more == nil {
			s.more = map[string]bool{}
		}
		s.more[name] = true
	}
}

func (s *set) has(name string) bool { return s.any && s.first == name || s.more[name] }
