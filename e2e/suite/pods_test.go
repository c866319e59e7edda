package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// controlNodes are the device nodes that every container with a GPU has beside
// those of its GPUs.
var controlNodes = []string{"/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"}

func TestAPodSeesExactlyItsGPU(t *testing.T) {
	s := newSpace(t)
	s.apply(gpuClaimTemplate, map[string]any{"Name": "a100", "Count": nil, "Select": `device.attributes["gpu.apportion.dev"].productName == "NVIDIA A100-SXM4-40GB"`})
	s.apply(podOfTemplate, map[string]any{"Name": "pod", "Template": "a100", "RestartPolicy": nil, "Node": nil})
	pod := s.running("pod")
	if pod.Spec.NodeName != "node-b" {
		t.Errorf("the pod is on %s, the A100s are on node-b", pod.Spec.NodeName)
	}
	claim := s.claimOf(pod, "gpu")
	result := claim.Status.Allocation.Devices.Results[0]
	published := device(t, "node-b", result.Device)
	uuid := *published.Attributes["uuid"].StringValue

	seen := strings.Fields(s.exec("pod", "work", "ls -d /dev/nvidia* | grep -v caps"))
	if len(seen) != len(controlNodes)+1 {
		t.Errorf("device nodes are %v, want one GPU and %v", seen, controlNodes)
	}
	for _, want := range controlNodes {
		if !slices.Contains(seen, want) {
			t.Errorf("no %s among %v", want, seen)
		}
	}
	if smi := s.exec("pod", "work", "nvidia-smi -L"); strings.Count(smi, "GPU-") != 1 || !strings.Contains(smi, uuid) {
		t.Errorf("nvidia-smi says %q, want GPU %s alone", smi, uuid)
	}
	_, machine := node(t, "node-b")
	version := summary(t, machine).DriverVersion
	libraries := s.exec("pod", "work", "ls /usr/lib/*/libcuda.so.*")
	if !strings.Contains(libraries, "libcuda.so."+version) {
		t.Errorf("libraries are %q, want those of driver %s", libraries, version)
	}
	if got := s.exec("pod", "work", "echo $NVIDIA_VISIBLE_DEVICES"); got != "void" {
		t.Errorf("NVIDIA_VISIBLE_DEVICES is %q, want void", got)
	}

	file := path.Join("/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpu/gpu", driverName+"-metadata.json")
	var metadata struct {
		Requests []struct {
			Name    string
			Devices []struct {
				Name       string
				Attributes map[string]resourceapi.DeviceAttribute
			}
		}
	}
	content := s.exec("pod", "work", "cat "+file)
	if err := json.NewDecoder(strings.NewReader(content)).Decode(&metadata); err != nil {
		t.Fatalf("metadata file: %v\n%s", err, content)
	}
	if len(metadata.Requests) != 1 || metadata.Requests[0].Name != "gpu" || len(metadata.Requests[0].Devices) != 1 {
		t.Fatalf("metadata is %s", content)
	}
	about := metadata.Requests[0].Devices[0]
	for name, want := range map[string]string{"uuid": uuid, "resource.kubernetes.io/pciBusID": *published.Attributes["resource.kubernetes.io/pciBusID"].StringValue} {
		if got := about.Attributes[name].StringValue; got == nil || *got != want {
			t.Errorf("metadata has %s = %v, want %s", name, got, want)
		}
	}
	if got := about.Attributes["driverVersion"].VersionValue; got == nil || *got != "580.95.5" {
		t.Errorf("metadata has driverVersion %v, want 580.95.5", got)
	}
	if got := about.Attributes["shareMemoryBytes"].IntValue; got == nil || *got != 40<<30 {
		t.Errorf("metadata has shareMemoryBytes %v, want 40 GiB", got)
	}
	s.wantReady(claim.Name, 1)
}

// wantReady waits until the claim's status has n devices of ours, all ready.
func (s *space) wantReady(claimName string, n int) {
	s.t.Helper()
	waitFor(s.t, "status of claim "+claimName, func(ctx context.Context) (bool, error) {
		claim, err := client.ResourceV1().ResourceClaims(s.name).Get(ctx, claimName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if len(claim.Status.Devices) != n {
			return false, fmt.Errorf("%d devices in the status", len(claim.Status.Devices))
		}
		for _, d := range claim.Status.Devices {
			if conditionOf(d, "Ready") != metav1.ConditionTrue || d.ShareID == nil {
				return false, fmt.Errorf("device is %+v", d)
			}
			if !strings.Contains(string(d.Data.Raw), `"uuid":"GPU-`) {
				return false, fmt.Errorf("data is %s", d.Data.Raw)
			}
		}
		return true, nil
	})
}

func TestTwoContainersAndTwoPodsShareOneClaim(t *testing.T) {
	s := newSpace(t)
	s.apply(namedClaim, map[string]any{"Name": "shared"})
	for _, name := range []string{"one", "two"} {
		s.apply(twoContainers, map[string]any{"Name": name, "Claim": "shared", "Containers": []string{"left", "right"}})
	}
	var want []string
	for _, pod := range []string{"one", "two"} {
		s.running(pod)
		for _, container := range []string{"left", "right"} {
			got := s.devices(pod, container)
			if want == nil {
				want = got
			}
			if len(got) != 1 || !slices.Equal(got, want) {
				t.Errorf("%s/%s sees %v, want %v as the others", pod, container, got, want)
			}
		}
	}
	// The claim outlives its first pod.
	s.deletePod("one", metav1.DeleteOptions{})
	if got := s.devices("two", "left"); !slices.Equal(got, want) {
		t.Errorf("after the first pod has ended the second sees %v, want %v", got, want)
	}
}

func TestOnePodWithTwoClaims(t *testing.T) {
	s := newSpace(t)
	s.apply(gpuClaimTemplate, map[string]any{"Name": "gpu", "Count": nil, "Select": nil})
	s.apply(podOfTwoClaims, map[string]any{"Name": "pod", "Template": "gpu"})
	pod := s.running("pod")
	if got := s.devices("pod", "work"); len(got) != 2 || got[0] == got[1] {
		t.Errorf("sees %v, want two GPUs", got)
	}
	first, second := s.claimOf(pod, "first"), s.claimOf(pod, "second")
	if a, b := first.Status.Allocation.Devices.Results[0].Device, second.Status.Allocation.Devices.Results[0].Device; a == b {
		t.Errorf("both claims have %s", a)
	}
}

func TestCountAllAndFirstAvailable(t *testing.T) {
	tests := []struct {
		name, template string
		values         map[string]any
		gpus           int
		request        string
	}{
		{"count", gpuClaimTemplate, map[string]any{"Name": "count", "Count": 2, "Select": nil}, 2, "gpu"},
		{"all", allGPUs, nil, 2, "gpu"},
		{"first-available", firstAvailable, nil, 1, "gpu/large"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newSpace(t)
			s.apply(test.template, test.values)
			s.apply(podOfTemplate, map[string]any{"Name": "pod", "Template": test.name, "RestartPolicy": nil, "Node": nil})
			pod := s.running("pod")
			if got := s.devices("pod", "work"); len(got) != test.gpus {
				t.Errorf("sees %v, want %d GPUs", got, test.gpus)
			}
			claim := s.claimOf(pod, "gpu")
			for _, result := range claim.Status.Allocation.Devices.Results {
				if result.Request != test.request {
					t.Errorf("request is %s, want %s", result.Request, test.request)
				}
			}
			s.wantReady(claim.Name, test.gpus)
			if got := s.exec("pod", "work", "ls /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpu/gpu"); got != driverName+"-metadata.json" {
				t.Errorf("metadata files are %q", got)
			}
		})
	}
}

func TestAdminAccessLooksOnBesideAnOwner(t *testing.T) {
	s := newSpace(t)
	if _, err := theCluster.RunKubectl(t.Context(), nil, "label", "namespace", s.name, "resource.kubernetes.io/admin-access=true"); err != nil {
		t.Fatal(err)
	}
	s.apply(allGPUs, nil)
	s.apply(podOfTemplate, map[string]any{"Name": "owner", "Template": "all", "RestartPolicy": nil, "Node": nil})
	s.running("owner")
	s.apply(adminClaim, nil)
	s.apply(podOfTemplate, map[string]any{"Name": "admin", "Template": "admin", "RestartPolicy": nil, "Node": nil})
	s.running("admin")
	owner, admin := s.devices("owner", "work"), s.devices("admin", "work")
	if len(owner) != 2 || !slices.Equal(owner, admin) {
		t.Errorf("the owner sees %v, the administrator %v; want the same two", owner, admin)
	}
	// The administrator leaves without taking anything from the owner.
	s.deletePod("admin", metav1.DeleteOptions{})
	if got := s.devices("owner", "work"); !slices.Equal(got, owner) {
		t.Errorf("after that the owner sees %v, want %v", got, owner)
	}
}

func TestAPodThatAsksForNoMemoryDoesNotGetASharedGPUForNothing(t *testing.T) {
	s := newSpace(t)
	s.apply(freeRider, nil)
	s.apply(podOfTemplate, map[string]any{"Name": "pod", "Template": "free-rider", "RestartPolicy": nil, "Node": nil})
	waitFor(t, "an Event says why the pod does not start", func(ctx context.Context) (bool, error) {
		events, err := client.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=pod,type=Warning"})
		if err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, "a share of device") {
				return true, nil
			}
		}
		return false, fmt.Errorf("%d events", len(events.Items))
	})
}

func TestUnchangedDevicePluginPodGetsAGPU(t *testing.T) {
	s := newSpace(t)
	s.apply(devicePluginPod, map[string]any{"Name": "pod"})
	pod := s.running("pod")
	if got := s.devices("pod", "work"); len(got) != 1 {
		t.Errorf("sees %v, want one GPU", got)
	}
	if pod.Status.ExtendedResourceClaimStatus == nil {
		t.Fatal("the pod has no claim for its extended resource")
	}
	s.wantReady(pod.Status.ExtendedResourceClaimStatus.ResourceClaimName, 1)
}

func TestNinthPodOnEightGPUsWaitsUntilOneEnds(t *testing.T) {
	s := newSpace(t)
	s.apply(gpuClaimTemplate, map[string]any{"Name": "h100", "Count": nil, "Select": `device.attributes["gpu.apportion.dev"].productName == "NVIDIA H100 80GB HBM3"`})
	seen := map[string]string{}
	for i := range 8 {
		name := fmt.Sprintf("pod-%d", i)
		s.apply(podOfTemplate, map[string]any{"Name": name, "Template": "h100", "RestartPolicy": nil, "Node": nil})
	}
	for i := range 8 {
		name := fmt.Sprintf("pod-%d", i)
		s.running(name)
		for _, d := range s.devices(name, "work") {
			if other := seen[d]; other != "" {
				t.Errorf("%s and %s both have %s", other, name, d)
			}
			seen[d] = name
		}
	}
	if len(seen) != 8 {
		t.Errorf("eight pods see %d GPUs: %v", len(seen), seen)
	}
	s.apply(podOfTemplate, map[string]any{"Name": "ninth", "Template": "h100", "RestartPolicy": nil, "Node": nil})
	s.pending("ninth")
	s.deletePod("pod-3", metav1.DeleteOptions{})
	s.running("ninth")
	if got := s.devices("ninth", "work"); len(got) != 1 || seen[got[0]] != "pod-3" {
		t.Errorf("the ninth sees %v, want the GPU of pod-3 (%v)", got, seen)
	}
}

func TestALostGPUShowsInThePodsStatus(t *testing.T) {
	_, machine := node(t, "node-b")
	s := newSpace(t)
	s.apply(gpuClaimTemplate, map[string]any{"Name": "a100", "Count": nil, "Select": `device.attributes["gpu.apportion.dev"].productName == "NVIDIA A100-SXM4-40GB"`})
	s.apply(podOfTemplate, map[string]any{"Name": "pod", "Template": "a100", "RestartPolicy": nil, "Node": nil})
	pod := s.running("pod")
	gpu := *device(t, "node-b", s.claimOf(pod, "gpu").Status.Allocation.Devices.Results[0].Device).Attributes["uuid"].StringValue
	s.wantHealth("pod", corev1.ResourceHealthStatusHealthy, "")
	if err := machine.LoseGPU(gpu); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := machine.RestoreGPU(gpu); err != nil {
			t.Error(err)
		}
	}()
	s.wantHealth("pod", corev1.ResourceHealthStatusUnhealthy, "lost")
}

// wantHealth waits until the pod's status says this about its GPU.
func (s *space) wantHealth(podName string, want corev1.ResourceHealthStatus, message string) {
	s.t.Helper()
	waitFor(s.t, fmt.Sprintf("health of pod %s is %s", podName, want), func(ctx context.Context) (bool, error) {
		pod, err := client.CoreV1().Pods(s.name).Get(ctx, podName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range pod.Status.ContainerStatuses {
			for _, resource := range c.AllocatedResourcesStatus {
				for _, r := range resource.Resources {
					said := ""
					if r.Message != nil {
						said = *r.Message
					}
					if r.Health == want && strings.Contains(said, message) {
						return true, nil
					}
				}
			}
		}
		return false, fmt.Errorf("status is %+v", pod.Status.ContainerStatuses)
	})
}
