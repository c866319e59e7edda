package ownership

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestWorkloadOf(t *testing.T) {
	long := strings.Repeat("d", 246)
	for _, test := range []struct {
		name, pod string
		want      *Workload
	}{
		{"bare pod", `{}`, nil},
		{
			"owned, not controlled", `{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: c}, {apiVersion: v1, kind: Thing, name: d, controller: false}]}}`,
			nil,
		},
		{
			"Deployment", `{metadata: {labels: {pod-template-hash: 6f7d8c}, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: c}, {apiVersion: apps/v1, kind: ReplicaSet, name: my-model-6f7d8c, controller: true}]}}`,
			&Workload{"apps/v1", "Deployment", "my-model"},
		},
		{
			"ReplicaSet without Deployment", `{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: my-model-6f7d8c, controller: true}]}}`,
			&Workload{"apps/v1", "ReplicaSet", "my-model-6f7d8c"},
		},
		{
			"ReplicaSet that an orphan joined", `{metadata: {labels: {pod-template-hash: 6f7d8c}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: other-77777, controller: true}]}}`,
			&Workload{"apps/v1", "ReplicaSet", "other-77777"},
		},
		{
			"ReplicaSet called like the hash", `{metadata: {labels: {pod-template-hash: 6f7d8c}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: -6f7d8c, controller: true}]}}`,
			&Workload{"apps/v1", "ReplicaSet", "-6f7d8c"},
		},
		{
			"ReplicaSet of which the Deployment's name may be cut", `{metadata: {labels: {pod-template-hash: 6f7d8c}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: ` + long + `-6f7d8c, controller: true}]}}`,
			&Workload{"apps/v1", "ReplicaSet", long + "-6f7d8c"},
		},
		{
			"ReplicaSet of another group", `{metadata: {labels: {pod-template-hash: 6f7d8c}, ownerReferences: [{apiVersion: example.com/v1, kind: ReplicaSet, name: a-6f7d8c, controller: true}]}}`,
			&Workload{"example.com/v1", "ReplicaSet", "a-6f7d8c"},
		},
		{
			"StatefulSet", `{metadata: {labels: {pod-template-hash: 6f7d8c}, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db-6f7d8c, controller: true}]}}`,
			&Workload{"apps/v1", "StatefulSet", "db-6f7d8c"},
		},
		{
			"Job, whose CronJob it does not know", `{metadata: {ownerReferences: [{apiVersion: batch/v1, kind: Job, name: nightly-29400000, controller: true}]}}`,
			&Workload{"batch/v1", "Job", "nightly-29400000"},
		},
		{
			"bad version", `{metadata: {labels: {pod-template-hash: h}, ownerReferences: [{apiVersion: apps/v1/x, kind: ReplicaSet, name: a-h, controller: true}]}}`,
			&Workload{"apps/v1/x", "ReplicaSet", "a-h"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, WorkloadOf(parsePods(t, test.pod)[0])); diff != "" {
				t.Errorf("workload (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJoinAsksForTheWorkloadOfEachConsumerOnce(t *testing.T) {
	var asked []string
	cronJob := &Workload{"batch/v1", "CronJob", "nightly"}
	owners := Join(holding("c c1 gpu gpu-1", "c c1 gpu gpu-2"), parseClaims(t, onePod), parsePods(t, `
metadata: {name: p, uid: p1, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: nightly-29400000, controller: true}]}
---
metadata: {name: unrelated, uid: p2}
`), func(pod *corev1.Pod) *Workload {
		asked = append(asked, pod.Name)
		return cronJob
	})
	if diff := cmp.Diff([]string{"p"}, asked); diff != "" {
		t.Errorf("pods asked for (-want +got):\n%s", diff)
	}
	for _, o := range owners {
		if got := o.Consumers[0].Workload; got != cronJob {
			t.Errorf("workload of the consumer of %s is %v, want the CronJob", o.Device.Name, got)
		}
	}
}
