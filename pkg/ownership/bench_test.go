package ownership

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	benchClaims = 100_000
	// perGPU is how many shares a GPU of the benchmark has, and perNode how many GPUs a
	// node.
	perGPU, perNode = 4, 8
)

// largeCluster is a cluster in which each of many pods has a share of a GPU by a
// claim of its own, in no order.
func largeCluster() (claims []*resourceapi.ResourceClaim, pods []*corev1.Pod, slices []*resourceapi.ResourceSlice) {
	random := rand.New(rand.NewPCG(1, 2))
	for node := range benchClaims / perGPU / perNode {
		pool := fmt.Sprintf("node-%04d", node)
		slice := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: pool + "-x"},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: testDriver, Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
			},
		}
		for gpu := range perNode {
			name := fmt.Sprintf("gpu-%04x%04x", node, gpu)
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{
				Name: name,
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"type": {StringValue: ptr.To("gpu")}, "uuid": {StringValue: ptr.To("GPU-" + name)},
				},
				Capacity:                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
				AllowMultipleAllocations: ptr.To(true),
			})
			for range perGPU {
				claim, pod := podWithShare(len(claims), pool, name)
				claims, pods = append(claims, claim), append(pods, pod)
			}
		}
		slices = append(slices, slice)
	}
	random.Shuffle(len(claims), func(i, k int) { claims[i], claims[k] = claims[k], claims[i] })
	random.Shuffle(len(pods), func(i, k int) { pods[i], pods[k] = pods[k], pods[i] })
	return claims, pods, slices
}

// podWithShare is the i-th pod, of a Deployment, and its claim.
func podWithShare(i int, pool, device string) (*resourceapi.ResourceClaim, *corev1.Pod) {
	namespace, claimName := fmt.Sprintf("team-%d", i%100), fmt.Sprintf("model-%06d-gpu-x", i)
	since := metav1.NewTime(time.Unix(1_800_000_000+int64(i), 0))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("model-%06d", i), UID: types.UID(fmt.Sprintf("pod-0000-0000-0000-%06d", i)),
			Labels:          map[string]string{"pod-template-hash": "6f7d8c"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "model-6f7d8c", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName:       pool,
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpu")}},
			InitContainers: []corev1.Container{{Name: "fetch"}},
			Containers: []corev1.Container{
				{Name: "serve", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}},
				{Name: "proxy"},
			},
		},
		Status: corev1.PodStatus{
			Phase:                 corev1.PodRunning,
			ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claimName}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "serve", ContainerID: fmt.Sprintf("containerd://%064x", i), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}},
				{Name: "proxy", ContainerID: fmt.Sprintf("containerd://%064x", -i), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}},
			},
		},
	}
	share := types.UID(fmt.Sprintf("share-0000-0000-0000-%06d", i))
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claimName, UID: types.UID(fmt.Sprintf("claim-0000-0000-0000-%06d", i))},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: testDriver, Pool: pool, Device: device, ShareID: &share,
				ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("20Gi")},
			}}}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
			Devices: []resourceapi.AllocatedDeviceStatus{{
				Driver: testDriver, Pool: pool, Device: device, ShareID: ptr.To(string(share)),
				Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: since}},
				Data:       &runtime.RawExtension{Raw: []byte(`{"uuid":"GPU-` + device + `","pciBusID":"0000:07:00.0","driverVersion":"615.1.0","consumedCapacity":{"memory":"20Gi"}}`)},
			}},
		},
	}, pod
}

// BenchmarkJoin is a join of 100,000 claims and as many pods: an operation is one
// Join. The aim is a second.
func BenchmarkJoin(b *testing.B) {
	claims, pods, slices := largeCluster()
	held := Held(claims, slices, testDriver)
	for _, test := range []struct {
		name   string
		held   []Owner
		claims []*resourceapi.ResourceClaim
	}{
		{"claims known", held, claims},
		{"claims unknown", held, nil},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if owners := Join(test.held, test.claims, pods, nil); len(owners) != benchClaims || len(owners[7].Consumers) != 1 {
					b.Fatalf("%d owners, the 8th has consumers %v", len(owners), owners[7].Consumers)
				}
			}
		})
	}
}

// BenchmarkHeld reads what 100,000 claims hold: an operation is one Held.
func BenchmarkHeld(b *testing.B) {
	claims, _, slices := largeCluster()
	b.ReportAllocs()
	for b.Loop() {
		if owners := Held(claims, slices, testDriver); len(owners) != benchClaims || owners[7].Device.Fraction != 0.25 {
			b.Fatalf("%d owners, the 8th is %v", len(owners), owners[7])
		}
	}
}
