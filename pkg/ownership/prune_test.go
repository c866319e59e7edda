package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is dropped of objects must not be missing where they are joined.
func TestPruneKeepsAllThatOwnersAreMadeOf(t *testing.T) {
	ofClaim := corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "p", UID: "u", DeletionTimestamp: &metav1.Time{},
			Labels:          map[string]string{"pod-template-hash": "6f7d9c", "other": "x"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "embed-6f7d9c", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-a", SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: new("group")},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("template")}},
			InitContainers: []corev1.Container{{Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: ofClaim}},
			Containers:     []corev1.Container{{Name: "main", Resources: ofClaim}},
			EphemeralContainers: []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Resources: ofClaim}},
			},
		},
		Status: corev1.PodStatus{
			Phase:                       corev1.PodRunning,
			ResourceClaimStatuses:       []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("c")}},
			ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "e"},
		},
	}
	for _, statuses := range []*[]corev1.ContainerStatus{&pod.Status.InitContainerStatuses, &pod.Status.ContainerStatuses, &pod.Status.EphemeralContainerStatuses} {
		*statuses = []corev1.ContainerStatus{{
			Name: "main", ContainerID: "containerd://1", RestartCount: 1,
			State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.Unix(7, 0)}},
		}}
	}
	want := pod.DeepCopy()

	pod.Annotations, pod.ResourceVersion = map[string]string{"large": "x"}, "7"
	pod.Spec.Containers[0].Image, pod.Status.ContainerStatuses[0].Image = "large", "large"
	pod.Status.ContainerStatuses[0].RestartCount = 40
	pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.Unix(9, 0)
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = "large"
	for range 2 { // Pruning twice is as pruning once.
		pod = PrunePod(pod)
		if diff := cmp.Diff(want, pod); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestOfAPodWithoutClaimsLittleIsKept(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: "u", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "main"}}},
	}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: "u"},
		Spec:       corev1.PodSpec{NodeName: "node-a"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if diff := cmp.Diff(want, PrunePod(pod)); diff != "" {
		t.Error(diff)
	}
}

func TestOfAClaimItsAllocationAndReservationsAreKept(t *testing.T) {
	claims := parseClaims(t, `
metadata: {name: c, uid: u, resourceVersion: "7", annotations: {large: x}}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
status:
  allocation:
    allocationTimestamp: "2026-01-02T03:04:05Z"
    devices:
      results: [{request: gpu, driver: d, pool: node, device: gpu-0, shareID: s}]
      config: [{source: FromClaim, opaque: {driver: d, parameters: {}}}]
  reservedFor: [{resource: pods, name: p, uid: p1}]
  devices: [{driver: d, pool: node, device: gpu-0, data: {uuid: GPU-1}}]`)
	want := parseClaims(t, `
metadata: {name: c, uid: u, resourceVersion: "7"}
spec: {devices: {}}
status:
  allocation:
    allocationTimestamp: "2026-01-02T03:04:05Z"
    devices:
      results: [{request: gpu, driver: d, pool: node, device: gpu-0, shareID: s}]
  reservedFor: [{resource: pods, name: p, uid: p1}]
  devices: [{driver: d, pool: node, device: gpu-0, data: {uuid: GPU-1}}]`)
	if diff := cmp.Diff(want, []*resourceapi.ResourceClaim{PruneClaim(claims[0])}); diff != "" {
		t.Error(diff)
	}
}

func TestPodsReferToClaims(t *testing.T) {
	for name, test := range map[string]struct {
		pod  string
		want bool
	}{
		"by name":              {`{metadata: {name: a}, spec: {containers: [], resourceClaims: [{name: gpu, resourceClaimName: claim}]}}`, true},
		"by another name":      {`{metadata: {name: a}, spec: {containers: [], resourceClaims: [{name: gpu, resourceClaimName: claim-2}]}}`, false},
		"by a template":        {`{metadata: {name: a}, spec: {containers: [], resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]}, status: {resourceClaimStatuses: [{name: gpu, resourceClaimName: claim}]}}`, true},
		"by another template":  {`{metadata: {name: a}, spec: {containers: [], resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]}, status: {resourceClaimStatuses: [{name: gpu, resourceClaimName: claim-2}]}}`, false},
		"no claim is needed":   {`{metadata: {name: a}, spec: {containers: [], resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]}, status: {resourceClaimStatuses: [{name: gpu}]}}`, false},
		"by extended resource": {`{metadata: {name: a}, spec: {containers: []}, status: {extendedResourceClaimStatus: {resourceClaimName: claim, requestMappings: []}}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := parsePods(t, test.pod)[0]
			if got := Refers(pod, "team", "claim"); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
			if Refers(pod, "other", "claim") {
				t.Error("it refers to a claim of another namespace")
			}
		})
	}
}
