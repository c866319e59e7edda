package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"sigs.k8s.io/yaml"

	"apportion.dev/apportion/pkg/ownership/report"
)

// noon is when the tests happen.
var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

const testDriver = "gpu.apportion.dev"

// gpuDevice is a GPU as its node's driver publishes it, with eight memory slices.
func gpuDevice(name, uuid, memory string) resourceapi.Device {
	shareable := true
	return resourceapi.Device{
		Name: name, AllowMultipleAllocations: &shareable,
		Attributes:       map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: new("gpu")}, "uuid": {StringValue: &uuid}},
		Capacity:         map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}},
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: name, Counters: memorySlices(8)}},
	}
}

// partitionDevice is a partition of a GPU, of a number of memory slices.
func partitionDevice(name, gpu, parent, profile, memory string, slices int) resourceapi.Device {
	d := gpuDevice(name, "", memory)
	d.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type": {StringValue: new("mig")}, "parentUUID": {StringValue: &parent}, "profile": {StringValue: &profile},
	}
	d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: gpu, Counters: memorySlices(slices)}}
	return d
}

func memorySlices(n int) map[string]resourceapi.Counter {
	counters := map[string]resourceapi.Counter{}
	for i := range n {
		counters[fmt.Sprintf("memory-slice-%d", i)] = resourceapi.Counter{Value: resource.MustParse("1")}
	}
	return counters
}

func sliceOf(node string, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: testDriver, NodeName: &node, Devices: devices,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for _, d := range devices {
		if d.Attributes["type"].StringValue != nil && *d.Attributes["type"].StringValue == "gpu" {
			slice.Spec.SharedCounters = append(slice.Spec.SharedCounters, resourceapi.CounterSet{Name: d.Name, Counters: memorySlices(8)})
		}
	}
	return slice
}

// claimOn is a claim that has a device of a node, or a share of it, since some time ago,
// and is reserved for pods.
func claimOn(namespace, name, node, device, memory string, since time.Duration, pods ...*corev1.Pod) *resourceapi.ResourceClaim {
	result := resourceapi.DeviceRequestAllocationResult{
		Request: "gpu", Driver: testDriver, Pool: node, Device: device, ShareID: new(types.UID("share-" + name)),
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)},
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("claim-" + name)}}
	claim.Status.Allocation = &resourceapi.AllocationResult{
		Devices:             resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
		AllocationTimestamp: &metav1.Time{Time: noon.Add(-since)},
	}
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	return claim
}

// podWith is a running pod in which containers use a claim: "main", "init:prepare" or
// "sidecar:proxy".
func podWith(namespace, name, claim string, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("pod-" + name)}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	pod.Status.Phase = corev1.PodRunning
	for _, text := range containers {
		kind, container, special := strings.Cut(text, ":")
		if !special {
			container = text
		}
		c := corev1.Container{Name: container, Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}
		if kind == "sidecar" {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		if special {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

// madeBy makes a controller the one that made the object.
func madeBy[T metav1.Object](object T, apiVersion, kind, name string) T {
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(kind + "-" + name), Controller: new(true)}})
	return object
}

const (
	uuidA = "GPU-4f3a1b2c-0000-4000-8000-000000000001"
	uuidB = "GPU-0badcafe-0000-4000-8000-000000000002"
	uuidC = "GPU-cccccccc-0000-4000-8000-000000000003"
)

// testObjects are a cluster of three GPUs on two nodes: one shared, one partitioned, one
// held as a whole.
func testObjects() []runtime.Object {
	train := madeBy(podWith("team-a", "train-28-x2x9z", "train", "init:prepare", "main"), "batch/v1", "Job", "train-28")
	embed1 := madeBy(podWith("team-a", "embed-6f7d9c-8kqpl", "embed", "server"), "apps/v1", "ReplicaSet", "embed-6f7d9c")
	embed2 := madeBy(podWith("team-a", "embed-6f7d9c-x7k2p", "embed", "server"), "apps/v1", "ReplicaSet", "embed-6f7d9c")
	embed2.Status.Phase = corev1.PodPending
	for _, pod := range []*corev1.Pod{embed1, embed2} {
		pod.Labels = map[string]string{"pod-template-hash": "6f7d9c"}
	}
	small := podWith("team-b", "small", "small", "sidecar:proxy", "server")
	debug := podWith("ops", "debug", "look", "shell")
	debug.DeletionTimestamp, debug.Finalizers = &metav1.Time{Time: noon}, []string{"example.com/stay"}
	look := claimOn("ops", "look", "node-a", "gpu-4f3a1b2c", "0", time.Minute, debug)
	look.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	other := claimOn("team-b", "other", "node-a", "gpu-4f3a1b2c", "1Gi", time.Minute)
	other.Status.Allocation.Devices.Results[0].Driver = "gpu.example.com"
	idle := podWith("team-b", "web", "none", "web")
	idle.Spec.ResourceClaims = nil
	return []runtime.Object{
		sliceOf("node-b", gpuDevice("gpu-cccccccc", uuidC, "80Gi")),
		sliceOf("node-a",
			partitionDevice("gpu-0badcafe-mig-1g-5gb-0", "gpu-0badcafe", uuidB, "1g.5gb", "4864Mi", 1),
			partitionDevice("gpu-0badcafe-mig-3g-20gb-4", "gpu-0badcafe", uuidB, "3g.20gb", "19968Mi", 4),
			gpuDevice("gpu-0badcafe", uuidB, "40Gi"), gpuDevice("gpu-4f3a1b2c", uuidA, "40Gi")),
		train, embed1, embed2, small, debug, idle, look, other,
		claimOn("team-a", "train", "node-b", "gpu-cccccccc", "80Gi", 3*time.Hour, train),
		claimOn("team-a", "embed", "node-a", "gpu-4f3a1b2c", "10Gi", 5*time.Minute, embed1, embed2),
		claimOn("team-b", "notebook", "node-a", "gpu-4f3a1b2c", "20Gi", 12*24*time.Hour),
		claimOn("team-b", "small", "node-a", "gpu-0badcafe-mig-1g-5gb-0", "4864Mi", 90*time.Second, small),
		&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "waiting", UID: "claim-waiting"}},
	}
}

// fakeCluster is a cluster with these objects and no ReplicaSets and Jobs.
func fakeCluster(t *testing.T, objects ...runtime.Object) *clients {
	t.Helper()
	return &clients{typed: fake.NewClientset(objects...), metadata: fakeMetadata(t)}
}

func fakeMetadata(t *testing.T, objects ...runtime.Object) *metadatafake.FakeMetadataClient {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return metadatafake.NewSimpleMetadataClient(scheme, objects...)
}

// around are surroundings with a cluster, without a terminal, at noon.
func around(c *clients) surroundings {
	return surroundings{
		connect:  func(_, _ string) (*clients, error) { return c, nil },
		dial:     func(string) (report.NodeClient, error) { return nil, errors.New("no socket here") },
		now:      func() time.Time { return noon },
		terminal: func(io.Writer) (int, int, bool) { return 0, 0, false },
	}
}

// owners runs the command in its surroundings.
func owners(ctx context.Context, s surroundings, out io.Writer, args ...string) (stderr string, err error) {
	var said bytes.Buffer
	root := newRootCommand("apportion")
	for _, c := range root.Commands() {
		if c.Name() == "owners" {
			root.RemoveCommand(c)
		}
	}
	root.AddCommand(newOwnersCommandIn("apportion", s))
	root.SetArgs(append([]string{"owners"}, args...))
	root.SetOut(out)
	root.SetErr(&said)
	err = root.ExecuteContext(ctx)
	return said.String(), err
}

// printed runs the command, which must succeed.
func printed(t *testing.T, s surroundings, args ...string) (stdout, stderr string) {
	t.Helper()
	var out bytes.Buffer
	stderr, err := owners(t.Context(), s, &out, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String(), stderr
}

func check(t *testing.T, got, want string) {
	t.Helper()
	want = strings.TrimPrefix(want, "\n")
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s\n%s", got, want, cmp.Diff(want, got))
	}
}

func TestOwnersTable(t *testing.T) {
	got, stderr := printed(t, around(fakeCluster(t, testObjects()...)))
	check(t, got, `
NODE     GPU            PART       MEMORY   GPUS    NAMESPACE   CLAIM      POD                  STATE         CONTAINERS             AGE
node-a   gpu-0badcafe   1g.5gb@0   4864Mi   0.125   team-b      small      small                Running       sidecar:proxy,server   90s
node-a   gpu-4f3a1b2c   share      10Gi     0.25    team-a      embed      embed-6f7d9c-8kqpl   Running       server                 5m
node-a   gpu-4f3a1b2c   share      10Gi     0.25    team-a      embed      embed-6f7d9c-x7k2p   Waiting       server                 5m
node-a   gpu-4f3a1b2c   admin      -        -       ops         look       debug                Terminating   shell                  60s
node-a   gpu-4f3a1b2c   share      20Gi     0.5     team-b      notebook   -                    -             -                      12d
node-b   gpu-cccccccc   whole      80Gi     1       team-a      train      train-28-x2x9z       Running       init:prepare,main      3h
`)
	if stderr != "" {
		t.Errorf("stderr: %s", stderr)
	}
}

func TestOwnersWide(t *testing.T) {
	got, _ := printed(t, around(fakeCluster(t, testObjects()...)), "-o", "wide", "--pod", "embed-6f7d9c-8kqpl")
	check(t, got, `
NODE     GPU            PART    MEMORY   GPUS   NAMESPACE   CLAIM   POD                  STATE     CONTAINERS   AGE   WORKLOAD           REQUEST   DEVICE         UUID                                       PARENT UUID   SHARE ID      CLAIM UID     POD UID
node-a   gpu-4f3a1b2c   share   10Gi     0.25   team-a      embed   embed-6f7d9c-8kqpl   Running   server       5m    Deployment/embed   gpu       gpu-4f3a1b2c   GPU-4f3a1b2c-0000-4000-8000-000000000001   -             share-embed   claim-embed   pod-embed-6f7d9c-8kqpl
node-a   gpu-4f3a1b2c   share   10Gi     0.25   team-a      embed   embed-6f7d9c-x7k2p   Waiting   server       5m    Deployment/embed   gpu       gpu-4f3a1b2c   GPU-4f3a1b2c-0000-4000-8000-000000000001   -             share-embed   claim-embed   pod-embed-6f7d9c-x7k2p
`)
	got, _ = printed(t, around(fakeCluster(t, testObjects()...)), "-o", "wide", "--gpu", "gpu-0badcafe")
	check(t, got, `
NODE     GPU            PART       MEMORY   GPUS    NAMESPACE   CLAIM   POD     STATE     CONTAINERS             AGE   WORKLOAD   REQUEST   DEVICE                      UUID   PARENT UUID                                SHARE ID      CLAIM UID     POD UID
node-a   gpu-0badcafe   1g.5gb@0   4864Mi   0.125   team-b      small   small   Running   sidecar:proxy,server   90s   -          gpu       gpu-0badcafe-mig-1g-5gb-0   -      GPU-0badcafe-0000-4000-8000-000000000002   share-small   claim-small   pod-small
`)
}

// Below each other is what does not fit beside each other.
func TestOwnersInANarrowTerminal(t *testing.T) {
	s := around(fakeCluster(t, testObjects()...))
	s.terminal = func(io.Writer) (int, int, bool) { return 80, 24, true }
	got, _ := printed(t, s)
	check(t, got, `
NODE  GPU
  PART      MEMORY  GPUS   AGE  CLAIM
    POD  CONTAINERS
node-a  gpu-0badcafe
  1g.5gb@0  4864Mi  0.125  90s  team-b/small
    small  sidecar:proxy,server
node-a  gpu-4f3a1b2c
  share     10Gi    0.25   5m   team-a/embed
    embed-6f7d9c-8kqpl  server
    embed-6f7d9c-x7k2p  Waiting  server
  admin     -       -      60s  ops/look
    debug  Terminating  shell
  share     20Gi    0.5    12d  team-b/notebook
    no pod
node-b  gpu-cccccccc
  whole     80Gi    1      3h   team-a/train
    train-28-x2x9z  init:prepare,main
`)
	s.terminal = func(io.Writer) (int, int, bool) { return 40, 24, true }
	got, _ = printed(t, s, "-n", "team-b")
	check(t, got, `
NODE  GPU
  PART      MEMORY  GPUS   AGE
    CLAIM
      POD  CONTAINERS
node-a  gpu-0badcafe
  1g.5gb@0  4864Mi  0.125  90s
    team-b/small
      small  sidecar:proxy,server
node-a  gpu-4f3a1b2c
  share     20Gi    0.5    12d
    team-b/notebook
      no pod
`)
	s.terminal = func(io.Writer) (int, int, bool) { return 160, 24, true }
	if got, _ := printed(t, s); strings.Count(got, "\n") != 7 {
		t.Errorf("in a wide terminal it is\n%s", got)
	}
}

func TestOwnersAsJSONAndYAML(t *testing.T) {
	s := around(fakeCluster(t, testObjects()...))
	var fromJSON, fromYAML report.List
	text, _ := printed(t, s, "-o", "json")
	if err := json.Unmarshal([]byte(text), &fromJSON); err != nil {
		t.Fatal(err)
	}
	text, _ = printed(t, s, "-o", "yaml")
	if err := yaml.UnmarshalStrict([]byte(text), &fromYAML); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
		t.Errorf("JSON and YAML differ: %s", diff)
	}
	var claims []string
	for _, owner := range fromJSON.Owners {
		claims = append(claims, owner.Claim.Name)
	}
	if got := fmt.Sprint(claims); got != "[small embed look notebook train]" {
		t.Errorf("owners of %s", got)
	}
	train := fromJSON.Owners[4]
	if train.Device.UUID != uuidC || train.Consumers[0].Containers[0].Kind != "init" || train.Device.Fraction != 1 {
		t.Errorf("%+v", train)
	}
}

func TestOwnersOfAnEmptyCluster(t *testing.T) {
	for _, test := range []struct {
		args           []string
		stdout, stderr string
	}{
		{nil, "", "Nobody holds a GPU\n"},
		{[]string{"-o", "wide", "-n", "team-a"}, "", "Nobody holds a GPU in namespace team-a\n"},
		{[]string{"-o", "json"}, "{\n  \"owners\": []\n}\n", ""},
		{[]string{"-o", "yaml"}, "owners: []\n", ""},
		{[]string{"--by", "namespace"}, `
NAMESPACE   GPUS   SHARE   CLAIMS   PODS
USED        0      -       0        0
FREE        0      -
TOTAL       0      -
`, ""},
		{[]string{"--by", "node"}, `
NODE    GPUS   USED   FREE   SHARE   CLAIMS   PODS
TOTAL   0      0      0      -       0        0
`, ""},
		{[]string{"--by", "workload", "-o", "json"}, `
{
  "by": "workload",
  "gpus": 0,
  "used": 0,
  "free": 0,
  "groups": []
}
`, ""},
	} {
		stdout, stderr := printed(t, around(fakeCluster(t)), test.args...)
		if stdout != strings.TrimPrefix(test.stdout, "\n") || stderr != test.stderr {
			t.Errorf("%v: %q, %q", test.args, stdout, stderr)
		}
	}
}
