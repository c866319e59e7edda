package ownership

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
)

// Join says who uses what claims hold. held are owners without consumers, of which
// only those of this function count; claims and pods are what is known of the cluster
// or the node. workload says what made a pod, nil for [WorkloadOf].
//
// A pod consumes a claim that is reserved for it (status.reservedFor, by UID), or for
// its PodGroup if it refers to the claim. Of a reservation the pod itself cannot write
// anything, so a pod that only names the claim is not a consumer. A pod for which a
// claim is reserved and that is not among pods is [Gone]: pods must be all that can
// use the held devices, those of a node or of the cluster. With nil pods, which is
// different from none, it is not known who uses anything, and there are no consumers.
//
// Where the claim itself is not known, as on a node that cannot reach the API server,
// pods decide: those whose status names the claim (of a template, or for extended
// resources), and those whose spec does, which anybody can write, once they have
// started, because the kubelet starts none that the claim is not reserved for. Where
// another claim of that name is known, the held one was deleted while it was prepared:
// its consumers are pods that refer to the name and have started without being
// consumers of the other.
//
// Read of a pod are: namespace, name, UID, resource version, owner references, labels
// and the deletion timestamp; of its spec resourceClaims,
// schedulingGroup, nodeName, and of its containers of all kinds the name, restartPolicy
// and resources.claims; of its status phase, resourceClaimStatuses,
// extendedResourceClaimStatus and the container statuses. Read of a claim are its
// namespace, name, UID, resource version and status.reservedFor. Of several objects of
// one UID the one of the newest resource version counts.
//
// The result is sorted and never nil. It shares maps and what pointers lead to with
// held, and must not be changed.
func Join(held []Owner, claims []*resourceapi.ResourceClaim, pods []*corev1.Pod, workload func(*corev1.Pod) *Workload) []Owner {
	owners := make([]Owner, len(held))
	copy(owners, held)
	for i := range owners {
		owners[i].Consumers = nil
		owners[i].Since = owners[i].Since.UTC().Round(0)
	}
	Sort(owners)
	owners = compact(owners)
	if pods == nil {
		return owners
	}
	j := &joiner{pods: viewPods(pods, workload)}
	known := j.index(owners, claims)
	for i := range owners {
		owners[i].Consumers = j.consumersOf(&owners[i], known[i])
	}
	return owners
}

// claimName is what a pod can say of a claim.
type claimName struct{ namespace, name string }

// joiner has the indexes that make a join linear.
type joiner struct {
	pods *podViews
	// referring are the pods that refer to a claim, and others the known claims that
	// have the name of one that is not known. Both are only for the names that need
	// them: of most claims the reservations of pods tell all.
	referring map[claimName][]*podView
	others    map[claimName][]*resourceapi.ResourceClaim
	// consumers are those of all owners, buffer those of the one being looked at.
	consumers chunks[Consumer]
	buffer    []Consumer
}

// index returns the claim of each owner, nil where it is not known, and prepares what
// the claims need to find their pods.
func (j *joiner) index(owners []Owner, claims []*resourceapi.ResourceClaim) []*resourceapi.ResourceClaim {
	byUID := make(map[types.UID]*resourceapi.ResourceClaim, len(claims))
	for _, claim := range claims {
		if claim == nil {
			continue
		}
		if twin, twice := byUID[claim.UID]; !twice || newer(claim.ResourceVersion, twin.ResourceVersion) {
			byUID[claim.UID] = claim
		}
	}
	known := make([]*resourceapi.ResourceClaim, len(owners))
	j.referring, j.others = map[claimName][]*podView{}, map[claimName][]*resourceapi.ResourceClaim{}
	for i := range owners {
		name := claimName{owners[i].Claim.Namespace, owners[i].Claim.Name}
		claim := byUID[owners[i].Claim.UID]
		switch {
		case claim == nil || !holds(claim, &owners[i].Device):
			j.referring[name], j.others[name] = nil, nil
			continue
		case slices.ContainsFunc(claim.Status.ReservedFor, isNoPod):
			j.referring[name] = nil
		}
		known[i] = claim
	}
	if len(j.others) > 0 {
		for _, claim := range byUID {
			name := claimName{claim.Namespace, claim.Name}
			if others, wanted := j.others[name]; wanted {
				j.others[name] = append(others, claim)
			}
		}
	}
	j.findReferring()
	return known
}

// holds says whether a claim's allocation has a device. One that has been allocated
// anew says nothing of who uses what it had before. Nor does one without allocation
// say that it does not hold the device.
func holds(claim *resourceapi.ResourceClaim, d *Device) bool {
	if claim.Status.Allocation == nil {
		return true
	}
	results := claim.Status.Allocation.Devices.Results
	for i := range results {
		r := &results[i]
		if r.Device == d.Name && r.Pool == d.Pool && r.Driver == d.Driver && shareOf(r) == d.ShareID {
			return true
		}
	}
	return false
}

func shareOf(result *resourceapi.DeviceRequestAllocationResult) types.UID {
	if result.ShareID == nil {
		return ""
	}
	return *result.ShareID
}

func (j *joiner) findReferring() {
	if len(j.referring) == 0 {
		return
	}
	for i := range j.pods.views {
		pod := &j.pods.views[i]
		for name := range namedClaims(pod.Pod) {
			key := claimName{pod.Namespace, name}
			found, wanted := j.referring[key]
			if wanted && (len(found) == 0 || found[len(found)-1] != pod) {
				j.referring[key] = append(found, pod)
			}
		}
	}
}

// consumersOf are the pods that use a device by its claim, nil for one not known.
func (j *joiner) consumersOf(o *Owner, claim *resourceapi.ResourceClaim) []Consumer {
	consumers := j.buffer[:0]
	name := claimName{o.Claim.Namespace, o.Claim.Name}
	if claim != nil {
		for _, reserved := range claim.Status.ReservedFor {
			if pod := j.reservedPod(claim, reserved); pod != nil {
				consumers = append(consumers, j.pods.consumer(pod, o))
			} else if !isNoPod(reserved) {
				consumers = append(consumers, Consumer{Namespace: claim.Namespace, Name: reserved.Name, UID: reserved.UID, State: Gone})
			}
		}
	}
	if len(j.referring) > 0 {
		for _, pod := range j.referring[name] {
			if claim == nil && j.usesUnknown(pod.Pod, name) || claim != nil && usesByGroup(pod.Pod, claim) {
				consumers = append(consumers, j.pods.consumer(pod, o))
			}
		}
	}
	slices.SortFunc(consumers, compareConsumers)
	j.buffer = consumers
	return j.consumers.keep(consumers)
}

// reservedPod is the pod for which a claim is reserved, nil if it is not there. A
// reservation for something of another namespace is for nobody.
func (j *joiner) reservedPod(claim *resourceapi.ResourceClaim, reserved resourceapi.ResourceClaimConsumerReference) *podView {
	pod := j.pods.byUID[reserved.UID]
	if pod == nil || pod.Namespace != claim.Namespace {
		return nil
	}
	return pod
}

// usesByGroup says whether a pod uses a claim that is not reserved for it, but for its
// group.
func usesByGroup(pod *corev1.Pod, claim *resourceapi.ResourceClaim) bool {
	bySpec, byStatus := references(pod, claim.Name)
	return (bySpec || byStatus) && inReservedGroup(pod, claim) && !isReserved(pod, claim)
}

// usesUnknown says whether a pod that refers to a claim's name uses the one that is
// held, of which nothing is known.
func (j *joiner) usesUnknown(pod *corev1.Pod, name claimName) bool {
	bySpec, byStatus := references(pod, name.name)
	others := j.others[name]
	for _, other := range others {
		if isReserved(pod, other) || inReservedGroup(pod, other) {
			return false
		}
	}
	return byStatus && len(others) == 0 || (bySpec || byStatus) && hasStarted(pod)
}

// isNoPod says whether a claim is reserved for something else than a pod.
func isNoPod(reserved resourceapi.ResourceClaimConsumerReference) bool {
	return reserved.APIGroup != corev1.GroupName || reserved.Resource != "pods"
}

// isReserved says whether a claim is reserved for the pod itself.
func isReserved(pod *corev1.Pod, claim *resourceapi.ResourceClaim) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(reserved resourceapi.ResourceClaimConsumerReference) bool {
		return reserved.UID == pod.UID
	})
}

// inReservedGroup says whether a claim is reserved for a group that the pod, which
// refers to it, is in. A pod knows its PodGroup's name alone. Of kinds that are not
// known here it is not clear which pods they stand for: those that the kubelet has let
// start.
func inReservedGroup(pod *corev1.Pod, claim *resourceapi.ResourceClaim) bool {
	group := pod.Spec.SchedulingGroup
	for _, reserved := range claim.Status.ReservedFor {
		switch {
		case !isNoPod(reserved):
		case reserved.APIGroup == schedulingapi.GroupName && reserved.Resource == "podgroups":
			if group != nil && group.PodGroupName != nil && *group.PodGroupName == reserved.Name {
				return true
			}
		case hasStarted(pod):
			return true
		}
	}
	return false
}
