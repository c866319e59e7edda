package simulate_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/simulate"
)

const extended = corev1.ResourceName("example.com/gpu")

// container requests extended resources; kind is "init", "sidecar" or empty.
func container(kind string, gpus int64) corev1.Container {
	c := corev1.Container{Name: kind}
	if gpus > 0 {
		// The CPU comes before the extended resource, and so does its number.
		c.Resources.Requests = corev1.ResourceList{
			extended: *resource.NewQuantity(gpus, resource.DecimalSI), corev1.ResourceCPU: resource.MustParse("1"),
		}
	}
	if kind == "sidecar" {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
	return c
}

func TestExtendedResourcesBecomeClaims(t *testing.T) {
	for name, test := range map[string]struct {
		init, main []corev1.Container
		want       []string
	}{
		"one container": {nil, []corev1.Container{container("", 2)}, []string{"container-0-request-1 gpu-0", "container-0-request-1 gpu-1"}},
		"two containers": {nil, []corev1.Container{container("", 1), container("", 0), container("", 2)}, []string{
			"container-0-request-1 gpu-0", "container-2-request-1 gpu-1", "container-2-request-1 gpu-2",
		}},
		// The first init container can borrow what the others will have.
		"init container borrows": {[]corev1.Container{container("init", 2)}, []corev1.Container{container("", 2)}, []string{
			"container-1-request-1 gpu-0", "container-1-request-1 gpu-1",
		}},
		"init container wants more": {[]corev1.Container{container("init", 3)}, []corev1.Container{container("", 2)}, []string{
			"container-0-request-1 gpu-0", "container-1-request-1 gpu-1", "container-1-request-1 gpu-2",
		}},
		// The sidecar before it keeps its own.
		"init container after a sidecar": {[]corev1.Container{container("sidecar", 1), container("init", 1), container("init", 2)}, []corev1.Container{container("", 1)}, []string{
			"container-0-request-1 gpu-0", "container-2-request-1 gpu-1", "container-3-request-1 gpu-2",
		}},
	} {
		in := newInput(machine("m", 1, "", gpus(8)...))
		in.Classes[0].Spec.ExtendedResourceName = new(string(extended))
		pod := addPod(in, "a")
		pod.Spec.InitContainers, pod.Spec.Containers = test.init, test.main
		plan := makePlan(t, in, allocator.Predict)
		if len(plan.NodeClaims) != 1 {
			t.Fatalf("%s: %+v", name, plan.NotPlaced)
		}
		claim := plan.NodeClaims[0].Pods[0].Claims[0]
		var got []string
		for _, device := range claim.Devices {
			got = append(got, device.Request+" "+device.Device)
		}
		if diff := cmp.Diff(test.want, got); diff != "" || claim.Name != "a-extended-resources" {
			t.Errorf("%s: claim %s: %s", name, claim.Name, diff)
		}
	}
}

// A node whose device plugin offers the resource needs no claim, as long as it has some.
func TestExtendedResourcesOfADevicePlugin(t *testing.T) {
	in := newInput(machine("m", 1, "", gpus(2)...))
	in.Classes[0].Spec.ExtendedResourceName = new(string(extended))
	addNode(in, "node-a", "").Status.Allocatable = corev1.ResourceList{extended: resource.MustParse("3")}
	addNode(in, "node-b", "", gpus(1)...)
	running := addPod(in, "running")
	running.Spec.NodeName, running.Status.Phase = "node-a", corev1.PodRunning
	running.Spec.Containers = []corev1.Container{container("", 1)}
	for _, name := range []string{"a", "b", "c", "d"} {
		addPod(in, name).Spec.Containers = []corev1.Container{container("", 1)}
	}
	want := []string{"node-a: a b", "node-b: c(gpu-0)", "new-1 m: d(gpu-0)", "bound 1"}
	if diff := cmp.Diff(want, outline(makePlan(t, in, allocator.Predict))); diff != "" {
		t.Error(diff)
	}
}

// The implicit name of a class, and a resource that no class serves.
func TestOtherExtendedResources(t *testing.T) {
	in := newInput(machine("m", 1, "", gpus(2)...))
	for i, name := range []corev1.ResourceName{"deviceclass.resource.kubernetes.io/gpu", "example.com/nic"} {
		pod := addPod(in, fmt.Sprint(i))
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{name: resource.MustParse("1")}
	}
	plan := makePlan(t, in, allocator.Predict)
	if diff := cmp.Diff([]string{"new-1 m: 0(gpu-0)", "not placed: 1", "bound 1"}, outline(plan)); diff != "" {
		t.Error(diff)
	}
	for _, c := range plan.NotPlaced[0].Candidates {
		if c.Reason != "it has no example.com/nic" {
			t.Errorf("%+v", c)
		}
	}
}

func TestClaimsThatCannotBeUsed(t *testing.T) {
	in := newInput(machine("m", 1, "", gpus(2)...))
	addPod(in, "neither").Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x"}}
	addClaim(in, "leaving", request(1)).DeletionTimestamp = new(now)
	addPod(in, "of-leaving", "claim:leaving")
	stranger := addPod(in, "stranger", "template:t")
	addTemplate(in, "t", request(1))
	addClaim(in, "of-another", request(1))
	stranger.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c0", ResourceClaimName: new("of-another")}}
	unneeded := addPod(in, "unneeded", "template:t")
	unneeded.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c0"}}
	// Two claims that would have the same name.
	addPod(in, "a", "template:t").Spec.ResourceClaims[0].Name = "b-c"
	addPod(in, "a-b", "template:t").Spec.ResourceClaims[0].Name = "c"
	plan := makePlan(t, in, allocator.Predict)
	got := map[string]string{}
	for _, pod := range plan.NotPlaced {
		got[pod.Name] = pod.Reason
	}
	want := map[string]string{
		"neither":    "claim x names neither a ResourceClaim nor a ResourceClaimTemplate",
		"of-leaving": "ResourceClaim leaving is being deleted",
		"stranger":   "ResourceClaim of-another was not made for this pod, but for another of the same name: delete the claim",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var names []string
	for _, n := range plan.NodeClaims {
		for _, pod := range n.Pods {
			for _, claim := range pod.Claims {
				names = append(names, claim.Name)
			}
		}
	}
	if diff := cmp.Diff([]string{"a-b-c", "a-b-c-2"}, names); diff != "" {
		t.Error(diff)
	}
}

// What pods that leave hold is free for a plan, and held for an explanation.
func TestPodsThatAreBeingDeleted(t *testing.T) {
	in := newInput()
	node := addNode(in, "node-a", "4", gpus(1)...)
	leaving := requests(addPod(in, "leaving", "claim:held"), "3")
	leaving.Spec.NodeName, leaving.DeletionTimestamp = node.Name, new(now)
	hold(addClaim(in, "held", request(1)), "node-a", "gpu-0", leaving)
	addTemplate(in, "one", request(1))
	pod := requests(addPod(in, "a", "template:one"), "2")
	if diff := cmp.Diff([]string{"node-a: a(gpu-0)", "bound 0"}, outline(makePlan(t, in, allocator.Predict))); diff != "" {
		t.Error(diff)
	}
	e, err := simulate.Explain(t.Context(), in, pod, simulate.Options{KeepTerminating: true})
	if err != nil || e.Fits() || e.Nodes[0].Reason != "cpu: 1 of 4 left, 2 wanted" {
		t.Errorf("%+v, %v", e, err)
	}
}
