package catalog

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/gpu/products"
)

func TestTypesAreReadAndInOrder(t *testing.T) {
	types, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	clouds := map[string]int{}
	for _, it := range types {
		if seen[it.Name] {
			t.Errorf("%s is there twice", it.Name)
		}
		seen[it.Name] = true
		clouds[it.Cloud]++
	}
	if diff := cmp.Diff(map[string]int{"aws": 50, "azure": 13, "gcp": 29}, clouds); diff != "" {
		t.Errorf("instance types of each cloud: %s", diff)
	}
	if !slices.IsSortedFunc(types, compareTypes) {
		t.Error("the types are not in order")
	}
	first := []string{}
	for _, it := range types[:4] {
		first = append(first, it.Name)
	}
	if diff := cmp.Diff([]string{"g4dn.2xlarge", "g4dn.4xlarge", "g4dn.8xlarge", "g4dn.12xlarge"}, first); diff != "" {
		t.Error(diff)
	}
}

// From the documentation of the clouds.
func TestKnownTypes(t *testing.T) {
	for _, test := range []struct {
		name, product string
		gpus          int
		memoryMiB     uint64
	}{
		{"p3.16xlarge", "Tesla V100-SXM2-16GB", 8, 16384},
		{"p3dn.24xlarge", "Tesla V100-SXM2-32GB", 8, 32768},
		{"p4d.24xlarge", "NVIDIA A100-SXM4-40GB", 8, 40960},
		{"p4de.24xlarge", "NVIDIA A100-SXM4-80GB", 8, 81920},
		{"p5.48xlarge", "NVIDIA H100 80GB HBM3", 8, 81559},
		{"p5en.48xlarge", "NVIDIA H200", 8, 143771},
		{"p6-b200.48xlarge", "NVIDIA B200", 8, 183359},
		{"g4dn.metal", "Tesla T4", 8, 15360},
		{"g5.12xlarge", "NVIDIA A10G", 4, 23028},
		{"g6.24xlarge", "NVIDIA L4", 4, 23034},
		{"g6e.48xlarge", "NVIDIA L40S", 8, 46068},
		{"g7e.12xlarge", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 2, 97887},
		{"a2-megagpu-16g", "NVIDIA A100-SXM4-40GB", 16, 40960},
		{"a3-megagpu-8g", "NVIDIA H100 80GB HBM3", 8, 81559},
		{"g2-standard-24", "NVIDIA L4", 2, 23034},
		{"g4-standard-384", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 8, 97887},
		{"Standard_NC64as_T4_v3", "Tesla T4", 4, 15360},
		{"Standard_NC96ads_A100_v4", "NVIDIA A100 80GB PCIe", 4, 81920},
		{"Standard_NC80adis_H100_v5", "NVIDIA H100 NVL", 2, 95830},
		{"Standard_ND96isr_H200_v5", "NVIDIA H200", 8, 143771},
	} {
		it, err := Lookup(test.name)
		if err != nil {
			t.Error(err)
			continue
		}
		if it.Product.ProductName != test.product || it.GPUs != test.gpus || it.Product.Memory.TotalMiB != test.memoryMiB || it.Arch != "amd64" {
			t.Errorf("%s has %d %s of %d MiB, %s", it.Name, it.GPUs, it.Product.ProductName, it.Product.Memory.TotalMiB, it.Arch)
		}
	}
}

func TestLookupNamesThoseAlike(t *testing.T) {
	for name, want := range map[string]string{
		"p5.48xlrge":               `unknown instance type "p5.48xlrge"; known are: p5.48xlarge`,
		"P5.48XLARGE":              "known are: p5.48xlarge",
		"standard_nd96isr_h100_v5": "known are: Standard_ND96isr_H100_v5",
		"p5.2xlarge":               "known are: p5.4xlarge, p5.48xlarge, g5.2xlarge",
		"a3":                       "a3-highgpu-1g",
		"m5.large":                 "none is called alike; it can be added with a file",
		"":                         "none is called alike",
	} {
		if _, err := Lookup(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", name, err, want)
		}
	}
}

func TestMergeReplacesByName(t *testing.T) {
	known := []InstanceType{{Name: "a", Cloud: "aws", GPUs: 1}, {Name: "b", Cloud: "aws", GPUs: 1}}
	own := []InstanceType{{Name: "b", Cloud: "own", GPUs: 2}, {Name: "a2", Cloud: "aws", GPUs: 4}}
	got := Merge(known, own)
	want := []InstanceType{{Name: "a", Cloud: "aws", GPUs: 1}, {Name: "a2", Cloud: "aws", GPUs: 4}, {Name: "b", Cloud: "own", GPUs: 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(known) != 2 || known[1].GPUs != 1 {
		t.Errorf("the known types were changed: %v", known)
	}
}

// ownFile is a file of own types, with a product of their own.
const ownFile = `
cloud: example
products:
- name: x100
  productName: NVIDIA X100
  brand: Nvidia
  architecture: Hopper
  computeCapability: "9.0"
  memory: {totalMiB: 20000}
  nvlink: {topology: bridge}
  mig:
    memorySlices: 2
    profiles:
    - name: 1g.10gb
      id: 19
      slices: 1
      memoryMiB: 9984
      multiprocessors: 16
      engines: {copy: 1, decoder: 1}
      maxInstances: 2
      placements: {size: 1, starts: [0, 1]}
instanceTypes:
- {name: dgx-h100, product: h100-sxm5-80gb, gpus: 8}
- name: x-large
  arch: arm64
  product: x100
  gpus: 4
  pcieRoots: [[2, 3]]
`

func TestLoadOwnTypes(t *testing.T) {
	types, err := Load(strings.NewReader(ownFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(types) != 2 || types[0].Name != "dgx-h100" || types[0].Product.ProductName != "NVIDIA H100 80GB HBM3" || types[0].Cloud != "example" || types[0].Arch != "amd64" {
		t.Errorf("types are %+v", types)
	}
	own := types[1]
	if own.Name != "x-large" || own.Arch != "arm64" || own.GPUs != 4 || own.Product.Name != "x100" || own.Product.MIG.Profiles[0].MemoryMiB != 9984 {
		t.Errorf("own type is %+v", own)
	}
	templates, err := Templates(own, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range templates[0].Bindings {
		got = append(got, string(b.Attribute)+" "+strings.Join(b.Devices, " "))
	}
	partitions := func(gpu string) string { return gpu + "-mig-1g-10gb-1 " + gpu + "-mig-1g-10gb-0" }
	gpu := func(gpu string) string { return partitions(gpu) + " " + gpu }
	const a, b, c, d = "gpu-00000000", "gpu-00000001", "gpu-00000002", "gpu-00000003"
	want := []string{
		"resource.kubernetes.io/pciBusID " + gpu(a), "gpu.apportion.dev/uuid " + a, "gpu.apportion.dev/parentUUID " + partitions(a),
		"resource.kubernetes.io/pciBusID " + gpu(b), "gpu.apportion.dev/uuid " + b, "gpu.apportion.dev/parentUUID " + partitions(b),
		"resource.kubernetes.io/pciBusID " + gpu(c), "gpu.apportion.dev/uuid " + c, "gpu.apportion.dev/parentUUID " + partitions(c),
		"resource.kubernetes.io/pciBusID " + gpu(d), "gpu.apportion.dev/uuid " + d, "gpu.apportion.dev/parentUUID " + partitions(d),
		"resource.kubernetes.io/pcieRoot " + gpu(a),
		"resource.kubernetes.io/pcieRoot " + gpu(b),
		"resource.kubernetes.io/pcieRoot " + gpu(c) + " " + gpu(d),
		"gpu.apportion.dev/nvlinkDomain " + a + " " + b,
		"gpu.apportion.dev/nvlinkDomain " + c + " " + d,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoadRefusesMistakesInOneLine(t *testing.T) {
	replace := func(from, to string) string {
		if !strings.Contains(ownFile, from) {
			t.Fatalf("the file has no %q", from)
		}
		return strings.Replace(ownFile, from, to, 1)
	}
	for want, text := range map[string]string{
		"cloud \"\"":                                                          replace("cloud: example", ""),
		`unknown field "colour"`:                                              replace("cloud: example", "cloud: example\ncolour: red"),
		`unknown field "gpu"`:                                                 replace("gpus: 8", "gpu: 8"),
		"instanceTypes is empty":                                              "cloud: example\ninstanceTypes: []",
		`instance type "x-large": unknown GPU`:                                replace("product: x100\n  gpus", "product: x101\n  gpus"),
		"described under products":                                            replace("product: x100\n  gpus", "product: x101\n  gpus"),
		`instance type "dgx-h100": gpus is 0`:                                 replace("gpus: 8", "gpus: 0"),
		"gpus is 65: give":                                                    replace("gpus: 8", "gpus: 65"),
		`instance type "x-large": arch "x86"`:                                 replace("arm64", "x86"),
		`instance type "": the name must be`:                                  replace("name: dgx-h100", `name: ""`),
		`instance type "dgx h100": the name`:                                  replace("name: dgx-h100", "name: dgx h100"),
		`instance type "dgx-h100": it is there`:                               replace("name: x-large", "name: dgx-h100"),
		"pcieRoots names GPU 4: the GPUs are 0 t":                             replace("[[2, 3]]", "[[3, 4]]"),
		"pcieRoots names GPU 2 twice":                                         replace("[[2, 3]]", "[[2, 3], [2]]"),
		`product "x100": brand "NVIDIA" is`:                                   replace("brand: Nvidia", "brand: NVIDIA"),
		"computeCapability \"9\" is not of the form \"9.0\"; memory.totalMiB": strings.Replace(replace(`"9.0"`, `"9"`), "totalMiB: 20000", "totalMiB: 0", 1),
		`product "x100" is there twice`:                                       replace("instanceTypes:", strings.Split(strings.Split(ownFile, "products:\n")[1], "instanceTypes:")[0]+"instanceTypes:"),
		"error converting YAML":                                               "cloud: [",
	} {
		_, err := Load(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q", err, want)
		}
	}
	if _, err := LoadFile(t.TempDir() + "/none.yaml"); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// Beside what only the node knows, the facts of a type are those that a node reports.
func TestNodeIsWhatTheInventorySays(t *testing.T) {
	for _, product := range products.All() {
		t.Run(product.Name, func(t *testing.T) {
			it := InstanceType{Product: product, GPUs: 2}
			m := newFakeMachine(t, product, 2, Policy{DriverVersion: fakegpu.DefaultDriverVersion})
			want := m.node(t, 2)
			want.DriverVersion, want.CUDADriverVersion = inventory.Version{}, inventory.Version{}
			placeholders := map[string]string{want.GPUs[0].PCIBusID: "0000:01:00.0", want.GPUs[1].PCIBusID: "0000:02:00.0"}
			for i := range want.GPUs {
				gpu := &want.GPUs[i]
				gpu.UUID = []string{"GPU-00000000-0000-0000-0000-000000000000", "GPU-00000001-0000-0000-0000-000000000000"}[i]
				gpu.PCIBusID, gpu.PCIeRoot, gpu.NUMANode, gpu.MemoryLimits = placeholders[gpu.PCIBusID], "", nil, nil
				for j, peer := range gpu.NVLink.Peers {
					gpu.NVLink.Peers[j] = placeholders[peer]
				}
			}
			if diff := cmp.Diff(want, Node(it)); diff != "" {
				t.Errorf("facts (-node +type): %s", diff)
			}
		})
	}
}

func TestTheManualsExampleLoads(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/catalog.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(manual), "```yaml\n")
	example, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("docs/catalog.md has no example")
	}
	types, err := Load(strings.NewReader(example))
	if err != nil {
		t.Fatal(err)
	}
	if len(types) != 2 || types[1].Name != "x-large" || types[1].Product.MIG == nil {
		t.Errorf("types are %+v", types)
	}
}
