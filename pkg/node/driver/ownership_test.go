package driver

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/client"
)

// ownershipRig is a rig with somebody who watches who owns what.
type ownershipRig struct {
	*rig
	client *client.Client

	mu sync.Mutex
	// seen are all snapshots that the watcher got; news has a value when there is one
	// more.
	seen []ownership.Snapshot
	news chan struct{}
}

func newOwnershipRig(t *testing.T, change func(*Config), gpus ...string) *ownershipRig {
	t.Helper()
	o := &ownershipRig{news: make(chan struct{}, 1)}
	o.rig = newRigConfigured(t, nil, func(c *Config) {
		c.Ownership = true
		if change != nil {
			change(c)
		}
	}, gpus...)
	// The fake API server sends nobody what happens between a list and a watch.
	o.eventually("pods are watched", o.podWatches.begun)
	o.client = client.New(o.config.OwnershipSocket())
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		o.client.Run(ctx, func(s ownership.Snapshot) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.seen = append(o.seen, s)
			select {
			case o.news <- struct{}{}:
			default:
			}
		})
	})
	t.Cleanup(func() { cancel(); watching.Wait() })
	return o
}

// reserve has the claim reserved for pods, as the scheduler does.
func (o *ownershipRig) reserve(claim *drapb.Claim, pods ...*corev1.Pod) {
	o.t.Helper()
	claims := o.rig.client.ResourceV1().ResourceClaims(claim.Namespace)
	object, err := claims.Get(o.t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	object.Status.ReservedFor = nil
	for _, pod := range pods {
		object.Status.ReservedFor = append(object.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	if _, err := claims.Update(o.t.Context(), object, metav1.UpdateOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

// setPod makes the pod, or changes it.
func (o *ownershipRig) setPod(pod *corev1.Pod) {
	o.t.Helper()
	tracker := o.rig.client.Tracker()
	err := tracker.Update(podResource, pod, pod.Namespace)
	if apierrors.IsNotFound(err) {
		err = tracker.Add(pod)
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// owners waits until they are as wanted: "claim/request pod=State(container)".
func (o *ownershipRig) owners(want ...string) ownership.Snapshot {
	o.t.Helper()
	return o.until("owners", want, func(s ownership.Snapshot) bool { return slices.Equal(describeOwners(s), want) })
}

// problem waits until it has the part, or there is none if that is empty.
func (o *ownershipRig) problem(part string) ownership.Snapshot {
	o.t.Helper()
	return o.until("problem", part, func(s ownership.Snapshot) bool {
		return part == "" && s.Problem == "" || part != "" && strings.Contains(s.Problem, part)
	})
}

func (o *ownershipRig) until(what string, want any, f func(ownership.Snapshot) bool) ownership.Snapshot {
	o.t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		last, ok := o.last()
		if ok && f(last) {
			return last
		}
		select {
		case <-o.news:
		case <-deadline.C:
			o.t.Fatalf("%s never became %q; owners are %q, the problem %q", what, want, describeOwners(last), last.Problem)
		}
	}
}

func (o *ownershipRig) last() (ownership.Snapshot, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.seen) == 0 {
		return ownership.Snapshot{}, false
	}
	return o.seen[len(o.seen)-1], true
}

func describeOwners(s ownership.Snapshot) []string {
	var out []string
	for _, owner := range s.Owners {
		line := owner.Claim.Name + "/" + owner.Request
		for _, c := range owner.Consumers {
			line += " " + c.Name + "=" + string(c.State)
			for _, container := range c.Containers {
				line += "(" + container.Name + ")"
			}
		}
		out = append(out, line)
	}
	return out
}

// newPod is a pod of node-a with two containers, of which "main" uses its claim.
func newPod(name, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			NodeName:       "node-a",
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(claim)}},
			Containers: []corev1.Container{
				{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}},
				{Name: "logs"},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

func started(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://0123", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	return pod
}

func TestADeviceIsOwnedFromPrepareToUnprepare(t *testing.T) {
	o := newOwnershipRig(t, nil, "t4")
	devices := o.published(1)
	o.owners()
	whole := devices[len(devices)-1]
	pod := newPod("pod", "claim-c1")
	// A T4 has 15360 MiB.
	claim := o.claimOf("c1", whole.Name, "3840Mi")
	o.reserve(claim, pod)
	o.setPod(pod)
	if got := o.prepare(claim)["c1"]; got.Error != "" {
		t.Fatal(got.Error)
	}
	s := o.owners("claim-c1/gpu pod=Waiting(main)")
	device := s.Owners[0].Device
	if device.Name != whole.Name || device.UUID != *whole.Attributes["uuid"].StringValue || device.ShareID != "share-c1" || device.Fraction != 0.25 {
		t.Errorf("the device is %+v, want a quarter of %s", device, whole.Name)
	}
	if s.Problem != "" {
		t.Errorf("the problem is %q, want none", s.Problem)
	}
	o.setPod(started(newPod("pod", "claim-c1")))
	o.owners("claim-c1/gpu pod=Running(main)")

	// The pod has ended, and its reservation is taken back, before the claim is
	// unprepared.
	o.reserve(claim)
	if err := o.rig.client.Tracker().Delete(podResource, pod.Namespace, pod.Name); err != nil {
		t.Fatal(err)
	}
	o.owners("claim-c1/gpu")
	if e := o.unprepare(claim)["c1"].Error; e != "" {
		t.Fatal(e)
	}
	o.owners()
}

func TestAPodThatJoinsAClaimIsItsConsumerToo(t *testing.T) {
	o := newOwnershipRig(t, nil, "t4")
	devices := o.published(1)
	first, second := started(newPod("first", "claim-c1")), started(newPod("second", "claim-c1"))
	claim := o.claimOf("c1", devices[len(devices)-1].Name, "3840Mi")
	o.reserve(claim, first)
	o.setPod(first)
	o.prepare(claim)
	o.owners("claim-c1/gpu first=Running(main)")
	// The kubelet does not have it prepared again.
	o.reserve(claim, first, second)
	o.setPod(second)
	o.owners("claim-c1/gpu first=Running(main) second=Running(main)")
}

func TestAPartitionIsOwnedWithItsInstance(t *testing.T) {
	o := newOwnershipRig(t, nil, "h100-sxm5-80gb")
	partition := device(t, o.published(devicesOfH100), "-mig-3g-40gb-4")
	claim := o.claimOf("c1", partition.Name, "40448Mi")
	o.prepare(claim)
	s := o.owners("claim-c1/gpu")
	d := s.Owners[0].Device
	if made := o.partitions(); len(made) != 1 || d.UUID != made[0] {
		t.Errorf("the UUID is %s, want that of the partition %q", d.UUID, made)
	}
	if d.Type != "mig" || d.Profile != "3g.40gb" || d.ParentUUID != *partition.Attributes["parentUUID"].StringValue || d.GPUInstanceID == nil || d.Fraction != 0.5 {
		t.Errorf("the device is %+v, want half a GPU with its instance", d)
	}
}

func TestOwnersStayKnownWhileTheAPIServerIsAway(t *testing.T) {
	o := newOwnershipRig(t, nil, "t4")
	devices := o.published(1)
	pod := started(newPod("pod", "claim-c1"))
	claim := o.claimOf("c1", devices[len(devices)-1].Name, "3840Mi")
	o.reserve(claim, pod)
	o.setPod(pod)
	o.prepare(claim)
	const owner = "claim-c1/gpu pod=Running(main)"
	before := o.owners(owner)

	o.setAway(true)
	s := o.problem("pods: the API server is away")
	if !slices.Equal(describeOwners(s), []string{owner}) {
		t.Errorf("owners are %q, want the last ones", describeOwners(s))
	}
	if s.Verified.After(time.Now()) || s.Verified.Before(before.Verified) {
		t.Errorf("verified is %s, and was %s before", s.Verified, before.Verified)
	}
	// A driver that starts now knows as much.
	o.stop()
	o.start()
	o.eventually("the new process is heard", func() bool {
		now, err := o.client.Current()
		return err == nil && now.Instance != before.Instance
	})
	o.problem("pods: the API server is away")
	o.owners(owner)
	o.setAway(false)
	o.problem("")
	o.owners(owner)
	o.unprepare(claim)
	o.owners()
	o.always(owner)
}

// always checks that from the first snapshot with the owner on there was no other
// answer, until the claim was unprepared.
func (o *ownershipRig) always(owner string) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	first, last := -1, -1
	for i, s := range o.seen {
		if slices.Equal(describeOwners(s), []string{owner}) {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		o.t.Fatalf("the owner %q was never seen", owner)
	}
	for _, s := range o.seen[first:last] {
		if !slices.Equal(describeOwners(s), []string{owner}) {
			o.t.Errorf("generation %d of %s had the owners %q", s.Generation, s.Instance, describeOwners(s))
		}
	}
}

func TestNoOwnerIsWrongWhileTheDriverStartsAgain(t *testing.T) {
	o := newOwnershipRig(t, nil, "t4")
	devices := o.published(1)
	pod := started(newPod("pod", "claim-c1"))
	claim := o.claimOf("c1", devices[len(devices)-1].Name, "3840Mi")
	o.reserve(claim, pod)
	o.setPod(pod)
	o.prepare(claim)
	const owner = "claim-c1/gpu pod=Running(main)"
	before := o.owners(owner)
	for range 3 {
		o.stop()
		o.start()
		o.eventually("the new process is heard", func() bool {
			now, err := o.client.Current()
			return err == nil && now.Instance != before.Instance
		})
		before = o.owners(owner)
	}
	o.unprepare(claim)
	o.owners()
	o.always(owner)
}

func TestClaimsArePreparedWhileNobodySaysWhichPodsThereAre(t *testing.T) {
	o := newOwnershipRig(t, nil, "t4")
	o.stop() // Reactors cannot be added while the driver runs.
	o.rig.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("pods are not served")
	})
	o.start()
	devices := o.published(1)
	claim := o.claimOf("c1", devices[len(devices)-1].Name, "3840Mi")
	begun := time.Now()
	if got := o.prepare(claim)["c1"]; got.Error != "" {
		t.Fatal(got.Error)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if e := o.unprepare(claim)["c1"].Error; e != "" {
		t.Error(e)
	}
}

func TestOwnersAreSaidToDCGMExporterAndOverHTTP(t *testing.T) {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	mapping := t.TempDir()
	o := newOwnershipRig(t, func(c *Config) { c.OwnershipHTTPAddress, c.DCGMJobMappingDir = address, mapping }, "t4", "t4")
	devices := o.published(2)
	pod := started(newPod("pod", "claim-c1"))
	claim := o.claimOf("c1", devices[len(devices)-1].Name, "3840Mi")
	o.reserve(claim, pod)
	o.setPod(pod)
	o.prepare(claim)
	want := o.owners("claim-c1/gpu pod=Running(main)")

	file := filepath.Join(mapping, "1") // It is the second GPU.
	o.eventually("the file names the pod", func() bool {
		data, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(data), "pod")
	})
	response, err := http.Get("http://" + address + "/ownership")
	if err != nil {
		t.Fatal(err)
	}
	var got ownership.Snapshot
	err = errors.Join(json.NewDecoder(response.Body).Decode(&got), response.Body.Close())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Owners, want.Owners) {
		t.Errorf("over HTTP owners are\n%+v, want\n%+v", got.Owners, want.Owners)
	}
	o.unprepare(claim)
	o.owners()
	o.eventually("the file is gone", func() bool {
		_, err := os.Stat(file)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func TestWithoutOwnershipThereIsNoSocket(t *testing.T) {
	r := newRig(t, "t4")
	r.published(1)
	if _, err := os.Stat(r.config.OwnershipSocket()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("looking for the socket gave %v, want that there is none", err)
	}
}
