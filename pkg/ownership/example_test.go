package ownership_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/ownership"
)

// A claim that a node has prepared, and the pod that uses it in one of its containers.
func ExampleJoin() {
	held := []ownership.Owner{{
		Device:  ownership.Device{Driver: "gpu.apportion.dev", Pool: "node-a", Name: "gpu-4f3a1b2c", Type: "gpu"},
		Claim:   ownership.ClaimRef{Namespace: "team-a", Name: "training", UID: "claim-1"},
		Request: "gpu",
	}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "training", UID: "claim-1"}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "train-0", UID: "pod-1"}}
	name := "training"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train-0", UID: "pod-1"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimName: &name}}
	pod.Spec.Containers = []corev1.Container{
		{Name: "train", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpus"}}}},
		{Name: "log"},
	}
	for _, owner := range ownership.Join(held, []*resourceapi.ResourceClaim{claim}, []*corev1.Pod{pod}, nil) {
		for _, consumer := range owner.Consumers {
			fmt.Println(owner.Device.Name, consumer.Namespace+"/"+consumer.Name, consumer.Containers[0].Name, len(consumer.Containers))
		}
	}
	// Output:
	// gpu-4f3a1b2c team-a/train-0 train 1
}
