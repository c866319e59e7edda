package main

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"apportion.dev/apportion/pkg/ownership/report"
)

func TestOwnersByNamespace(t *testing.T) {
	got, stderr := printed(t, around(fakeCluster(t, testObjects()...)), "--by", "namespace")
	// Of 3 GPUs, team-a has one and a quarter, team-b half of one and an eighth.
	check(t, got, `
NAMESPACE   GPUS    SHARE   CLAIMS   PODS
team-a      1.25    41.7%   2        3
team-b      0.625   20.8%   2        1
ops         0       0.0%    1        1
USED        1.875   62.5%   5        5
FREE        1.125   37.5%
TOTAL       3       100.0%
`)
	if stderr != "" {
		t.Errorf("stderr: %s", stderr)
	}
}

// A node that offers no partitions publishes no counters, by which others are counted.
func TestAnAdministratorsPartitionWithNoPartitionsCountsInOwners(t *testing.T) {
	partition := partitionDevice("gpu-0badcafe-mig-3g-20gb-4", "gpu-0badcafe", uuidB, "3g.20gb", "19968Mi", 4)
	partition.ConsumesCounters = nil
	slice := sliceOf("node-a", partition)
	claim := claimOn("team-b", "c", "node-a", partition.Name, "19968Mi", 0)
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: testDriver, Pool: "node-a", Device: partition.Name, ShareID: new("share-c"),
		Data: &runtime.RawExtension{Raw: []byte(`{"uuid":"MIG-given","parentUUID":"` + uuidB + `","profile":"3g.20gb","partOfGPU":0.5}`)},
	}}
	got, stderr := printed(t, around(fakeCluster(t, slice, claim)), "--by", "namespace")
	check(t, got, `
NAMESPACE   GPUS   SHARE   CLAIMS   PODS
team-b      0.5    50.0%   1        0
USED        0.5    50.0%   1        0
FREE        0.5    50.0%
TOTAL       1      100.0%
`)
	if stderr != "" {
		t.Errorf("stderr: %s", stderr)
	}
}

func TestOwnersByWorkload(t *testing.T) {
	got, _ := printed(t, around(fakeCluster(t, testObjects()...)), "--by", "workload")
	check(t, got, `
NAMESPACE   WORKLOAD           GPUS    SHARE   CLAIMS   PODS
team-a      Job/train-28       1       33.3%   1        1
team-b      -                  0.5     16.7%   1        0
team-a      Deployment/embed   0.25    8.3%    1        2
team-b      Pod/small          0.125   4.2%    1        1
ops         Pod/debug          0       0.0%    1        1
USED                           1.875   62.5%   5        5
FREE                           1.125   37.5%
TOTAL                          3       100.0%
`)
}

func TestOwnersByNode(t *testing.T) {
	empty := sliceOf("node-c", gpuDevice("gpu-dddddddd", "GPU-dddddddd-0000-4000-8000-000000000004", "80Gi"))
	got, _ := printed(t, around(fakeCluster(t, append(testObjects(), empty)...)), "--by", "node", "-o", "wide")
	check(t, got, `
NODE     GPUS   USED    FREE    SHARE    CLAIMS   PODS
node-a   2      0.875   1.125   43.8%    4        4
node-b   1      1       0       100.0%   1        1
node-c   1      0       1       0.0%     0        0
TOTAL    4      1.875   2.125   46.9%    5        5
`)
}

func TestOwnersByNodeOfOneNode(t *testing.T) {
	got, _ := printed(t, around(fakeCluster(t, testObjects()...)), "--by", "node", "--node", "node-b")
	check(t, got, `
NODE     GPUS   USED   FREE   SHARE    CLAIMS   PODS
node-b   1      1      0      100.0%   1        1
TOTAL    1      1      0      100.0%   1        1
`)
}

// What other namespaces hold is not read, so that it is not known what is free.
func TestOwnersByOfANamespace(t *testing.T) {
	s := around(fakeCluster(t, testObjects()...))
	got, _ := printed(t, s, "--by", "namespace", "-n", "team-b")
	check(t, got, `
NAMESPACE   GPUS    SHARE   CLAIMS   PODS
team-b      0.625   20.8%   2        1
USED        0.625   20.8%   2        1
FREE        -       -
TOTAL       3       100.0%
`)
	got, _ = printed(t, s, "--by", "node", "-n", "team-b")
	check(t, got, `
NODE     GPUS   USED    FREE   SHARE   CLAIMS   PODS
node-a   2      0.625   -      31.2%   2        1
node-b   1      0       -      0.0%    0        0
TOTAL    3      0.625   -      20.8%   2        1
`)
}

func TestOwnersByAsJSON(t *testing.T) {
	text, _ := printed(t, around(fakeCluster(t, testObjects()...)), "--by", "node", "-o", "json")
	var got report.Usage
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := report.Usage{
		By: "node", GPUs: new(3), Used: 1.875, Free: new(1.125),
		Groups: []report.Group{
			{Node: "node-a", GPUs: new(2), Used: 0.875, Free: new(1.125), Share: new(0.4375), Claims: 4, Pods: 4},
			{Node: "node-b", GPUs: new(1), Used: 1, Free: new(0.0), Share: new(1.0), Claims: 1, Pods: 1},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(report.Usage{})); diff != "" {
		t.Error(diff)
	}
}

// A claim that several workloads use counts once, whoever uses it.
func TestWorkloadsOfOneClaimAddUp(t *testing.T) {
	one := madeBy(podWith("team-a", "one-0", "joint", "main"), "apps/v1", "StatefulSet", "one")
	two := madeBy(podWith("team-a", "one-1", "joint", "main"), "apps/v1", "StatefulSet", "one")
	other := podWith("team-a", "other", "joint", "main")
	got, _ := printed(t, around(fakeCluster(t,
		sliceOf("node-b", gpuDevice("gpu-cccccccc", uuidC, "80Gi")), one, two, other,
		claimOn("team-a", "joint", "node-b", "gpu-cccccccc", "80Gi", 0, one, two, other))), "--by", "workload")
	check(t, got, `
NAMESPACE   WORKLOAD          GPUS   SHARE    CLAIMS   PODS
team-a      Pod/other         0.5    50.0%    1        1
team-a      StatefulSet/one   0.5    50.0%    1        2
USED                          1      100.0%   1        3
FREE                          0      0.0%
TOTAL                         1      100.0%
`)
}

// A GPU that fell out of the slices is still held, and neither free nor over the total.
func TestUsageOfAGPUThatIsNotPublishedAnyMore(t *testing.T) {
	got, stderr := printed(t, around(fakeCluster(t,
		sliceOf("node-b", gpuDevice("gpu-cccccccc", uuidC, "80Gi")),
		claimOn("team-a", "lost", "node-b", "gpu-dddddddd", "80Gi", 0),
		claimOn("team-a", "here", "node-b", "gpu-cccccccc", "20Gi", 0))), "--by", "node")
	check(t, got, `
NODE     GPUS   USED   FREE   SHARE   CLAIMS   PODS
node-b   2      0.25   1.75   12.5%   2        0
TOTAL    2      0.25   1.75   12.5%   2        0
`)
	if want := "Not counted, as it is not known which part of a GPU they are: node-b/gpu-dddddddd\n"; stderr != want {
		t.Errorf("stderr: %q", stderr)
	}
}

func TestOwnersOfAnotherDriver(t *testing.T) {
	objects := []runtime.Object{sliceOf("node-a", gpuDevice("gpu-0", uuidA, "40Gi")), claimOn("team-a", "c", "node-a", "gpu-0", "10Gi", 0)}
	objects[0].(*resourceapi.ResourceSlice).Spec.Driver = "gpu.nvidia.com"
	objects[1].(*resourceapi.ResourceClaim).Status.Allocation.Devices.Results[0].Driver = "gpu.nvidia.com"
	s := around(fakeCluster(t, objects...))
	got, _ := printed(t, s, "--driver-name", "gpu.nvidia.com")
	check(t, got, `
NODE     GPU     PART    MEMORY   GPUS   NAMESPACE   CLAIM   POD   STATE   CONTAINERS   AGE
node-a   gpu-0   share   10Gi     0.25   team-a      c       -     -       -            0s
`)
	if got, stderr := printed(t, s); got != "" || stderr != "Nobody holds a GPU\n" {
		t.Errorf("of the default driver: %s%s", got, stderr)
	}
}
