package karpenter_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/catalog/karpenter"
)

func instanceType(t *testing.T, name string, templates ...allocator.Template) *cloudprovider.InstanceType {
	t.Helper()
	resources, err := karpenter.DynamicResources(templates)
	if err != nil {
		t.Fatal(err)
	}
	return &cloudprovider.InstanceType{Name: name, DynamicResources: resources}
}

// step is a claim and the devices it gets, nil if none.
type step struct {
	claim *resourceapi.ResourceClaim
	want  []string
}

// TestAllocate places claims one after the other on one node, with Karpenter's allocator.
func TestAllocate(t *testing.T) {
	single := fourGPUs()
	single.Bindings = []allocator.Binding{{Attribute: pcieRoot, Devices: []string{"gpu-1"}}}
	for _, tc := range []struct {
		name     string
		template allocator.Template
		steps    []step
	}{
		{
			name:     "all GPUs, and then no more",
			template: fourGPUs(),
			steps: []step{
				{claim("c1", request("gpu.apportion.dev", 4)), []string{"gpu-0", "gpu-1", "gpu-2", "gpu-3"}},
				{claim("c2", request("gpu.apportion.dev", 1)), nil},
				{claim("c3", request("mig.apportion.dev", 1)), nil},
			},
		},
		{
			name:     "two GPUs that will share a pcieRoot",
			template: fourGPUs(),
			steps: []step{
				{matching(claim("c1", request("gpu.apportion.dev", 2)), pcieRoot), []string{"gpu-0", "gpu-2"}},
				{matching(claim("c2", request("gpu.apportion.dev", 2)), pcieRoot), []string{"gpu-1", "gpu-3"}},
			},
		},
		{
			name:     "three GPUs that will not share a pcieRoot",
			template: fourGPUs(),
			steps:    []step{{matching(claim("c1", request("gpu.apportion.dev", 3)), pcieRoot), nil}},
		},
		{
			name:     "one GPU whose pcieRoot no other shares",
			template: single,
			steps: []step{
				{matching(claim("c1", request("gpu.apportion.dev", 2)), pcieRoot), nil},
				{matching(claim("c2", request("gpu.apportion.dev", 1)), pcieRoot), []string{"gpu-1"}},
			},
		},
		{
			name:     "partitions take the counters of their GPU",
			template: fourGPUs(),
			steps: []step{
				{claim("c1", request("mig.apportion.dev", 1)), []string{"gpu-0-mig-0"}},
				{claim("c2", request("gpu.apportion.dev", 3)), []string{"gpu-1", "gpu-2", "gpu-3"}},
				{claim("c3", request("gpu.apportion.dev", 1)), nil},
				{claim("c4", request("mig.apportion.dev", 1)), []string{"gpu-0-mig-1"}},
				{claim("c5", request("mig.apportion.dev", 1)), nil},
			},
		},
		{
			name:     "a share",
			template: fourGPUs(),
			steps: []step{
				{share(claim("c1", request("gpu.apportion.dev", 1)), "10Gi"), []string{"gpu-0"}},
				{claim("c2", request("mig.apportion.dev", 1)), []string{"gpu-1-mig-0"}},
				{share(claim("c3", request("gpu.apportion.dev", 1)), "80Gi"), nil},
			},
		},
		{
			// The package's documentation says so: if this fails, Karpenter was mended.
			name:     "a second share does not fit beside the first where there are counters",
			template: fourGPUs(),
			steps: []step{
				{share(claim("c1", request("gpu.apportion.dev", 4)), "10Gi"), []string{"gpu-0", "gpu-1", "gpu-2", "gpu-3"}},
				{share(claim("c2", request("gpu.apportion.dev", 1)), "10Gi"), nil},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLoop(instanceType(t, "four-gpus", tc.template))
			for _, s := range tc.steps {
				placed, err := l.place(t, s.claim)
				if err != nil && !errors.Is(err, errRefused) {
					t.Fatalf("claim %s: %v", s.claim.Name, err)
				}
				if diff := cmp.Diff(s.want, placed["four-gpus"]); diff != "" {
					t.Errorf("claim %s (-want +got):\n%s", s.claim.Name, diff)
				}
			}
		})
	}
}

// Of two instance types only the one with enough GPUs survives.
func TestAllocateOnOneOfTwoInstanceTypes(t *testing.T) {
	small := fourGPUs()
	small.Slices[1].Devices = small.Slices[1].Devices[:3]
	small.Bindings = nil
	l := newLoop(instanceType(t, "one-gpu", small), instanceType(t, "four-gpus", fourGPUs()))
	got, err := l.place(t, claim("c1", request("gpu.apportion.dev", 2)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]string{"four-gpus": {"gpu-0", "gpu-1"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
