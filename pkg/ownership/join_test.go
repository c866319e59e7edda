package ownership

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// joinTest is a table entry: objects are YAML documents.
type joinTest struct {
	name   string
	held   []Owner
	claims string
	pods   string
	want   []string
}

func (test joinTest) run(t *testing.T) {
	t.Run(test.name, func(t *testing.T) {
		owners := Join(test.held, parseClaims(t, test.claims), parsePods(t, test.pods), nil)
		if diff := cmp.Diff(test.want, say(owners)); diff != "" {
			t.Errorf("owners (-want +got):\n%s", diff)
		}
	})
}

// onePod reserves claim c (uid c1) for pod p (uid p1).
const onePod = `
metadata: {name: c, uid: c1}
status: {reservedFor: [{resource: pods, name: p, uid: p1}]}
`

func TestContainersOfAPod(t *testing.T) {
	for _, test := range []joinTest{
		{
			name: "of every kind, and only those that use it", held: holding("c c1 gpu gpu-1"), claims: onePod,
			pods: `
metadata: {name: p, uid: p1}
spec:
  resourceClaims: [{name: mine, resourceClaimName: c}, {name: other, resourceClaimName: d}]
  initContainers:
  - {name: fetch, resources: {claims: [{name: mine}]}}
  - {name: unrelated}
  - {name: agent, restartPolicy: Always, resources: {claims: [{name: mine}]}}
  containers:
  - {name: b-serve, resources: {claims: [{name: other}, {name: mine}]}}
  - {name: proxy, resources: {claims: [{name: other}]}}
  - {name: a-train, resources: {claims: [{name: mine}]}}
  ephemeralContainers:
  - {name: look, resources: {claims: [{name: mine}]}}
status:
  phase: Running
  initContainerStatuses:
  - {name: fetch, containerID: containerd://i0, state: {terminated: {startedAt: "2026-01-01T00:00:00Z", exitCode: 0}}}
  - {name: agent, containerID: containerd://i2, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}
  containerStatuses:
  - {name: a-train, containerID: cri-o://r3, state: {waiting: {reason: CrashLoopBackOff}}}
  - {name: b-serve, containerID: containerd://r1, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}
`,
			want: []string{"gpu-1 gpu: p(p1)[Running] init:fetch sidecar:agent=i2 regular:b-serve=r1 regular:a-train ephemeral:look"},
		}, {
			name: "two requests of one claim used by different containers",
			held: holding("c c1 train gpu-1", "c c1 eval gpu-2", "c c1 spare gpu-3"), claims: onePod,
			pods: `
metadata: {name: p, uid: p1}
spec:
  resourceClaims: [{name: mine, resourceClaimName: c}]
  containers:
  - {name: x, resources: {claims: [{name: mine, request: train}]}}
  - {name: v, resources: {claims: [{name: mine, request: eval}]}}
  - {name: z, resources: {claims: [{name: mine, request: eval}, {name: mine, request: train}]}}
`,
			want: []string{
				"gpu-1 train: p(p1)[Waiting] regular:x regular:z",
				"gpu-2 eval: p(p1)[Waiting] regular:v regular:z",
				"gpu-3 spare: p(p1)[Waiting]",
			},
		}, {
			name: "the alternative of a prioritized list that was allocated",
			held: holding("c c1 gpu/large gpu-1", "c c1 gpus/small gpu-2"), claims: onePod,
			pods: `
metadata: {name: p, uid: p1}
spec:
  resourceClaims: [{name: mine, resourceClaimName: c}]
  containers:
  - {name: one, resources: {claims: [{name: mine, request: gpu}]}}
  - {name: all, resources: {claims: [{name: mine}]}}
`,
			want: []string{"gpu-1 gpu/large: p(p1)[Waiting] regular:one regular:all", "gpu-2 gpus/small: p(p1)[Waiting] regular:all"},
		},
	} {
		test.run(t)
	}
}

func TestContainersByWhatAClaimWasMadeOf(t *testing.T) {
	for _, test := range []joinTest{
		{
			name: "a claim made of a template",
			held: holding("p-mine-x7 c1 gpu gpu-1"),
			claims: `
metadata: {name: p-mine-x7, uid: c1}
status: {reservedFor: [{resource: pods, name: p, uid: p1}]}
`,
			pods: `
metadata: {name: p, uid: p1}
spec:
  resourceClaims: [{name: mine, resourceClaimTemplateName: t}, {name: second, resourceClaimTemplateName: t}, {name: none, resourceClaimTemplateName: t}]
  containers:
  - {name: one, resources: {claims: [{name: mine}]}}
  - {name: two, resources: {claims: [{name: second}]}}
  - {name: three, resources: {claims: [{name: none}]}}
status:
  resourceClaimStatuses: [{name: second, resourceClaimName: p-second-k2}, {name: none}, {name: mine, resourceClaimName: p-mine-x7}]
`,
			want: []string{"gpu-1 gpu: p(p1)[Waiting] regular:one"},
		}, {
			name: "a claim that the pod has by two names", held: holding("c c1 a gpu-1", "c c1 b gpu-2"), claims: onePod,
			pods: `
metadata: {name: p, uid: p1}
spec:
  resourceClaims: [{name: m1, resourceClaimName: c}, {name: m2, resourceClaimName: c}]
  containers:
  - {name: one, resources: {claims: [{name: m1, request: a}]}}
  - {name: two, resources: {claims: [{name: m2, request: a}, {name: m1, request: b}]}}
`,
			want: []string{"gpu-1 a: p(p1)[Waiting] regular:one regular:two", "gpu-2 b: p(p1)[Waiting] regular:two"},
		}, {
			name: "a pod that reserves a device that no container uses", held: holding("c c1 gpu gpu-1"), claims: onePod,
			pods: `
metadata: {name: p, uid: p1}
spec:
  resourceClaims: [{name: mine, resourceClaimName: c}]
  containers: [{name: one}]
`,
			want: []string{"gpu-1 gpu: p(p1)[Waiting]"},
		}, {
			name: "extended resources, also of init containers",
			held: holding("p-extended-resources-2x c1 container-0-request-0 gpu-1", "p-extended-resources-2x c1 container-2-request-0 gpu-2"),
			claims: `
metadata: {name: p-extended-resources-2x, uid: c1}
status: {reservedFor: [{resource: pods, name: p, uid: p1}]}
`,
			pods: `
metadata: {name: p, uid: p1}
spec:
  initContainers: [{name: warm, resources: {limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1}}}]
  containers:
  - {name: log}
  - {name: serve, resources: {limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1}}}
  - {name: more, resources: {limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1}}}
status:
  extendedResourceClaimStatus:
    resourceClaimName: p-extended-resources-2x
    requestMappings:
    - {containerName: serve, resourceName: nvidia.com/gpu, requestName: container-2-request-0}
    - {containerName: more, resourceName: nvidia.com/gpu, requestName: container-0-request-0}
    - {containerName: warm, resourceName: nvidia.com/gpu, requestName: container-2-request-0}
`,
			want: []string{
				"gpu-1 container-0-request-0: p(p1)[Waiting] regular:more",
				"gpu-2 container-2-request-0: p(p1)[Waiting] init:warm regular:serve",
			},
		},
	} {
		test.run(t)
	}
}

func TestPodsOfAClaim(t *testing.T) {
	const group = `
metadata: {name: c, uid: c1}
status: {reservedFor: [{apiGroup: scheduling.k8s.io, resource: podgroups, name: g, uid: g1}]}
`
	for _, test := range []joinTest{
		{
			name: "shared by several, in one order", held: holding("c c1 gpu gpu-1"),
			claims: `
metadata: {name: c, uid: c1}
status: {reservedFor: [{resource: pods, name: z, uid: p3}, {resource: pods, name: a, uid: p2}, {resource: pods, name: b, uid: p1}]}
`,
			pods: `
metadata: {name: z, uid: p3}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
---
metadata: {name: b, uid: p1}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: v, resources: {claims: [{name: mine}]}}]}
---
metadata: {name: a, uid: p2}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}]}
---
metadata: {name: unrelated, uid: p4}
`,
			want: []string{"gpu-1 gpu: a(p2)[Waiting]; b(p1)[Waiting] regular:v; z(p3)[Waiting] regular:x"},
		}, {
			name: "reserved for a PodGroup", held: holding("c c1 gpu gpu-1", "c c1 gpu gpu-2"), claims: group,
			pods: `
metadata: {name: b, uid: p1}
spec: {schedulingGroup: {podGroupName: g}, resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
---
metadata: {name: a, uid: p2}
spec: {schedulingGroup: {podGroupName: g}, resourceClaims: [{name: ours, resourceClaimTemplateName: t}], containers: [{name: v, resources: {claims: [{name: ours}]}}]}
status: {resourceClaimStatuses: [{name: ours, resourceClaimName: c}]}
---
metadata: {name: in-the-group-with-another-claim, uid: p3}
spec: {schedulingGroup: {podGroupName: g}, resourceClaims: [{name: mine, resourceClaimName: d}]}
---
metadata: {name: in-the-group-with-a-stray-status, uid: p6}
spec: {schedulingGroup: {podGroupName: g}, resourceClaims: [{name: mine, resourceClaimName: d}]}
status: {resourceClaimStatuses: [{name: mine, resourceClaimName: c}, {name: none, resourceClaimName: c}]}
---
metadata: {name: in-another-group, uid: p4}
spec: {schedulingGroup: {podGroupName: h}, resourceClaims: [{name: mine, resourceClaimName: c}]}
---
metadata: {name: in-another-namespace, namespace: other, uid: p5}
spec: {schedulingGroup: {podGroupName: g}, resourceClaims: [{name: mine, resourceClaimName: c}]}
`,
			want: []string{
				"gpu-1 gpu: a(p2)[Waiting] regular:v; b(p1)[Waiting] regular:x",
				"gpu-2 gpu: a(p2)[Waiting] regular:v; b(p1)[Waiting] regular:x",
			},
		}, {
			name: "reserved for a PodGroup and for one of its pods", held: holding("c c1 gpu gpu-1"),
			claims: `
metadata: {name: c, uid: c1}
status: {reservedFor: [{apiGroup: scheduling.k8s.io, resource: podgroups, name: g, uid: g1}, {resource: pods, name: p, uid: p1}]}
`,
			pods: `
metadata: {name: p, uid: p1}
spec: {schedulingGroup: {podGroupName: g}, resourceClaims: [{name: mine, resourceClaimName: c}]}
`,
			want: []string{"gpu-1 gpu: p(p1)[Waiting]"},
		}, {
			name: "reserved for a kind of tomorrow: who has started", held: holding("c c1 gpu gpu-1"),
			claims: `
metadata: {name: c, uid: c1}
status: {reservedFor: [{apiGroup: example.com, resource: gangs, name: g, uid: g1}]}
`,
			pods: `
metadata: {name: a, uid: p1}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}]}
status: {phase: Running}
---
metadata: {name: b, uid: p2}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}]}
`,
			want: []string{"gpu-1 gpu: a(p1)[Running]"},
		}, {
			name: "none that are there", held: holding("c c1 gpu gpu-1"), claims: onePod,
			want: []string{"gpu-1 gpu: p(p1)[Gone]"},
		}, {
			name: "the same name with another UID", held: holding("c c1 gpu gpu-1"), claims: onePod,
			pods: `
metadata: {name: p, uid: p2}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
status: {phase: Running}
`,
			want: []string{"gpu-1 gpu: p(p1)[Gone]"},
		}, {
			name: "held by a claim that is not reserved any more", held: holding("c c1 gpu gpu-1"),
			claims: `metadata: {name: c, uid: c1}`,
			pods: `
metadata: {name: p, uid: p1}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}]}
status: {phase: Succeeded}
`,
			want: []string{"gpu-1 gpu:"},
		}, {
			name:   "no owner for a claim that holds nothing",
			held:   holding("c c1 gpu gpu-1"),
			claims: onePod + "\n---\nmetadata: {name: d, uid: c2}\nstatus: {reservedFor: [{resource: pods, name: p, uid: p1}]}\n",
			pods:   "metadata: {name: p, uid: p1}\nspec: {resourceClaims: [{name: m, resourceClaimName: c}, {name: n, resourceClaimName: d}]}\n",
			want:   []string{"gpu-1 gpu: p(p1)[Waiting]"},
		},
	} {
		test.run(t)
	}
}

func TestConsumersHaveThePodsLabelsAndContainersThatStarted(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p1", Labels: map[string]string{"app": "train"}},
		Spec:       corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "mine", ResourceClaimName: ptr.To("c")}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "runs", ContainerID: "containerd://r1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: "restarts", ContainerID: "containerd://r2", RestartCount: 1, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
			{Name: "ended", ContainerID: "containerd://r3", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.Unix(1, 0)}}},
			{Name: "waits", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
		}},
	}
	for _, name := range []string{"runs", "restarts", "ended", "waits", "unreported"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: name, Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "mine"}}},
		})
	}
	held := []Owner{{Device: Device{Name: "gpu-1"}, Claim: ClaimRef{Namespace: "ns", Name: "c", UID: "c1"}, Request: "gpu"}}
	owners := Join(held, nil, []*corev1.Pod{pod}, nil)
	if len(owners) != 1 || len(owners[0].Consumers) != 1 {
		t.Fatalf("owners are %+v", owners)
	}
	got := owners[0].Consumers[0]
	if len(got.Labels) != 1 || got.Labels["app"] != "train" {
		t.Errorf("labels are %v", got.Labels)
	}
	want := []Container{
		{Name: "runs", Kind: RegularContainer, ID: "r1", Started: true},
		{Name: "restarts", Kind: RegularContainer, Started: true},
		{Name: "ended", Kind: RegularContainer, Started: true},
		{Name: "waits", Kind: RegularContainer},
		{Name: "unreported", Kind: RegularContainer},
	}
	if !slices.Equal(got.Containers, want) {
		t.Errorf("containers are %+v, want %+v", got.Containers, want)
	}
}

func TestPodStates(t *testing.T) {
	for _, test := range []struct {
		name, pod string
		want      PodState
	}{
		{"just made", `{}`, Waiting},
		{"with containers that wait", `{status: {phase: Pending, containerStatuses: [{name: a, state: {waiting: {reason: ContainerCreating}}}]}}`, Waiting},
		{"with a container that could not start", `{status: {phase: Pending, containerStatuses: [{name: a, containerID: containerd://1, state: {terminated: {reason: StartError, exitCode: 128, startedAt: "1970-01-01T00:00:00Z"}}}]}}`, Waiting},
		{"with a container that could not be created", `{status: {phase: Pending, containerStatuses: [{name: a, state: {terminated: {reason: ContainerStatusUnknown, exitCode: 137}}}]}}`, Waiting},
		{"with an init container that runs", `{status: {phase: Pending, initContainerStatuses: [{name: a, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}]}}`, Running},
		{"with an init container that has ended", `{status: {phase: Pending, initContainerStatuses: [{name: a, state: {terminated: {exitCode: 0, startedAt: "2026-01-01T00:00:00Z"}}}]}}`, Running},
		{"with a container that crashes", `{status: {phase: Pending, containerStatuses: [{name: a, restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}}]}}`, Running},
		{"with a container that has crashed", `{status: {phase: Pending, containerStatuses: [{name: a, state: {waiting: {}}, lastState: {terminated: {exitCode: 1, startedAt: "2026-01-01T00:00:00Z"}}}]}}`, Running},
		{"running", `{status: {phase: Running}}`, Running},
		{"deleted while waiting", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {phase: Pending}}`, Terminating},
		{"deleted while running", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {phase: Running}}`, Terminating},
		{"succeeded", `{status: {phase: Succeeded}}`, Gone},
		{"failed", `{status: {phase: Failed}}`, Gone},
		{"failed and deleted", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {phase: Failed}}`, Gone},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods := parsePods(t, test.pod)
			pods[0].Name, pods[0].UID = "p", "p1"
			owners := Join(holding("c c1 gpu gpu-1"), parseClaims(t, onePod), pods, nil)
			if got := owners[0].Consumers[0].State; got != test.want {
				t.Errorf("state is %s, want %s", got, test.want)
			}
		})
	}
}

// While the API server cannot be reached after a restart, the node knows what it has
// prepared and the kubelet's pods.
func TestPodsDecideWhereClaimsAreUnknown(t *testing.T) {
	for _, test := range []joinTest{
		{
			name: "by name, once they have started", held: holding("c c1 gpu gpu-1"),
			pods: `
metadata: {name: started, uid: p1}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
status: {phase: Running, containerStatuses: [{name: x, containerID: containerd://r1, state: {running: {}}}]}
---
metadata: {name: only-names-it, uid: p2}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
status: {phase: Pending}
---
metadata: {name: unrelated, uid: p3}
spec: {resourceClaims: [{name: mine, resourceClaimName: d}]}
status: {phase: Running}
---
metadata: {name: elsewhere, namespace: other, uid: p4}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}]}
status: {phase: Running}
---
metadata: {name: ending, uid: p5, deletionTimestamp: "2026-01-01T00:00:00Z"}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}]}
status: {phase: Running}
`,
			want: []string{"gpu-1 gpu: ending(p5)[Terminating]; started(p1)[Running] regular:x=r1"},
		}, {
			name: "of a template, while they wait too", held: holding("p-mine-x7 c1 gpu gpu-1"),
			pods: `
metadata: {name: p, uid: p1}
spec: {resourceClaims: [{name: mine, resourceClaimTemplateName: t}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
status: {phase: Pending, resourceClaimStatuses: [{name: mine, resourceClaimName: p-mine-x7}]}
`,
			want: []string{"gpu-1 gpu: p(p1)[Waiting] regular:x"},
		}, {
			name: "for extended resources, while they wait too", held: holding("p-extended c1 r0 gpu-1"),
			pods: `
metadata: {name: p, uid: p1}
spec: {initContainers: [{name: w}], containers: [{name: x}, {name: v}]}
status: {phase: Pending, extendedResourceClaimStatus: {resourceClaimName: p-extended, requestMappings: [
  {containerName: v, resourceName: nvidia.com/gpu, requestName: r0}, {containerName: w, resourceName: nvidia.com/gpu, requestName: r0}]}}
`,
			want: []string{"gpu-1 r0: p(p1)[Waiting] init:w regular:v"},
		}, {
			name: "by two names, once", held: holding("c c1 gpu gpu-1"),
			pods: `
metadata: {name: p, uid: p1}
spec: {resourceClaims: [{name: a, resourceClaimName: c}, {name: b, resourceClaimName: d}, {name: e, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: e}]}}]}
status: {phase: Running}
`,
			want: []string{"gpu-1 gpu: p(p1)[Running] regular:x"},
		}, {
			name: "some claims known", held: holding("c c1 gpu gpu-1", "d c2 gpu gpu-2"), claims: onePod,
			pods: `
metadata: {name: p, uid: p1}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}]}
---
metadata: {name: q, uid: p2}
spec: {resourceClaims: [{name: mine, resourceClaimName: d}]}
status: {phase: Running}
`,
			want: []string{"gpu-1 gpu: p(p1)[Waiting]", "gpu-2 gpu: q(p2)[Running]"},
		},
	} {
		test.run(t)
	}
}

func TestWithoutPodsNobodyIsSaidToBeGone(t *testing.T) {
	owners := Join(holding("c c1 gpu gpu-1"), parseClaims(t, onePod), nil, nil)
	if diff := cmp.Diff([]string{"gpu-1 gpu:"}, say(owners)); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

func TestNothingHeldIsAnEmptyList(t *testing.T) {
	if owners := Join(nil, parseClaims(t, onePod), parsePods(t, "metadata: {name: p, uid: p1}"), nil); owners == nil || len(owners) != 0 {
		t.Errorf("owners are %#v, want an empty list that is not nil", owners)
	}
}
