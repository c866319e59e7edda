package simulate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/internal/natural"
)

// podState is a pod with all that its place depends on.
type podState struct {
	pod  *corev1.Pod
	name types.NamespacedName
	// requests are of resources that are not served by a class.
	requests corev1.ResourceList
	// extended are the other ones, in order, and with a claim for all of them.
	extended      []corev1.ResourceName
	extendedClaim *resourceapi.ResourceClaim
	// claims are the pod's own.
	claims    []*resourceapi.ResourceClaim
	selectors []*corev1.NodeSelector
	affinity  nodeaffinity.RequiredNodeAffinity
	// problem says why the pod cannot go anywhere, empty if it may.
	problem string
	// like is equal for pods that can take each other's place, empty for those of which
	// that is not known.
	like string
}

// Pending says whether a pod waits for a node.
func Pending(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !finished(pod)
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// pendingPods are the pods to be placed, in order.
func (in *Input) pendingPods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range in.Pods {
		if Pending(pod) {
			pods = append(pods, pod)
		}
	}
	return sorted(pods, comparePods)
}

// comparePods orders by priority, the highest first, then by age, the oldest first, and
// by namespace and name, in which numbers count by their value.
func comparePods(a, b *corev1.Pod) int {
	return cmp.Or(
		cmp.Compare(corehelpers.PodPriority(b), corehelpers.PodPriority(a)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), natural.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID),
	)
}

// newPod reads a pod. Claims that controllers would make for it are made.
func (b *claimBook) newPod(pod *corev1.Pod) *podState {
	s := &podState{
		pod: pod, name: nameOf(pod), requests: requestsOf(pod),
		selectors: selectorsOf(pod), affinity: nodeaffinity.GetRequiredNodeAffinity(pod),
	}
	for _, name := range slices.Sorted(maps.Keys(s.requests)) {
		quantity := s.requests[name]
		if isExtended(name) && !quantity.IsZero() && b.extended.GetDeviceClass(name) != nil {
			s.extended = append(s.extended, name)
		}
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		var gates []string
		for _, gate := range pod.Spec.SchedulingGates {
			gates = append(gates, gate.Name)
		}
		s.problem = "it waits for its scheduling gates " + strings.Join(gates, ", ")
		return s
	}
	if err := s.keepValidTerms(); err != nil {
		s.problem = fmt.Sprintf("its node selector or affinity is not valid: %v: correct it", err)
		return s
	}
	claims, err := b.podClaims(pod)
	if err != nil {
		s.problem = err.Error()
		return s
	}
	s.claims = claims
	if len(s.extended) > 0 {
		s.extendedClaim = b.extendedClaim(pod, s.extended)
	}
	s.like = b.likeness(s)
	return s
}

// likeness is all that a pod's place depends on, but for its name. It is empty for a pod
// with claims that others may use, too, or that have a place already.
func (b *claimBook) likeness(s *podState) string {
	alike := struct {
		Requests    corev1.ResourceList
		Claims      []resourceapi.ResourceClaimSpec
		Selectors   []*corev1.NodeSelector
		Tolerations []corev1.Toleration
	}{Requests: s.requests, Selectors: s.selectors, Tolerations: s.pod.Spec.Tolerations}
	claims := s.claims
	if s.extendedClaim != nil {
		claims = append(slices.Clone(claims), s.extendedClaim)
	}
	for _, claim := range claims {
		if !b.made[claim] {
			return ""
		}
		alike.Claims = append(alike.Claims, claim.Spec)
	}
	data, err := json.Marshal(alike)
	if err != nil {
		return "" // Then it is like no other.
	}
	return string(data)
}

// selectorsOf are what a pod asks of the labels of its node.
func selectorsOf(pod *corev1.Pod) []*corev1.NodeSelector {
	var selectors []*corev1.NodeSelector
	if len(pod.Spec.NodeSelector) > 0 {
		var term corev1.NodeSelectorTerm
		for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{pod.Spec.NodeSelector[key]},
			})
		}
		selectors = append(selectors, &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}})
	}
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		if required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			selectors = append(selectors, required)
		}
	}
	return selectors
}

// keepValidTerms leaves out terms that cannot be parsed, which match no node. The API
// server takes some, such as Gt of a word. The error is for a selector with no other term.
func (s *podState) keepValidTerms() error {
	for i, selector := range s.selectors {
		_, invalid := nodeaffinity.NewNodeSelector(selector)
		if invalid == nil {
			continue
		}
		valid := &corev1.NodeSelector{}
		for _, term := range selector.NodeSelectorTerms {
			if _, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}); err == nil {
				valid.NodeSelectorTerms = append(valid.NodeSelectorTerms, term)
			}
		}
		if len(valid.NodeSelectorTerms) == 0 {
			return invalid
		}
		s.selectors[i] = valid
	}
	return nil
}

// claimsOn are the pod's claims on a node with these allocatable resources. Those of
// extended resources that a device plugin offers there are not needed, and requested
// says what is taken of the node instead.
func (s *podState) claimsOn(allocatable corev1.ResourceList, b *claimBook) (claims []*resourceapi.ResourceClaim, requests corev1.ResourceList) {
	requests = s.requests
	if len(s.extended) == 0 {
		return s.claims, requests
	}
	var byClass []corev1.ResourceName
	requests = requests.DeepCopy()
	for _, name := range s.extended {
		if offered := allocatable[name]; offered.IsZero() {
			byClass = append(byClass, name)
			delete(requests, name)
		}
	}
	claims = slices.Clone(s.claims)
	switch {
	case len(byClass) == len(s.extended):
		claims = append(claims, s.extendedClaim)
	case len(byClass) > 0:
		claim := s.extendedClaim.DeepCopy()
		claim.Spec.Devices.Requests = b.requestsFor(s.pod, byClass)
		claims = append(claims, claim)
	}
	return claims, requests
}

// untolerated names a taint for which a pod must not go to a node, empty if there is
// none.
func (s *podState) untolerated(taints []corev1.Taint) string {
	taint, found := corehelpers.FindMatchingUntoleratedTaint(klog.Logger{}, taints, s.pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
	if !found {
		return ""
	}
	return fmt.Sprintf("taint %s is not tolerated", taint.ToString())
}

// notConsidered are the features of a pod that the planner does not know.
func notConsidered(pod *corev1.Pod) []string {
	var features []string
	if a := pod.Spec.Affinity; a != nil && (a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0) {
		features = append(features, "affinity between pods")
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			features = append(features, "topology spread")
			break
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			features = append(features, "volumes")
			break
		}
	}
	if hasHostPort(pod) {
		features = append(features, "host ports")
	}
	return features
}

func hasHostPort(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			if port.HostPort != 0 || pod.Spec.HostNetwork && port.ContainerPort != 0 {
				return true
			}
		}
	}
	return false
}
