package karpenter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"apportion.dev/apportion/pkg/plan/catalog"
)

// pairs is an instance type of which it is known which GPUs share a PCIe root.
const pairs = `
cloud: test
instanceTypes:
- name: h100-pairs
  product: h100-sxm5-80gb
  gpus: 8
  pcieRoots: [[0, 4], [1, 5], [2, 6], [3, 7]]
`

func catalogType(t *testing.T, found catalog.InstanceType) *cloudprovider.InstanceType {
	t.Helper()
	templates, err := catalog.Templates(found, catalog.Policy{DriverVersion: "580.95.05", CUDADriverVersion: "13.0"})
	if err != nil {
		t.Fatal(err)
	}
	return instanceType(t, found.Name, templates...)
}

func gpuNames(digits string) []string {
	var names []string
	for _, d := range digits {
		names = append(names, "gpu-0000000"+string(d))
	}
	return names
}

// Karpenter places claims of every kind on nodes that do not exist.
func TestAllocateOnCatalogTypes(t *testing.T) {
	types, err := catalog.Load(strings.NewReader(pairs))
	if err != nil {
		t.Fatal(err)
	}
	p5, err := catalog.Lookup("p5.48xlarge")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		found catalog.InstanceType
		steps []step
	}{
		{
			name:  "8 GPUs",
			found: p5,
			steps: []step{
				{claim("c1", request("gpu.apportion.dev", 8)), gpuNames("01234567")},
				{claim("c2", request("mig.apportion.dev", 1)), nil},
			},
		},
		{
			name:  "a partition, two GPUs with one PCIe root, a share, and what is left",
			found: types[0],
			steps: []step{
				{claim("c1", request("mig.apportion.dev", 1, `device.attributes["gpu.apportion.dev"].profile == "1g.10gb"`)), []string{"gpu-00000000-mig-1g-10gb-6"}},
				{matching(claim("c2", request("gpu.apportion.dev", 2)), pcieRoot), gpuNames("15")},
				{share(claim("c3", request("gpu.apportion.dev", 1)), "10Gi"), gpuNames("2")},
				{claim("c4", request("gpu.apportion.dev", 5)), nil},
				{claim("c5", request("gpu.apportion.dev", 4)), gpuNames("3467")},
			},
		},
		{
			name:  "three GPUs with one PCIe root",
			found: types[0],
			steps: []step{{matching(claim("c1", request("gpu.apportion.dev", 3)), pcieRoot), nil}},
		},
		{
			name:  "two partitions of one GPU",
			found: types[0],
			steps: []step{
				{claim("c1", request("mig.apportion.dev", 1, `device.attributes["gpu.apportion.dev"].profile == "4g.40gb"`)), []string{"gpu-00000000-mig-4g-40gb-0"}},
				// Only one more of this size fits on the first GPU.
				{
					matching(claim("c2", request("mig.apportion.dev", 2, `device.attributes["gpu.apportion.dev"].profile == "3g.40gb"`)), "gpu.apportion.dev/parentUUID"),
					[]string{"gpu-00000001-mig-3g-40gb-4", "gpu-00000001-mig-3g-40gb-0"},
				},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLoop(catalogType(t, tc.found))
			for _, s := range tc.steps {
				placed, err := l.place(t, s.claim)
				if err != nil && !errors.Is(err, errRefused) {
					t.Fatalf("claim %s: %v", s.claim.Name, err)
				}
				if diff := cmp.Diff(s.want, placed[tc.found.Name]); diff != "" {
					t.Errorf("claim %s (-want +got):\n%s", s.claim.Name, diff)
				}
			}
		})
	}
}

// Nothing of what the catalog foretells is lost on the way to Karpenter.
func TestAllCatalogTypes(t *testing.T) {
	for _, found := range catalog.Types() {
		t.Run(found.Name, func(t *testing.T) {
			l := newLoop(catalogType(t, found))
			got, err := l.place(t, claim("c1", request("gpu.apportion.dev", int64(found.GPUs))))
			if err != nil {
				t.Fatal(err)
			}
			if len(got[found.Name]) != found.GPUs {
				t.Errorf("got %v, want %d GPUs", got, found.GPUs)
			}
			if _, err := l.place(t, claim("c2", request("gpu.apportion.dev", 1))); !errors.Is(err, errRefused) {
				t.Errorf("one more GPU: %v", err)
			}
		})
	}
}
