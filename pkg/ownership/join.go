package ownership

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Join says who uses what claims hold. held are owners without consumers, of which
// only those of this function count; claims and pods are what is known of the cluster
// or the node. workload says what made a pod, nil for [WorkloadOf]; it is asked once for
// each pod that consumes something.
//
// Join takes held over, as append does: it is put in order and gets the consumers, and
// only the result counts. Callers that need it again give a copy.
//
// A pod consumes a claim that is reserved for it (status.reservedFor, by UID), or for
// its PodGroup if it refers to the claim. Whoever makes a pod cannot write a
// reservation, so a pod that only names the claim is not a consumer. A pod that a claim
// is reserved for and that is not among pods is [Gone]: pods must be all that can use
// the held devices, those of a node or of the cluster. With nil pods, which is different
// from none, it is not known who uses anything, and there are no consumers.
//
// Where the claim itself is not known, as on a node that cannot reach the API server,
// pods decide: those whose status names the claim (of a template, or for extended
// resources), and those whose spec does, which anybody can write, once they have
// started, because the kubelet starts none that the claim is not reserved for. Where
// another claim of that name is known, the held one was deleted while it was prepared:
// its consumers are pods that refer to the name and have started without being
// consumers of the other.
//
// [PrunePod] and [PruneClaim] keep what is read of a pod and of a claim. Of several
// objects of one UID the one of the newest resource version counts.
//
// The result is sorted and never nil. It shares maps and what pointers lead to with
// the objects and with copies of held, and must not be changed.
func Join(held []Owner, claims []*resourceapi.ResourceClaim, pods []*corev1.Pod, workload func(*corev1.Pod) *Workload) []Owner {
	owners := inOrder(held)
	if pods == nil {
		return owners
	}
	if workload == nil {
		workload = WorkloadOf
	}
	j := &joiner{
		claims: newest(claims), pods: newest(pods),
		workloadOf: workload, workloads: map[types.UID]*Workload{},
	}
	j.findReferring(owners)
	for i := range owners {
		owners[i].Consumers = j.consumersOf(&owners[i])
	}
	return owners
}

// newest finds objects by UID, of several of one UID the newest.
func newest[T interface {
	comparable
	metav1.Object
}](objects []T) map[types.UID]T {
	var none T
	byUID := make(map[types.UID]T, len(objects))
	for _, object := range objects {
		if object == none {
			continue
		}
		uid := object.GetUID()
		if twin, twice := byUID[uid]; !twice || newer(object.GetResourceVersion(), twin.GetResourceVersion()) {
			byUID[uid] = object
		}
	}
	return byUID
}

// newer says whether a resource version is of a later state of the same object
// (KEP-5504: they are numbers).
func newer(a, b string) bool {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) > 0
}

// claimName is what a pod can say of a claim.
type claimName struct{ namespace, name string }

func nameOf(o *Owner) claimName { return claimName{o.Claim.Namespace, o.Claim.Name} }

// joiner has the indexes that make a join linear.
type joiner struct {
	claims map[types.UID]*resourceapi.ResourceClaim
	pods   map[types.UID]*corev1.Pod
	// workloads are those of the pods that workloadOf was asked for.
	workloadOf func(*corev1.Pod) *Workload
	workloads  map[types.UID]*Workload
	// referring are the pods that refer to a name, and others the known claims that
	// have it. They have only names of claims whose reservations do not name all pods.
	referring map[claimName][]*corev1.Pod
	others    map[claimName][]*resourceapi.ResourceClaim
}

// claimOf is the claim of an owner, nil where it is not known.
func (j *joiner) claimOf(o *Owner) *resourceapi.ResourceClaim {
	if claim := j.claims[o.Claim.UID]; claim != nil && holds(claim, &o.Device) {
		return claim
	}
	return nil
}

// findReferring finds the pods that refer to claims whose reservations do not name all
// pods. Their order is random: consumers get sorted.
func (j *joiner) findReferring(owners []Owner) {
	j.referring, j.others = map[claimName][]*corev1.Pod{}, map[claimName][]*resourceapi.ResourceClaim{}
	for i := range owners {
		if claim := j.claimOf(&owners[i]); claim == nil || slices.ContainsFunc(claim.Status.ReservedFor, isNoPod) {
			j.referring[nameOf(&owners[i])] = nil
		}
	}
	if len(j.referring) == 0 {
		return
	}
	for _, pod := range j.pods {
		for _, claim := range namedClaims(pod) {
			name := claimName{pod.Namespace, claim}
			pods, wanted := j.referring[name]
			if wanted && (len(pods) == 0 || pods[len(pods)-1] != pod) {
				j.referring[name] = append(pods, pod)
			}
		}
	}
	for _, claim := range j.claims {
		name := claimName{claim.Namespace, claim.Name}
		if _, wanted := j.referring[name]; wanted {
			j.others[name] = append(j.others[name], claim)
		}
	}
}

// consumersOf are the pods that use a device by its claim.
func (j *joiner) consumersOf(o *Owner) []Consumer {
	var consumers []Consumer
	claim := j.claimOf(o)
	if claim != nil {
		for i := range claim.Status.ReservedFor {
			reserved := &claim.Status.ReservedFor[i]
			// A reservation for something of another namespace is for nobody.
			if pod := j.pods[reserved.UID]; pod != nil && pod.Namespace == claim.Namespace {
				consumers = append(consumers, j.consumer(pod, o))
			} else if !isNoPod(*reserved) {
				consumers = append(consumers, Consumer{Namespace: claim.Namespace, Name: reserved.Name, UID: reserved.UID, State: Gone})
			}
		}
	}
	for _, pod := range j.referring[nameOf(o)] {
		if claim == nil && j.usesUnknown(pod, nameOf(o)) || claim != nil && usesByGroup(pod, claim) {
			consumers = append(consumers, j.consumer(pod, o))
		}
	}
	slices.SortFunc(consumers, compareConsumers)
	return consumers
}

// consumer is what a pod is to a device that its claim holds.
func (j *joiner) consumer(pod *corev1.Pod, o *Owner) Consumer {
	workload, asked := j.workloads[pod.UID]
	if !asked {
		workload = j.workloadOf(pod)
		j.workloads[pod.UID] = workload
	}
	return Consumer{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName, State: stateOf(pod),
		Workload: workload, Labels: pod.Labels, Containers: containersOf(pod, usesOf(pod, o.Claim.Name, o.Request)),
	}
}

// holds says whether a claim's allocation has a device. A claim that has been allocated
// anew says nothing about who uses what it had before. Nor does one without an
// allocation say that it does not hold the device.
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

// usesByGroup says whether a pod uses a claim that is not reserved for it, but for its
// group.
func usesByGroup(pod *corev1.Pod, claim *resourceapi.ResourceClaim) bool {
	bySpec, byStatus := references(pod, claim.Name)
	return (bySpec || byStatus) && inReservedGroup(pod, claim) && !isReserved(pod, claim)
}

// usesUnknown says whether a pod that refers to a claim's name uses the one that is
// held, and about which nothing else is known.
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

// isNoPod says whether a claim is reserved for something other than a pod.
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
// refers to it, is in. A pod knows only its PodGroup's name. Which pods other kinds
// stand for is not known here: those that the kubelet has let start count.
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
