package ownership

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// What anybody in a namespace can write must not make their pod an owner.
func TestWhoIsNoConsumer(t *testing.T) {
	const user = `
metadata: {name: p, uid: p1}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
status: {phase: Running}
---`
	const isUser = "p(p1)[Running] regular:x"
	for _, test := range []joinTest{
		{
			name: "a pod that names somebody else's claim", held: holding("c c1 gpu gpu-1"), claims: onePod,
			pods: user + `
metadata: {name: thief, uid: p2}
spec: {nodeName: node, resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
status: {phase: Pending}
`,
			want: []string{"gpu-1 gpu: " + isUser},
		}, {
			name: "a pod that says it is of a group", held: holding("c c1 gpu gpu-1"), claims: onePod,
			pods: user + `
metadata: {name: thief, uid: p2}
spec: {schedulingGroup: {podGroupName: p}, resourceClaims: [{name: mine, resourceClaimName: c}]}
`,
			want: []string{"gpu-1 gpu: " + isUser},
		}, {
			name: "a pod of another namespace with the same names", held: holding("c c1 gpu gpu-1"), claims: onePod,
			pods: user + `
metadata: {name: p, namespace: other, uid: p2}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
status: {phase: Running}
`,
			want: []string{"gpu-1 gpu: " + isUser},
		}, {
			name: "a reservation for a pod of another namespace", held: holding("c c1 gpu gpu-1"),
			claims: `
metadata: {name: c, uid: c1}
status: {reservedFor: [{resource: pods, name: p, uid: p2}]}
`,
			pods: `
metadata: {name: p, namespace: other, uid: p2}
status: {phase: Running}
`,
			want: []string{"gpu-1 gpu: p(p2)[Gone]"},
		}, {
			name: "a pod with a claim deleted under another pod and made again", held: holding("c c1 gpu gpu-1"),
			claims: `
metadata: {name: c, uid: c2}
status: {reservedFor: [{resource: pods, name: new, uid: p2}]}
`,
			pods: user + `
metadata: {name: new, uid: p2}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
status: {phase: Running}
---
metadata: {name: thief, uid: p3}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
status: {phase: Pending}
`,
			want: []string{"gpu-1 gpu: " + isUser},
		}, {
			name: "a pod with a claim of a template's name", held: holding("c c1 gpu gpu-1"),
			claims: `metadata: {name: c, uid: c2}`,
			pods: `
metadata: {name: p, uid: p1}
spec: {resourceClaims: [{name: mine, resourceClaimTemplateName: t}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
status: {phase: Running, resourceClaimStatuses: [{name: mine, resourceClaimName: c}]}
---
metadata: {name: thief, uid: p3}
spec: {resourceClaims: [{name: mine, resourceClaimName: c}], containers: [{name: x, resources: {claims: [{name: mine}]}}]}
`,
			want: []string{"gpu-1 gpu: " + isUser},
		}, {
			name: "a pod on another node, where the claim is now", held: holding("c c1 gpu gpu-1"),
			claims: `
metadata: {name: c, uid: c1}
status:
  allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: elsewhere, device: gpu-1}]}}
  reservedFor: [{resource: pods, name: q, uid: p2}]
`,
			pods: user,
			want: []string{"gpu-1 gpu: " + isUser},
		}, {
			name: "containers by an entry that means another claim", held: holding("c c1 gpu gpu-1"), claims: onePod,
			pods: `
metadata: {name: p, uid: p1}
spec:
  resourceClaims: [{name: c, resourceClaimName: d}, {name: x, resourceClaimTemplateName: t}]
  containers:
  - {name: a, resources: {claims: [{name: c}, {name: c1}, {name: gone}, {name: ""}]}}
status: {resourceClaimStatuses: [{name: c, resourceClaimName: c}]}
`,
			want: []string{"gpu-1 gpu: p(p1)[Waiting]"},
		}, {
			name: "containers by a request that is called like another's start", held: holding("c c1 gpu gpu-1"), claims: onePod,
			pods: `
metadata: {name: p, uid: p1}
spec:
  resourceClaims: [{name: mine, resourceClaimName: c}]
  containers:
  - {name: a, resources: {claims: [{name: mine, request: gp}, {name: mine, request: gpu-0}, {name: mine, request: gpu/large}]}}
`,
			want: []string{"gpu-1 gpu: p(p1)[Waiting]"},
		},
	} {
		test.run(t)
	}
}

func TestNothingThere(t *testing.T) {
	claims := append(parseClaims(t, onePod), nil, &resourceapi.ResourceClaim{})
	pods := append(parsePods(t, "metadata: {name: p, uid: p1}"), nil, &corev1.Pod{})
	held := append(holding("c c1 gpu gpu-1"), Owner{})
	want := []string{":", "gpu-1 gpu: p(p1)[Waiting]"}
	if got := say(Join(held, claims, pods, nil)); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("owners are %q, want %q", got, want)
	}
	if got := Held([]*resourceapi.ResourceClaim{nil, {}}, []*resourceapi.ResourceSlice{nil, {}}, testDriver); len(got) != 0 {
		t.Errorf("owners are %v, want none", got)
	}
}

// A pod may have thousands of claims and containers: the join looks these up, where it
// looks through the few of others.
func TestHugePod(t *testing.T) {
	const n = 3000
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	pod.Namespace, pod.Name, pod.UID = "team", "huge", "p1"
	var all []corev1.ResourceClaim
	for i := range n {
		name := fmt.Sprint("entry-", i)
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: ptr.To("c")})
		pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: name, ResourceClaimName: ptr.To("c")})
		all = append(all, corev1.ResourceClaim{Name: name, Request: "other"})
	}
	for i := range n {
		c := corev1.Container{Name: fmt.Sprint("container-", i)}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, ContainerID: "containerd://" + c.Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
		c.Resources.Claims = all[:10]
		if i%2 == 0 {
			c.Resources.Claims = []corev1.ResourceClaim{{Name: fmt.Sprint("entry-", i)}}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	owners := Join(holding("c c1 gpu gpu-1", "d c2 gpu gpu-2"), nil, []*corev1.Pod{pod}, nil)
	if used := owners[0].Consumers[0].Containers; len(used) != n/2 || used[1].ID != "container-2" {
		t.Errorf("%d containers use the device, the second is %v; want %d", len(used), used[1], n/2)
	}
}
