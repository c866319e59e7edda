package ownership

import (
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestShare(t *testing.T) {
	for workers := 1; workers <= 5; workers++ {
		for _, n := range []int{0, 1, 2, 3, 31, 32, 33, 1000, 12345} {
			taken := make([]int, n)
			var called atomic.Int32
			share(workers, n, func(ranges iter.Seq2[int, int]) {
				called.Add(1)
				for from, to := range ranges {
					for i := from; i < to; i++ {
						taken[i]++
					}
				}
			})
			if most := max(1, min(workers, n)); int(called.Load()) != most {
				t.Errorf("%d workers share %d, want %d", called.Load(), n, most)
			}
			for i, times := range taken {
				if times != 1 {
					t.Fatalf("%d workers took %d of %d %d times, want once", workers, i, n, times)
				}
			}
		}
	}
}

// What the caller knows of workloads need not be made for several goroutines, and may
// cost a request.
func TestWorkloadsAreAskedForOnceAndOneAtATime(t *testing.T) {
	const n, perPod = 500, 4
	var held []Owner
	claims, pods := []*resourceapi.ResourceClaim{}, []*corev1.Pod{}
	for i := range n {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.UID = "team", fmt.Sprint("p", i), types.UID(fmt.Sprint("pod-", i))
		pods = append(pods, pod)
		for k := range perPod {
			claim := &resourceapi.ResourceClaim{}
			claim.Namespace, claim.Name, claim.UID = "team", fmt.Sprint("c", i, k), types.UID(fmt.Sprint("claim-", i, "-", k))
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
			claims = append(claims, claim)
			held = append(held, Owner{Device: Device{Name: fmt.Sprint("gpu-", k, i)}, Claim: ClaimRef{"team", claim.Name, claim.UID}})
		}
	}
	pods = append(pods, &corev1.Pod{}) // It consumes nothing.
	asked := map[string]int{}
	var mu sync.Mutex
	owners := join(held, claims, pods, func(pod *corev1.Pod) *Workload {
		if !mu.TryLock() {
			t.Error("workloads of two pods are asked for at once")
			return nil
		}
		defer mu.Unlock()
		asked[pod.Name]++
		return &Workload{Name: "maker of " + pod.Name}
	}, 8)
	if len(owners) != n*perPod || len(asked) != n {
		t.Fatalf("there are %d owners, and the workloads of %d pods were asked for; want %d and %d", len(owners), len(asked), n*perPod, n)
	}
	for name, times := range asked {
		if times != 1 {
			t.Errorf("the workload of %s was asked for %d times, want once", name, times)
		}
	}
	for _, o := range owners {
		if c := o.Consumers[0]; c.Workload == nil || c.Workload.Name != "maker of "+c.Name {
			t.Fatalf("the workload of %s is %v", c.Name, c.Workload)
		}
	}
}
