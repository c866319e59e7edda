package suite

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/plan/catalog"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// workloadLabel is on the nodes and in the node selector of the pods of one workload.
const workloadLabel = "test.apportion.dev/workload"

// plannedTypes are the instance types that workloads are planned on, with prices in
// no currency.
var plannedTypes = []struct {
	name  string
	price float64
}{
	{"g6.xlarge", 0.8}, {"g6.12xlarge", 4.6}, {"g6e.24xlarge", 15}, {"p4d.24xlarge", 22}, {"a2-highgpu-2g", 7.3}, {"p5.48xlarge", 55},
}

// workload is pods that arrive one after the other, with templates of their claims.
type workload struct {
	name      string
	pods      []*corev1.Pod
	templates []*resourceapi.ResourceClaimTemplate
}

// newWorkload makes the workload of a seed: pods for several GPUs, partitions, shares,
// GPUs that are linked, and alternatives of these.
func newWorkload(namespace string, seed int) *workload {
	r := rand.New(rand.NewPCG(uint64(seed), 37))
	w := &workload{name: fmt.Sprintf("workload-%02d", seed)}
	for i := range 5 + r.IntN(5) {
		pod := podWith(fmt.Sprintf("%s-pod-%02d", w.name, i))
		pod.Namespace = namespace
		pod.Spec.NodeSelector = map[string]string{workloadLabel: strconv.Itoa(seed)}
		// Nobody tells the API server how these nodes are.
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		for entry := range 1 + r.IntN(2) {
			template := &resourceapi.ResourceClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", pod.Name, entry)},
				Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: defaulted(randomSpec(r))},
			}
			w.templates = append(w.templates, template)
			withClaim(pod, corev1.PodResourceClaim{Name: fmt.Sprintf("claim-%d", entry), ResourceClaimTemplateName: &template.Name})
		}
		w.pods = append(w.pods, pod)
	}
	return w
}

// randomSpec is what one claim asks for.
func randomSpec(r *rand.Rand) resourceapi.ResourceClaimSpec {
	h100s := is("productName", h100)
	switch r.IntN(8) {
	case 0:
		return asks(request("gpu", wholeOf("")))
	case 1:
		return asks(request("gpu", counted(wholeOf(""), 1+r.IntN(4))))
	case 2:
		spec := asks(request("gpu", counted(wholeOf(has("nvlinkDomain")), 2+r.IntN(3))))
		spec.Devices.Constraints = matching(driverName + "/nvlinkDomain")
		return spec
	case 3:
		return asks(request("share", shareOf(fmt.Sprintf("%dGi", 4+r.IntN(14)), "")))
	case 4:
		spec := asks(request("a", shareOf("10Gi", "")), request("b", shareOf("6Gi", "")))
		spec.Devices.Constraints = matching(driverName + "/productName")
		return spec
	case 5:
		return asks(request("part", counted(partitionOf([]string{"1g.10gb", "2g.20gb", "3g.40gb"}[r.IntN(3)], h100s), 1+r.IntN(3))))
	case 6:
		spec := asks(request("small", wanted(migClass, is("profile", "1g.10gb"))), request("large", wanted(migClass, is("profile", "3g.40gb"))))
		spec.Devices.Constraints = matching(driverName + "/parentUUID")
		return spec
	}
	return asks(resourceapi.DeviceRequest{Name: "any", FirstAvailable: []resourceapi.DeviceSubRequest{
		alternative("eight", counted(wholeOf(is("productName", "NVIDIA A100-SXM4-40GB")), 8)),
		alternative("part", counted(partitionOf("4g.40gb", h100s), 1+r.IntN(2))),
		alternative("share", shareOf("20Gi", "")),
	}})
}

// defaulted is a spec with the defaults that the API server sets.
func defaulted(spec resourceapi.ResourceClaimSpec) resourceapi.ResourceClaimSpec {
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if r.Exactly != nil && r.Exactly.Count == 0 {
			*r.Exactly = counted(*r.Exactly, 1)
		}
		for j := range r.FirstAvailable {
			if sub := &r.FirstAvailable[j]; sub.Count == 0 {
				sub.AllocationMode, sub.Count = resourceapi.DeviceAllocationModeExactCount, 1
			}
		}
	}
	return spec
}

func counted(exactly resourceapi.ExactDeviceRequest, count int) resourceapi.ExactDeviceRequest {
	exactly.AllocationMode, exactly.Count = resourceapi.DeviceAllocationModeExactCount, int64(count)
	return exactly
}

func matching(attribute string) []resourceapi.DeviceConstraint {
	return []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName(attribute))}}
}

// typesFor are the instance types for the nodes of a workload.
func typesFor(seed int) ([]*simulate.InstanceType, error) {
	var types []*simulate.InstanceType
	for _, planned := range plannedTypes {
		known, err := catalog.Lookup(planned.name)
		if err != nil {
			return nil, err
		}
		t, err := known.Allocator(nil, planned.price, catalog.Policy{DriverVersion: "580.95.05", CUDADriverVersion: "13.0"})
		if err != nil {
			return nil, err
		}
		t.Labels[workloadLabel] = []string{strconv.Itoa(seed)}
		types = append(types, &simulate.InstanceType{InstanceType: *t})
	}
	return types, nil
}
