package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// limitingDriver is a version of the NVIDIA driver whose NVML limits memory.
const limitingDriver = "615.43.02"

const a100 = "NVIDIA A100-SXM4-40GB"

// withLimits installs a driver on node-b that can limit memory, until restore is
// called, and returns the UUIDs of the node's two GPUs.
func withLimits(t *testing.T) (first, second string, restore func()) {
	t.Helper()
	_, machine := node(t, "node-b")
	old := summary(t, machine).DriverVersion
	if err := machine.SetDriverVersion(limitingDriver); err != nil {
		t.Fatal(err)
	}
	restore = func() {
		if err := machine.SetDriverVersion(old); err != nil {
			t.Error(err)
		}
		wantEnforcement(t, "none")
	}
	wantEnforcement(t, "nvml")
	uuids := gpus(t, machine, a100)
	return uuids[0].UUID, uuids[1].UUID, restore
}

// wantEnforcement waits until all GPUs of node-b say this of memory limits.
func wantEnforcement(t *testing.T, value string) {
	t.Helper()
	waitPublished(t, "node-b", "memoryEnforcement "+value, func(devices []resourceapi.Device) error {
		for _, d := range devices {
			if got := text(d, "memoryEnforcement"); text(d, "type") == "gpu" && got != value {
				return fmt.Errorf("%s has %q", d.Name, got)
			}
		}
		return nil
	})
}

// wantEnforced waits until the status of each device of the pod's claim says whether
// its memory is limited.
func (s *space) wantEnforced(podName string, want metav1.ConditionStatus) {
	s.t.Helper()
	for _, d := range s.statusOf(podName) {
		if got := conditionOf(d, "MemoryEnforced"); got != want {
			s.t.Errorf("pod %s: MemoryEnforced of %s is %q, want %q", podName, d.Device, got, want)
		}
	}
}

// wantProbe checks how a probe ended, and what it said in this order.
func (s *space) wantProbe(podName, container string, status int32, texts ...string) {
	s.t.Helper()
	code, said := s.ended(podName, container)
	rest, inOrder := said, true
	for _, text := range texts {
		var found bool
		_, rest, found = strings.Cut(rest, text)
		inOrder = inOrder && found
	}
	if code != status || !inOrder || strings.Contains(said, noMemory) != (status == outOfMemory) {
		s.t.Errorf("probe %s of pod %s ended with %d and said\n%s\nwant %d and %q", container, podName, code, said, status, texts)
	}
}

// How a probe ends that did not get all memory, and what it says then.
const (
	outOfMemory = 3
	noMemory    = "out of memory"
)

func TestSharesAreLimits(t *testing.T) {
	first, second, restore := withLimits(t)
	defer restore()
	t.Run("also for one who cheats", func(t *testing.T) { sharesOfAGPU(t, first) })
	t.Run("of two GPUs in one container", func(t *testing.T) { sharesOfTwoGPUs(t, first, second) })
	t.Run("for each container", func(t *testing.T) { sharesOfContainers(t, first) })
}

func sharesOfAGPU(t *testing.T, gpu string) {
	s := newSpace(t)
	share := asks(request("gpu", shareOf("10Gi", is("uuid", gpu))))
	for _, name := range []string{"steady", "ten", "cheat", "neighbour"} {
		s.claim(name, withConfig(share, gpuConfig(`"memory":{"enforcement":"Required"}`)))
	}
	// The one who runs on has the same limit, and its claim says so.
	s.run(usesClaim("steady", "steady"))
	s.wantEnforced("steady", metav1.ConditionTrue)

	// A tenant writes the container's environment, from which a hook of NVIDIA's
	// toolkit would take limits.
	cheat := probe(work, "", gpu, "9Gi", "2Gi")
	cheat.Env = []corev1.EnvVar{{Name: "NVIDIA_GPU_MEMORY_LIMIT", Value: "40000"}, {Name: "NVIDIA_GPU_MEMORY_REQUEST", Value: "40000"}}
	s.start(
		probes("ten", "ten", probe(work, "", gpu, "9Gi", "2Gi")),
		probes("cheat", "cheat", cheat),
		probes("neighbour", "neighbour", probe(work, "", gpu, "4Gi", "6Gi")),
	)
	s.wantProbe("ten", work, outOfMemory, "allocated 9Gi", noMemory)
	s.wantProbe("cheat", work, outOfMemory, "allocated 9Gi", noMemory)
	s.wantProbe("neighbour", work, 0, "allocated 4Gi", "allocated 6Gi")
}

// sharesOfTwoGPUs has containers with a share of each GPU: each has both limits.
func sharesOfTwoGPUs(t *testing.T, first, second string) {
	s := newSpace(t)
	s.claim("both", asks(
		request("first", shareOf("10Gi", is("uuid", first))),
		request("second", shareOf("6Gi", is("uuid", second))),
	))
	s.start(probes("pod", "both", probe("on-first", "", first, "9Gi", "2Gi"), probe("on-second", "", second, "5Gi", "2Gi")))
	s.wantProbe("pod", "on-first", outOfMemory, "allocated 9Gi", noMemory)
	s.wantProbe("pod", "on-second", outOfMemory, "allocated 5Gi", noMemory)
}

// sharesOfContainers is what users of time-slicing ask for: two shares of one GPU in
// one pod, each container with its own. A container that has both may use what they
// are together.
func sharesOfContainers(t *testing.T, gpu string) {
	s := newSpace(t)
	s.claim("shares", asks(
		request("small", shareOf("5Gi", is("uuid", gpu))),
		request("large", shareOf("7Gi", is("uuid", gpu))),
	))
	s.start(probes("pod", "shares",
		probe("small", "small", gpu, "4Gi", "2Gi"),
		probe("large", "large", gpu, "6Gi", "2Gi"),
		probe("both", "", gpu, "11Gi", "2Gi"),
	))
	s.wantProbe("pod", "small", outOfMemory, "allocated 4Gi", noMemory)
	s.wantProbe("pod", "large", outOfMemory, "allocated 6Gi", noMemory)
	s.wantProbe("pod", "both", outOfMemory, "allocated 11Gi", noMemory)
}

// TestWhatBecomesOfALimitThatNobodyCanKeep: the driver that nodes have by default
// knows no limits.
func TestWhatBecomesOfALimitThatNobodyCanKeep(t *testing.T) {
	_, machine := node(t, "node-b")
	wantEnforcement(t, "none")
	gpu := gpus(t, machine, a100)[0].UUID
	s := newSpace(t)
	share := asks(request("gpu", shareOf("10Gi", is("uuid", gpu))))
	enforcement := func(value string) resourceapi.ResourceClaimSpec {
		return withConfig(share, gpuConfig(fmt.Sprintf(`"memory":{"enforcement":%q}`, value)))
	}
	s.claim("preferred", enforcement("Preferred"))
	s.claim("required", enforcement("Required"))
	s.refusedAtAdmission("not-a-tenants", enforcement("None"), "memory.enforcement", "only a DeviceClass")
	s.claim("nothing-said", share)
	s.start(usesClaim("required", "required"), usesClaim("not-a-tenants", "not-a-tenants"))
	s.run(usesClaim("preferred", "preferred"), usesClaim("nothing-said", "nothing-said"))
	s.wantEnforced("preferred", metav1.ConditionFalse)
	s.wantEnforced("nothing-said", metav1.ConditionFalse)
	s.wantEvent("required", failedPrepare, s.name+"/required", "requires", "memory")
	s.wantEvent("not-a-tenants", failedPrepare, s.name+"/not-a-tenants", "only a DeviceClass")
}

// TestReplicasFillAGPUAndThenTheNext has nine replicas of 10Gi on two nodes with two
// GPUs of 40 GiB each.
func TestReplicasFillAGPUAndThenTheNext(t *testing.T) {
	// node-a gets GPUs like those of node-b for as long as this runs.
	_, machine := node(t, "node-a")
	s := newSpace(t)
	var added []string
	defer func() {
		s.removeDeployment("replicas")
		for _, uuid := range added {
			if err := machine.RemoveGPU(uuid); err != nil {
				t.Error(err)
			}
		}
		wantA100s(t, "node-a", 0)
	}()
	for range 2 {
		uuid, err := machine.AddGPU("a100-sxm4-40gb", -1)
		if err != nil {
			t.Fatal(err)
		}
		added = append(added, uuid)
	}
	wantA100s(t, "node-a", 2)

	s.template("ten", asks(request("gpu", shareOf("10Gi", is("productName", a100)))))
	const replicas = 9
	s.apply(deployment, map[string]any{"Name": "replicas", "Replicas": replicas, "Template": "ten"})
	var pods []corev1.Pod
	waitFor(t, "all replicas run", func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		return len(pods) == replicas, fmt.Errorf("%d run", len(pods))
	})
	perDevice, perNode := map[string]int{}, map[string]int{}
	for _, pod := range pods {
		result := s.resultsOf(pod.Name)[0]
		perDevice[result.Pool+"/"+result.Device]++
		perNode[result.Pool]++
	}
	// How many replicas a node gets is the scheduler's choice; how they lie on its
	// GPUs follows.
	for _, nodeName := range []string{"node-a", "node-b"} {
		left := perNode[nodeName]
		for _, d := range wantA100s(t, nodeName, 2) {
			want := min(left, 4)
			left -= want
			if got := perDevice[nodeName+"/"+d.Name]; got != want {
				t.Errorf("%s has %d of the %d replicas on %s, want %d", d.Name, got, perNode[nodeName], nodeName, want)
			}
		}
	}
	t.Logf("replicas per GPU: %v", perDevice)
}

// removeDeployment deletes a Deployment, if there is one, and waits until its pods
// are gone.
func (s *space) removeDeployment(name string) {
	s.t.Helper()
	err := client.AppsV1().Deployments(s.name).Delete(s.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	waitFor(s.t, "the pods of Deployment "+name+" are gone", func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return false, err
		}
		return len(list.Items) == 0, fmt.Errorf("there are %d", len(list.Items))
	})
}

// wantA100s waits until the node publishes so many whole A100s, and returns them in
// order.
func wantA100s(t *testing.T, nodeName string, n int) []resourceapi.Device {
	t.Helper()
	var found []resourceapi.Device
	waitPublished(t, nodeName, fmt.Sprintf("%d A100s", n), func(devices []resourceapi.Device) error {
		found = slices.DeleteFunc(devices, func(d resourceapi.Device) bool {
			return text(d, "productName") != a100 || text(d, "type") != "gpu"
		})
		if len(found) != n {
			return fmt.Errorf("it has %d", len(found))
		}
		return nil
	})
	return found
}
