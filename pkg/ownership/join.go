package ownership

import (
	"cmp"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Join says who uses what claims hold. held are owners without consumers, of which
// only those of this function count; claims and pods are what is known of the cluster
// or the node. workload says what made a pod, nil for [WorkloadOf]; it is asked once for
// each pod that consumes something, one at a time.
//
// Join takes held over, as append does: it is put in order and gets the consumers, and
// only the result counts. A cluster's is large. Who needs it again gives a copy.
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
// the objects and with copies of held, and must not be changed.
func Join(held []Owner, claims []*resourceapi.ResourceClaim, pods []*corev1.Pod, workload func(*corev1.Pod) *Workload) []Owner {
	// Fewer than that are not worth a worker.
	const perWorker = 256
	workers := min(runtime.GOMAXPROCS(0), 1+max(len(held), len(pods))/perWorker)
	return join(held, claims, pods, workload, workers)
}

// join is Join by so many workers, on which the result does not depend.
func join(held []Owner, claims []*resourceapi.ResourceClaim, pods []*corev1.Pod, workload func(*corev1.Pod) *Workload, workers int) []Owner {
	j := &joiner{workers: workers}
	if workload != nil {
		j.workload = askOnce(workload)
	}
	tasks := []func(){
		func() {
			if pods != nil {
				j.pods = newest(pods)
			}
		},
		func() { j.claims = newest(claims) },
		func() { j.owners = inOrder(held) },
	}
	share(workers, len(tasks), func(ranges iter.Seq2[int, int]) {
		for i := range ranges {
			tasks[i]()
		}
	})
	return j.join()
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

// joiner has the indexes that make a join linear.
type joiner struct {
	workers int
	// owners are the result, pods nil if it is not known who uses anything.
	owners []Owner
	claims map[types.UID]*resourceapi.ResourceClaim
	pods   map[types.UID]*corev1.Pod
	// workload is the caller's, if any.
	workload func(*corev1.Pod) *Workload
	// names are of claims, only those that need them: of most claims the reservations
	// of pods tell all. referring are the pods that refer to each name, and others the
	// known claims that have the name of one that is not known.
	names     map[claimName]int
	referring [][]*corev1.Pod
	others    map[claimName][]*resourceapi.ResourceClaim
}

// join are the owners, with consumers if pods are known.
func (j *joiner) join() []Owner {
	if j.pods == nil {
		return j.owners
	}
	unsettled := make([]bool, len(j.owners))
	j.eachOwner(func(m *consumerMaker, i int) {
		o := &j.owners[i]
		claim := j.claimOf(o)
		unsettled[i] = claim == nil || slices.ContainsFunc(claim.Status.ReservedFor, isNoPod)
		if !unsettled[i] {
			o.Consumers = m.consumersOf(o, claim, nil)
		}
	})
	if !slices.Contains(unsettled, true) {
		return j.owners
	}
	j.findNames(unsettled)
	j.findReferring()
	j.eachOwner(func(m *consumerMaker, i int) {
		if o := &j.owners[i]; unsettled[i] {
			o.Consumers = m.consumersOf(o, j.claimOf(o), j.referring[j.names[nameOf(o)]])
		}
	})
	return j.owners
}

// eachOwner does something for each owner, by its index.
func (j *joiner) eachOwner(do func(m *consumerMaker, i int)) {
	share(j.workers, len(j.owners), func(ranges iter.Seq2[int, int]) {
		m := &consumerMaker{joiner: j}
		for from, to := range ranges {
			for i := from; i < to; i++ {
				do(m, i)
			}
		}
	})
}

// claimOf is the claim of an owner, nil where it is not known.
func (j *joiner) claimOf(o *Owner) *resourceapi.ResourceClaim {
	if claim := j.claims[o.Claim.UID]; claim != nil && holds(claim, &o.Device) {
		return claim
	}
	return nil
}

func nameOf(o *Owner) claimName { return claimName{o.Claim.Namespace, o.Claim.Name} }

// findNames finds the names of the claims of some owners, and the known claims that
// have them.
func (j *joiner) findNames(wanted []bool) {
	n := 0
	for _, is := range wanted {
		if is {
			n++
		}
	}
	j.names = make(map[claimName]int, n)
	unknown := false
	for i := range j.owners {
		if !wanted[i] {
			continue
		}
		o := &j.owners[i]
		name := nameOf(o)
		if _, twice := j.names[name]; !twice {
			j.names[name] = len(j.names)
		}
		unknown = unknown || j.claimOf(o) == nil
	}
	if !unknown {
		return
	}
	j.others = map[claimName][]*resourceapi.ResourceClaim{}
	for _, claim := range j.claims {
		name := claimName{claim.Namespace, claim.Name}
		if _, wanted := j.names[name]; wanted {
			j.others[name] = append(j.others[name], claim)
		}
	}
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

// findReferring finds the pods that refer to the names. Their order is by chance:
// consumers get sorted.
func (j *joiner) findReferring() {
	pods := slices.AppendSeq(make([]*corev1.Pod, 0, len(j.pods)), maps.Values(j.pods))
	// reference is by a pod's place in that list, to a name by its number.
	type reference struct{ name, pod int32 }
	var mu sync.Mutex
	var found [][]reference
	share(j.workers, len(pods), func(ranges iter.Seq2[int, int]) {
		var references []reference
		for from, to := range ranges {
			for i := from; i < to; i++ {
				for name := range namedClaims(pods[i]) {
					if n, wanted := j.names[claimName{pods[i].Namespace, name}]; wanted {
						references = append(references, reference{int32(n), int32(i)})
					}
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		found = append(found, references)
	})
	total, counts := 0, make([]int, len(j.names))
	for _, references := range found {
		total += len(references)
		for _, r := range references {
			counts[r.name]++
		}
	}
	j.referring = make([][]*corev1.Pod, len(counts))
	free := make([]*corev1.Pod, total)
	for name, n := range counts {
		j.referring[name], free = free[:0:n], free[n:]
	}
	for _, references := range found {
		for _, r := range references {
			referring, pod := j.referring[r.name], pods[r.pod]
			if len(referring) == 0 || referring[len(referring)-1] != pod {
				j.referring[r.name] = append(referring, pod)
			}
		}
	}
}

// consumersOf are the pods that use a device by its claim, nil for one not known.
// referring are those that refer to it, unless its reservations tell all.
func (m *consumerMaker) consumersOf(o *Owner, claim *resourceapi.ResourceClaim, referring []*corev1.Pod) []Consumer {
	consumers := m.consumerBuffer[:0]
	if claim != nil {
		for i := range claim.Status.ReservedFor {
			reserved := &claim.Status.ReservedFor[i]
			if pod := m.reservedPod(claim, reserved); pod != nil {
				consumers = append(consumers, m.consumer(pod, o))
			} else if !isNoPod(*reserved) {
				consumers = append(consumers, Consumer{Namespace: claim.Namespace, Name: reserved.Name, UID: reserved.UID, State: Gone})
			}
		}
	}
	for _, pod := range referring {
		if claim == nil && m.usesUnknown(pod, nameOf(o)) || claim != nil && usesByGroup(pod, claim) {
			consumers = append(consumers, m.consumer(pod, o))
		}
	}
	slices.SortFunc(consumers, compareConsumers)
	m.consumerBuffer = consumers
	return m.consumers.keep(consumers)
}

// reservedPod is the pod for which a claim is reserved, nil if it is not there. A
// reservation for something of another namespace is for nobody.
func (j *joiner) reservedPod(claim *resourceapi.ResourceClaim, reserved *resourceapi.ResourceClaimConsumerReference) *corev1.Pod {
	pod := j.pods[reserved.UID]
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
