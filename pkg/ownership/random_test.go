package ownership

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
)

// world is a small cluster in which everything is likely to be called like something
// else.
type world struct {
	held   []Owner
	claims []*resourceapi.ResourceClaim
	pods   []*corev1.Pod
	slices []*resourceapi.ResourceSlice
}

type dice struct{ *rand.Rand }

func (d dice) one(in int) bool { return d.IntN(in) == 0 }

func (d dice) name(kind string, of int) string { return fmt.Sprint(kind, d.IntN(of)) }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

func randomWorld(seed uint64) world {
	d := dice{rand.New(rand.NewPCG(seed, 0))}
	var w world
	for i := range d.IntN(12) {
		w.pods = append(w.pods, randomPod(d, i))
	}
	for i := range d.IntN(8) {
		w.claims = append(w.claims, randomClaim(d, i, w.pods))
	}
	for i := range d.IntN(3) {
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("slice", i)}}
		slice.Spec.Driver = testDriver
		slice.Spec.Pool = resourceapi.ResourcePool{Name: "node", Generation: int64(d.IntN(2))}
		for g := range 3 {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{
				Name:       fmt.Sprint("gpu-", g),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: ptr.To("gpu")}, "uuid": {StringValue: ptr.To(d.name("GPU-", 9))}},
			})
		}
		w.slices = append(w.slices, slice)
	}
	w.held = Held(w.claims, w.slices, testDriver)
	for i := range d.IntN(4) {
		ref := ClaimRef{Namespace: d.name("ns", 2), Name: d.name("c", 4), UID: types.UID(fmt.Sprint("deleted-uid", i))}
		if len(w.claims) > 0 && d.one(2) {
			claim := pick(d, w.claims...)
			ref = ClaimRef{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
		}
		w.held = append(w.held, Owner{
			Device: Device{Driver: testDriver, Pool: "node", Name: d.name("gpu-", 3)},
			Claim:  ref, Request: pick(d, "r0", "r1/a"), AdminAccess: d.one(2),
		})
	}
	if len(w.claims) > 0 && d.one(2) {
		w.claims = w.claims[1:] // It is held, and not known.
	}
	return w
}

func randomPod(d dice, i int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.name("ns", 2), Name: d.name("p", 6), UID: types.UID(fmt.Sprint("pod-uid", i)),
	}}
	pod.Status.Phase = pick(d, "", corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodFailed)
	if d.one(3) {
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(d.name("g", 2))}
	}
	if d.one(4) {
		pod.DeletionTimestamp = &metav1.Time{}
	}
	for e := range d.IntN(4) {
		entry := corev1.PodResourceClaim{Name: fmt.Sprint("e", e)}
		if d.one(2) {
			entry.ResourceClaimName = ptr.To(d.name("c", 4))
		} else {
			entry.ResourceClaimTemplateName = ptr.To("t")
			if !d.one(4) {
				pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses,
					corev1.PodResourceClaimStatus{Name: entry.Name, ResourceClaimName: pick(d, nil, ptr.To(d.name("c", 4)), ptr.To(d.name("c", 4)))})
			}
		}
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, entry)
	}
	container := func(name string) corev1.Container {
		c := corev1.Container{Name: name}
		for range d.IntN(3) {
			c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: d.name("e", 4), Request: pick(d, "", "r0", "r1", "r1/a")})
		}
		return c
	}
	for k := range d.IntN(3) {
		c := container(fmt.Sprint("init", k))
		c.RestartPolicy = pick(d, nil, ptr.To(corev1.ContainerRestartPolicyAlways), ptr.To(corev1.ContainerRestartPolicyOnFailure))
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for k := range d.IntN(20) {
		c := container(fmt.Sprint("main", k))
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		if d.one(2) {
			status := corev1.ContainerStatus{Name: c.Name, ContainerID: "containerd://id-" + c.Name}
			if d.one(2) {
				status.State.Running = &corev1.ContainerStateRunning{}
			}
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
		}
	}
	if d.one(4) {
		extended := &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: d.name("c", 4)}
		for range d.IntN(4) {
			extended.RequestMappings = append(extended.RequestMappings, corev1.ContainerExtendedResourceRequest{
				ContainerName: pick(d, "init0", "main0", "main1"), ResourceName: "x", RequestName: d.name("r", 2),
			})
		}
		pod.Status.ExtendedResourceClaimStatus = extended
	}
	return pod
}

func randomClaim(d dice, i int, pods []*corev1.Pod) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.name("ns", 2), Name: d.name("c", 4), UID: types.UID(fmt.Sprint("claim-uid", i)),
	}}
	if !d.one(5) {
		claim.Status.Allocation = &resourceapi.AllocationResult{}
		for range d.IntN(4) {
			result := resourceapi.DeviceRequestAllocationResult{
				Request: pick(d, "r0", "r1/a"), Driver: pick(d, testDriver, testDriver, testDriver, "other"), Pool: "node", Device: d.name("gpu-", 3),
			}
			if d.one(2) {
				result.ShareID = ptr.To(types.UID(d.name("share", 9)))
			}
			claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, result)
		}
	}
	uids := map[types.UID]bool{}
	for range d.IntN(5) {
		reserved := resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: d.name("p", 6), UID: types.UID(d.name("pod-uid", 14))}
		switch {
		case d.one(5):
			reserved = resourceapi.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: d.name("g", 2), UID: types.UID(d.name("group-uid", 9))}
		case len(pods) > 0 && !d.one(3):
			pod := pick(d, pods...)
			reserved.Name, reserved.UID = pod.Name, pod.UID
		}
		if !uids[reserved.UID] {
			uids[reserved.UID] = true
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, reserved)
		}
	}
	return claim
}

// model is what Join should say, worked out for each pod and container by itself with
// the functions that the kubelet has for it.
func (w world) model() []Owner {
	byKey := map[Key]Owner{}
	for _, o := range w.held {
		claim, others := w.claimOf(o)
		for _, pod := range w.pods {
			if consumesAsKubeletSays(pod, o, claim, others) {
				o.Consumers = append(o.Consumers, consumerAsKubeletSays(pod, o))
			}
		}
		if claim != nil {
			for _, r := range claim.Status.ReservedFor {
				isThere := slices.ContainsFunc(w.pods, func(p *corev1.Pod) bool { return p.UID == r.UID && p.Namespace == claim.Namespace })
				if r.Resource == "pods" && !isThere {
					o.Consumers = append(o.Consumers, Consumer{Namespace: claim.Namespace, Name: r.Name, UID: r.UID, State: Gone})
				}
			}
		}
		slices.SortFunc(o.Consumers, func(a, b Consumer) int {
			return cmp.Compare(fmt.Sprint(a.Namespace, " ", a.Name, " ", a.UID), fmt.Sprint(b.Namespace, " ", b.Name, " ", b.UID))
		})
		if before, twice := byKey[o.Key()]; twice {
			x, _ := json.Marshal(before)
			y, _ := json.Marshal(o)
			if string(x) < string(y) {
				continue
			}
		}
		byKey[o.Key()] = o
	}
	owners := make([]Owner, 0, len(byKey))
	for _, o := range byKey {
		owners = append(owners, o)
	}
	line := func(o Owner) string {
		return strings.Join([]string{o.Device.Name, string(o.Device.ShareID), o.Claim.Namespace, o.Claim.Name, string(o.Claim.UID), o.Request}, "\x00")
	}
	slices.SortFunc(owners, func(a, b Owner) int { return cmp.Compare(line(a), line(b)) })
	return owners
}

// claimOf is the claim that says who uses what an owner holds, and those that have its
// name without being it.
func (w world) claimOf(o Owner) (claim *resourceapi.ResourceClaim, others []*resourceapi.ResourceClaim) {
	for _, c := range w.claims {
		if c.UID == o.Claim.UID {
			claim = c
			if c.Status.Allocation != nil && !slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
				return r.Driver == o.Device.Driver && r.Device == o.Device.Name && ptr.Deref(r.ShareID, "") == o.Device.ShareID
			}) {
				claim = nil
			}
		}
		if c.Namespace == o.Claim.Namespace && c.Name == o.Claim.Name {
			others = append(others, c)
		}
	}
	return claim, others
}

func consumesAsKubeletSays(pod *corev1.Pod, o Owner, claim *resourceapi.ResourceClaim, others []*resourceapi.ResourceClaim) bool {
	if pod.Namespace != o.Claim.Namespace {
		return false
	}
	refers, made := false, false
	for name, mustCheckOwner := range resourceclaim.PodClaims(pod) {
		refers = refers || name == o.Claim.Name
		made = made || name == o.Claim.Name && mustCheckOwner
	}
	started := pod.Status.Phase == corev1.PodRunning
	for _, s := range pod.Status.ContainerStatuses {
		started = started || s.State.Running != nil
	}
	switch {
	case claim != nil:
		return resourceclaim.IsReservedForPod(pod, claim, false) || refers && resourceclaim.IsReservedForPod(pod, claim, true)
	case len(others) > 0:
		return refers && started && !slices.ContainsFunc(others, func(c *resourceapi.ResourceClaim) bool {
			return resourceclaim.IsReservedForPod(pod, c, true)
		})
	}
	return refers && (made || started)
}

func consumerAsKubeletSays(pod *corev1.Pod, o Owner) Consumer {
	c := Consumer{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, State: Waiting}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Running != nil {
			c.State = Running
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodFailed:
		c.State = Gone
	case pod.DeletionTimestamp != nil:
		c.State = Terminating
	case pod.Status.Phase == corev1.PodRunning:
		c.State = Running
	}
	add := func(container corev1.Container, kind ContainerKind) {
		var requests []string
		for _, entry := range pod.Spec.ResourceClaims {
			name, _, err := resourceclaim.Name(pod, &entry)
			for _, use := range container.Resources.Claims {
				if err == nil && name != nil && *name == o.Claim.Name && use.Name == entry.Name {
					requests = append(requests, use.Request)
				}
			}
		}
		if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil && extended.ResourceClaimName == o.Claim.Name {
			for _, m := range extended.RequestMappings {
				if m.ContainerName == container.Name {
					requests = append(requests, m.RequestName)
				}
			}
		}
		if !slices.Contains(requests, "") && !slices.Contains(requests, resourceclaim.BaseRequestRef(o.Request)) {
			return
		}
		used := Container{Name: container.Name, Kind: kind}
		for _, s := range pod.Status.ContainerStatuses {
			if s.Name == container.Name && s.State.Running != nil {
				used.Started = true
				used.ID = strings.TrimPrefix(s.ContainerID, "containerd://")
			}
		}
		c.Containers = append(c.Containers, used)
	}
	for _, container := range pod.Spec.InitContainers {
		kind := InitContainer
		if ptr.Deref(container.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			kind = Sidecar
		}
		add(container, kind)
	}
	for _, container := range pod.Spec.Containers {
		add(container, RegularContainer)
	}
	return c
}

// checkWorld compares the join of a random world with the model, and with itself for
// input in other orders.
func checkWorld(t *testing.T, seed uint64) (consumers int) {
	w := randomWorld(seed)
	if w.pods == nil {
		w.pods = []*corev1.Pod{}
	}
	owners := Join(slices.Clone(w.held), w.claims, w.pods, nil)
	if diff := gocmp.Diff(w.model(), owners); diff != "" {
		t.Errorf("seed %d: owners (-model +join):\n%s", seed, diff)
	}
	want := mustJSON(t, owners)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 4 {
		random.Shuffle(len(w.held), func(i, k int) { w.held[i], w.held[k] = w.held[k], w.held[i] })
		random.Shuffle(len(w.claims), func(i, k int) { w.claims[i], w.claims[k] = w.claims[k], w.claims[i] })
		random.Shuffle(len(w.pods), func(i, k int) { w.pods[i], w.pods[k] = w.pods[k], w.pods[i] })
		for _, claim := range w.claims {
			reserved := claim.Status.ReservedFor
			random.Shuffle(len(reserved), func(i, k int) { reserved[i], reserved[k] = reserved[k], reserved[i] })
		}
		for _, pod := range w.pods {
			statuses := pod.Status.ContainerStatuses
			random.Shuffle(len(statuses), func(i, k int) { statuses[i], statuses[k] = statuses[k], statuses[i] })
		}
		objects := func() string { return mustJSON(t, w.claims) + mustJSON(t, w.pods) }
		before := objects()
		if got := mustJSON(t, Join(slices.Clone(w.held), w.claims, w.pods, nil)); got != want {
			t.Errorf("seed %d: in another order the owners are\n%s\nnot\n%s", seed, got, want)
		}
		if objects() != before {
			t.Errorf("seed %d: Join changed the claims or pods", seed)
		}
		random.Shuffle(len(w.slices), func(i, k int) { w.slices[i], w.slices[k] = w.slices[k], w.slices[i] })
	}
	for _, o := range owners {
		consumers += len(o.Consumers)
	}
	return consumers
}

func TestRandomWorlds(t *testing.T) {
	consumers := 0
	for seed := range uint64(1000) {
		consumers += checkWorld(t, seed)
		if t.Failed() {
			return
		}
	}
	if consumers < 1000 {
		t.Errorf("the worlds have only %d consumers: they test too little", consumers)
	}
}

func TestHeldWhateverTheOrder(t *testing.T) {
	for seed := range uint64(300) {
		w := randomWorld(seed)
		want := mustJSON(t, Held(w.claims, w.slices, testDriver))
		slices.Reverse(w.claims)
		slices.Reverse(w.slices)
		for _, claim := range w.claims {
			if a := claim.Status.Allocation; a != nil {
				slices.Reverse(a.Devices.Results)
			}
		}
		if got := mustJSON(t, Held(w.claims, w.slices, testDriver)); got != want {
			t.Fatalf("seed %d: in another order it is held\n%s\nnot\n%s", seed, got, want)
		}
	}
}

func TestRandomDiffs(t *testing.T) {
	for seed := range uint64(500) {
		w, v := randomWorld(seed), randomWorld(seed+1)
		before, after := Join(w.held, w.claims, w.pods, nil), Join(v.held, v.claims, v.pods, nil)
		changed, removed := Diff(before, after)
		if got := Apply(before, changed, removed); !Equal(got, after) {
			t.Fatalf("seed %d: applied, it is\n%s\nnot\n%s", seed, mustJSON(t, got), mustJSON(t, after))
		}
	}
}

func FuzzWorlds(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkWorld(t, seed) })
}

// FuzzObjects joins whatever objects somebody may make.
func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"n","name":"p","uid":"p1"},"spec":{"resourceClaims":[{"name":"e","resourceClaimName":"c"}],"containers":[{"name":"x","resources":{"claims":[{"name":"e"}]}}]},"status":{"phase":"Running","containerStatuses":[{"name":"x","containerID":"a://b","state":{"running":{}}}]}}`),
		[]byte(`{"metadata":{"namespace":"n","name":"c","uid":"c1"},"status":{"allocation":{"devices":{"results":[{"request":"r/s","driver":"gpu.example.com","pool":"p","device":"gpu-4f3a1b2c","shareID":"s","consumedCapacity":{"memory":"1Gi"}}]}},"reservedFor":[{"resource":"pods","name":"p","uid":"p1"}],"devices":[{"driver":"gpu.example.com","pool":"p","device":"gpu-4f3a1b2c","shareID":"s","data":{"uuid":"x"}}]}}`),
		[]byte(`{"metadata":{"name":"s"},"spec":{"driver":"gpu.example.com","pool":{"name":"p"},"devices":[{"name":"gpu-4f3a1b2c","attributes":{"type":{"string":"mig"}},"capacity":{"memory":{"value":"4Gi"}},"consumesCounters":[{"counterSet":"g","counters":{"memory-slice-0":{"value":"1"}}}]}],"sharedCounters":[{"name":"g","counters":{"memory-slice-0":{"value":"2"}}}]}}`))
	f.Fuzz(func(t *testing.T, podJSON, claimJSON, sliceJSON []byte) {
		pod, claim, slice := new(corev1.Pod), new(resourceapi.ResourceClaim), new(resourceapi.ResourceSlice)
		if json.Unmarshal(podJSON, pod) != nil || json.Unmarshal(claimJSON, claim) != nil || json.Unmarshal(sliceJSON, slice) != nil {
			t.Skip()
		}
		held := Held([]*resourceapi.ResourceClaim{claim}, []*resourceapi.ResourceSlice{slice}, testDriver)
		for _, claims := range [][]*resourceapi.ResourceClaim{{claim}, nil} {
			owners := Join(slices.Clone(held), claims, []*corev1.Pod{pod}, nil)
			for _, o := range owners {
				if f := o.Device.Fraction; !(f >= 0 && f <= 1) {
					t.Errorf("fraction is %v", f)
				}
			}
			if !Equal(owners, Apply(nil, owners, nil)) {
				t.Errorf("owners are not sorted: %s", mustJSON(t, owners))
			}
		}
	})
}
