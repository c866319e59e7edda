package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"apportion.dev/apportion/pkg/plan/catalog"
)

// ownTypes is a file of instance types.
func ownTypes(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "types.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readSlices reads the documents of a YAML output.
func readSlices(t *testing.T, out string) []*resourceapi.ResourceSlice {
	t.Helper()
	var slices []*resourceapi.ResourceSlice
	for document := range strings.SplitSeq(out, "\n---\n") {
		slice := &resourceapi.ResourceSlice{}
		if err := yaml.UnmarshalStrict([]byte(document), slice); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		slices = append(slices, slice)
	}
	return slices
}

func TestTemplatesListsTypes(t *testing.T) {
	got := ok(t, "templates")
	for _, want := range [][]string{
		{"CLOUD", "INSTANCE", "TYPE", "ARCH", "GPUS", "PRODUCT", "MEMORY", "EACH"},
		{"aws", "p5.48xlarge", "amd64", "8", "NVIDIA", "H100", "80GB", "HBM3", "81559", "MiB"},
		{"azure", "Standard_NC80adis_H100_v5", "amd64", "2", "NVIDIA", "H100", "NVL", "95830", "MiB"},
		{"gcp", "g2-standard-24", "amd64", "2", "NVIDIA", "L4", "23034", "MiB"},
	} {
		found := false
		for line := range strings.Lines(got) {
			found = found || cmp.Equal(want, strings.Fields(line))
		}
		if !found {
			t.Errorf("no line %v in\n%s", want, got)
		}
	}
	var listed []listedType
	if err := json.Unmarshal([]byte(ok(t, "templates", "-o", "json")), &listed); err != nil {
		t.Fatal(err)
	}
	if len(listed) != strings.Count(got, "\n")-1 {
		t.Errorf("%d types in JSON, %d lines in the table", len(listed), strings.Count(got, "\n"))
	}
	want := listedType{Cloud: "aws", Name: "g4dn.2xlarge", Arch: "amd64", Product: "t4", ProductName: "Tesla T4", GPUs: 1, MemoryMiB: 15360}
	if diff := cmp.Diff(want, listed[0]); diff != "" {
		t.Error(diff)
	}
}

func TestTemplatesOfOneGPU(t *testing.T) {
	got := ok(t, "templates", "--instance-type", "Standard_NC4as_T4_v3", "--driver-version", "580.95.05", "--cuda-driver-version", "13.0", "--no-shares")
	want := `apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  annotations:
    resource.apportion.dev/bindings: '[{"attribute":"resource.kubernetes.io/pciBusID","devices":["gpu-00000000"]},{"attribute":"gpu.apportion.dev/uuid","devices":["gpu-00000000"]},{"attribute":"resource.kubernetes.io/pcieRoot","devices":["gpu-00000000"]}]'
  labels:
    node.kubernetes.io/instance-type: Standard_NC4as_T4_v3
  name: standard-nc4as-t4-v3-gpu.apportion.dev-0
spec:
  driver: gpu.apportion.dev
  pool:
    generation: 1
    name: ""
    resourceSliceCount: 2
  sharedCounters:
  - counters:
      memory-slice-0:
        value: "1"
    name: gpu-00000000
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  labels:
    node.kubernetes.io/instance-type: Standard_NC4as_T4_v3
  name: standard-nc4as-t4-v3-gpu.apportion.dev-1
spec:
  devices:
  - attributes:
      architecture:
        string: Turing
      brand:
        string: Nvidia
      cudaComputeCapability:
        version: 7.5.0
      cudaDriverVersion:
        version: 13.0.0
      driverVersion:
        version: 580.95.5
      memoryEnforcement:
        string: none
      migCapable:
        bool: false
      productName:
        string: Tesla T4
      type:
        string: gpu
    capacity:
      computePercent:
        value: "100"
      memory:
        value: 15Gi
      shares:
        value: "1"
    consumesCounters:
    - counterSet: gpu-00000000
      counters:
        memory-slice-0:
          value: "1"
    name: gpu-00000000
  driver: gpu.apportion.dev
  pool:
    generation: 1
    name: ""
    resourceSliceCount: 2
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTemplatesPrintWhatTheCatalogSays(t *testing.T) {
	it, err := catalog.Lookup("p5.48xlarge")
	if err != nil {
		t.Fatal(err)
	}
	policy := catalog.Policy{DriverName: "gpu.example.com", DriverVersion: "615.12"}
	policy.Devices.Sharing.MaxShares = 2
	policy.Devices.Sharing.MinMemory = 1 << 30
	policy.Devices.Sharing.ReservedMemory = 512 << 20
	want, err := catalog.Templates(it, policy)
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{
		"templates", "--instance-type", "p5.48xlarge", "--driver-name", "gpu.example.com", "--driver-version", "615.12",
		"--sharing-max-shares", "2", "--sharing-min-memory", "1Gi", "--sharing-reserved-memory", "512Mi",
	}
	fromYAML := readSlices(t, ok(t, append(flags, "-o", "yaml")...))
	templates, err := catalog.FromObjects(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(want, templates["p5.48xlarge"]) {
		t.Errorf("the slices are of other templates: %s", cmp.Diff(want, templates["p5.48xlarge"]))
	}
	var list struct {
		APIVersion, Kind string
		Items            []*resourceapi.ResourceSlice
	}
	if err := json.Unmarshal([]byte(ok(t, append(flags, "-o", "json")...)), &list); err != nil {
		t.Fatal(err)
	}
	if list.APIVersion != "v1" || list.Kind != "List" || !equality.Semantic.DeepEqual(fromYAML, list.Items) {
		t.Errorf("the %s %s holds other slices", list.APIVersion, list.Kind)
	}
}

func TestTemplatesFlagsChangeWhatIsOffered(t *testing.T) {
	devices := func(args ...string) (names string) {
		for _, slice := range readSlices(t, ok(t, append([]string{"templates", "--instance-type", "Standard_NC24ads_A100_v4"}, args...)...)) {
			for _, d := range slice.Spec.Devices {
				names += " " + d.Name
			}
		}
		return names
	}
	whole := " gpu-00000000"
	if got := devices(); got != whole {
		t.Errorf("devices are%s, want only the GPU", got)
	}
	partitioned := devices("--mig-mode")
	if !strings.HasPrefix(partitioned, " gpu-00000000-mig-1g-10gb-6 ") || strings.HasSuffix(partitioned, whole) {
		t.Errorf("devices in MIG mode are%s, want only partitions", partitioned)
	}
	if got := devices("--mig-mode", "--no-partitions"); got != "" {
		t.Errorf("devices are%s, want none", got)
	}
	enforced := func(args ...string) bool {
		out := ok(t, append([]string{"templates", "--instance-type", "g6.xlarge", "--driver-version", "615.12"}, args...)...)
		return strings.Contains(out, "memoryEnforcement:\n        string: nvml\n")
	}
	if !enforced() || enforced("--no-memory-enforcement") {
		t.Error("memory is enforced without cgroups, or not with them")
	}
}

func TestTemplatesOfOwnTypes(t *testing.T) {
	path := ownTypes(t, `
cloud: lab
instanceTypes:
- {name: dgx-h100, product: h100-sxm5-80gb, gpus: 8}
- {name: p5.48xlarge, product: l4, gpus: 1}
`)
	got := ok(t, "templates", "--types", path)
	if !strings.Contains(got, "lab     dgx-h100 ") || !strings.Contains(got, "lab     p5.48xlarge ") || strings.Contains(got, "aws     p5.48xlarge ") {
		t.Errorf("%s", got)
	}
	slices := readSlices(t, ok(t, "templates", "--types", path, "--instance-type", "p5.48xlarge,dgx-h100", "--no-partitions"))
	types := map[string]int{}
	for _, slice := range slices {
		types[slice.Labels["node.kubernetes.io/instance-type"]] += len(slice.Spec.Devices)
	}
	if diff := cmp.Diff(map[string]int{"p5.48xlarge": 1, "dgx-h100": 8}, types); diff != "" {
		t.Error(diff)
	}
}

func TestTemplatesMistakesAreOneLineAndExit2(t *testing.T) {
	bad := ownTypes(t, "cloud: lab\ninstanceTypes:\n- {name: a, product: gtx, gpus: 1}\n")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"p5.48xlarge"}, `unexpected argument "p5.48xlarge"`},
		{[]string{"--instance-type", "p5.48xlrge"}, `unknown instance type "p5.48xlrge"; known are: p5.48xlarge`},
		{[]string{"--instance-type", "m7.huge"}, "with a file of instance types (--types)"},
		{[]string{"--instance-type", "p5.48xlarge", "-o", "table"}, "-o table is for the list"},
		{[]string{"--instance-type", "p5.48xlarge", "-o", "xml"}, "known are: table, json, yaml"},
		{[]string{"--instance-type", "p5.48xlarge", "--driver-version", "new"}, `driver version "new" is no version`},
		{[]string{"--instance-type", "p5.48xlarge", "--driver-name", "GPU"}, `driver name "GPU"`},
		{[]string{"--instance-type", "p5.48xlarge", "--sharing-min-memory", "much"}, `--sharing-min-memory "much" is no amount`},
		{[]string{"--instance-type", "p5.48xlarge", "--sharing-reserved-memory", "much"}, `--sharing-reserved-memory "much" is no amount`},
		{[]string{"--instance-type", "p5.48xlarge", "--sharing-max-shares", "-1"}, "number of shares -1 is negative"},
		{[]string{"--types", "/nowhere/types.yaml"}, "/nowhere/types.yaml: no such file"},
		{[]string{"--types", bad}, `instance type "a": unknown GPU product "gtx"; known are: a100-pcie-80gb`},
	} {
		code, stdout, stderr := call(t, append([]string{"templates"}, test.args...)...)
		if code != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 ||
			!strings.HasPrefix(stderr, "apportion: ") || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: exit %d, want %q\nstdout: %s\nstderr: %s", test.args, code, test.want, stdout, stderr)
		}
	}
}
