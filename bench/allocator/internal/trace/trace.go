// Package trace makes up pods that arrive one after the other and want GPUs, parts of
// them or shares of them.
//
// The same seed makes the same pods. It knows the catalog and what a planner takes, and
// must not know how pods are placed.
package trace

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/bench/allocator/internal/setting"
	"apportion.dev/apportion/pkg/plan/catalog"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// machineType has 8 GPUs that are used whole, in partitions or in shares.
const machineType = "p5.48xlarge"

// Pods is how many arrive.
const Pods = 80

// kind is something that a pod wants, and how often in a hundred.
type kind struct {
	often   int
	request resourceapi.DeviceRequest
}

func kinds() []kind {
	return []kind{
		{20, setting.Request("gpu", setting.GPUs, 1)},
		{10, setting.Request("gpu", setting.GPUs, 2)},
		{8, setting.Request("gpu", setting.GPUs, 3)},
		{6, setting.Request("gpu", setting.GPUs, 4)},
		{6, setting.Request("gpu", setting.GPUs, 5)},
		{4, setting.Request("gpu", setting.GPUs, 6)},
		{13, partition("1g.10gb")},
		{8, partition("2g.20gb")},
		{8, partition("3g.40gb")},
		{10, share("10Gi")},
		{7, share("30Gi")},
	}
}

func partition(profile string) resourceapi.DeviceRequest {
	r := setting.Request("mig", setting.Partitions, 1)
	r.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: fmt.Sprintf(`device.attributes["%s"].profile == %q`, catalog.DefaultDriverName, profile),
	}}}
	return r
}

func share(memory string) resourceapi.DeviceRequest {
	r := setting.Request("gpu", setting.GPUs, 1)
	r.Exactly.Capacity = &resourceapi.CapacityRequirements{
		Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)},
	}
	return r
}

// New makes the pods of a seed, each a second younger than the one before, for a cluster
// without nodes.
func New(seed uint64) (*simulate.Input, error) {
	found, err := catalog.Lookup(machineType)
	if err != nil {
		return nil, fmt.Errorf("instance type of the trace: %w", err)
	}
	machine, err := found.Allocator(nil, 0, catalog.Policy{})
	if err != nil {
		return nil, fmt.Errorf("instance type of the trace: %w", err)
	}
	in := &simulate.Input{
		Classes:       setting.Classes(),
		InstanceTypes: []*simulate.InstanceType{{InstanceType: *machine}},
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range Pods {
		add(in, i, pick(random, kinds()))
	}
	return in, nil
}

func pick(random *rand.Rand, kinds []kind) resourceapi.DeviceRequest {
	n := random.IntN(100)
	for _, k := range kinds {
		if n -= k.often; n < 0 {
			return k.request
		}
	}
	return kinds[0].request
}

func add(in *simulate.Input, number int, request resourceapi.DeviceRequest) {
	name := fmt.Sprintf("pod-%03d", number)
	arrived := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, number, 0, time.UTC))
	claim := setting.Claim(name, request)
	claim.UID, claim.CreationTimestamp = types.UID("claim-"+name), arrived
	in.Claims = append(in.Claims, claim)
	in.Pods = append(in.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: name, UID: types.UID(name), CreationTimestamp: arrived},
		Spec: corev1.PodSpec{
			Containers:     []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim.Name}},
		},
	})
}
