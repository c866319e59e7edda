package cdi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

const (
	vendor = "gpu.apportion.dev"
	uid    = types.UID("11111111-2222-4333-8444-555555555555")
)

// fixture is a Writer on a fake machine.
type fixture struct {
	*Writer
	machine *fakegpu.Machine
	dir     string
	gpus    []string
}

// newFixture has two A100s unless other products are named.
func newFixture(t testing.TB, products ...string) *fixture {
	t.Helper()
	if products == nil {
		products = []string{"a100-sxm4-40gb", "a100-sxm4-40gb"}
	}
	machine, err := fakegpu.Create(filepath.Join(t.TempDir(), "machine"), fakegpu.Spec{
		Node: "node-a", DriverVersion: "580.95.05", GPUs: products,
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{machine: machine, dir: filepath.Join(t.TempDir(), "cdi")}
	f.Writer = f.newWriter(t, machine.NVML())
	summary, err := machine.Summary()
	if err != nil {
		t.Fatal(err)
	}
	for _, gpu := range summary.GPUs {
		f.gpus = append(f.gpus, gpu.UUID)
	}
	return f
}

// newWriter is a Writer that asks that library about the fixture's machine.
func (f *fixture) newWriter(t testing.TB, library nvml.Interface) *Writer {
	t.Helper()
	w, err := New(Options{
		Vendor: vendor, Dir: f.dir, Library: library, DriverRoot: f.machine.DriverRoot(), HostDriverRoot: "/host/driver",
		HookPath: "/var/lib/kubelet/plugins/gpu.apportion.dev/nvidia-cdi-hook",
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// createMIG makes a partition of the GPU with that index and returns its UUID.
func (f *fixture) createMIG(t testing.TB, gpu int, profile string, start int) string {
	t.Helper()
	uuid, err := f.machine.CreateMIG(f.gpus[gpu], profile, start)
	if err != nil {
		t.Fatal(err)
	}
	return uuid
}

// write writes the claim's spec for the GPUs and reads it as a runtime does.
func (f *fixture) write(t *testing.T, gpus ...string) (*cdi.Spec, string) {
	t.Helper()
	var devices []Device
	for i, gpu := range gpus {
		devices = append(devices, Device{Name: DeviceName(uid, "gpu-"+string(rune('a'+i)), nil), GPU: gpu})
	}
	return f.writeDevices(t, devices)
}

func (f *fixture) writeDevices(t *testing.T, devices []Device) (*cdi.Spec, string) {
	t.Helper()
	rendered, err := f.Render(t.Context(), devices)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(uid, rendered); err != nil {
		t.Fatal(err)
	}
	spec, err := cdi.ReadSpec(filepath.Join(f.dir, vendor+"-claim_"+string(uid)+".json"), 0)
	if err != nil {
		t.Fatal(err)
	}
	return spec, rendered.Digest
}

func nodePaths(edits specs.ContainerEdits) []string {
	var paths []string
	for _, d := range edits.DeviceNodes {
		paths = append(paths, d.Path)
	}
	slices.Sort(paths)
	return paths
}

func TestSpecHasTheClaimsDevicesAndNoOther(t *testing.T) {
	f := newFixture(t)
	spec, _ := f.write(t, f.gpus[1])
	if spec.Kind != "gpu.apportion.dev/claim" || len(spec.Devices) != 1 || spec.Devices[0].Name != string(uid)+"-gpu-a" {
		t.Fatalf("spec is of kind %s with %d devices", spec.Kind, len(spec.Devices))
	}
	if own := ownNodes(spec.Devices[0].ContainerEdits); !slices.Equal(own, []string{"/dev/nvidia1"}) {
		t.Errorf("device nodes are %v, want /dev/nvidia1", own)
	}
	common := nodePaths(spec.ContainerEdits)
	for _, want := range []string{"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"} {
		if !slices.Contains(common, want) {
			t.Errorf("no %s among the common nodes %v", want, common)
		}
	}
	if !slices.Contains(spec.ContainerEdits.Env, "NVIDIA_VISIBLE_DEVICES=void") {
		t.Errorf("environment is %v, want NVIDIA_VISIBLE_DEVICES=void", spec.ContainerEdits.Env)
	}
	libraries := 0
	for _, m := range spec.ContainerEdits.Mounts {
		if !strings.HasPrefix(m.HostPath, "/host/driver/") && m.HostPath != "/dev/null" {
			t.Errorf("mount from %s, which the container runtime does not see", m.HostPath)
		}
		if strings.HasSuffix(m.ContainerPath, "/libcuda.so.580.95.05") {
			libraries++
		}
	}
	if libraries != 1 {
		t.Errorf("libcuda.so.580.95.05 is mounted %d times", libraries)
	}
	for _, hook := range append(spec.ContainerEdits.Hooks, spec.Devices[0].ContainerEdits.Hooks...) {
		if hook.Path != "/var/lib/kubelet/plugins/gpu.apportion.dev/nvidia-cdi-hook" {
			t.Errorf("hook program is %s", hook.Path)
		}
		// It takes limits from the environment that the tenant writes.
		if slices.Contains(hook.Args, "apply-cuda-memory-limits") {
			t.Error("the tenant can set memory limits")
		}
	}
}

func TestSpecFollowsTheDriverAtThatMoment(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, f *fixture)
		want   string // A path that the spec mounts, or its device node.
		gone   string
	}{
		{"driver upgrade", func(t *testing.T, f *fixture) {
			if err := f.machine.SetDriverVersion("590.44.01"); err != nil {
				t.Fatal(err)
			}
		}, "libcuda.so.590.44.01", "libcuda.so.580.95.05"},
		{"library added", func(t *testing.T, f *fixture) {
			from, err := filepath.Glob(filepath.Join(f.machine.DriverRoot(), "usr/lib*/*/libcuda.so.580.95.05"))
			if err != nil || len(from) != 1 {
				t.Fatal(from, err)
			}
			data, err := os.ReadFile(from[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(filepath.Dir(from[0]), "libnvidia-extra.so.580.95.05"), data, 0o755); err != nil {
				t.Fatal(err)
			}
		}, "libnvidia-extra.so.580.95.05", "nothing"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			_, before := f.write(t, f.gpus[0])
			test.change(t, f)
			spec, after := f.write(t, f.gpus[0])
			if before == after {
				t.Error("the digest has not changed")
			}
			var paths []string
			for _, m := range spec.ContainerEdits.Mounts {
				paths = append(paths, filepath.Base(m.ContainerPath))
			}
			if !slices.Contains(paths, test.want) || slices.Contains(paths, test.gone) {
				t.Errorf("mounts are %v, want %s and not %s", paths, test.want, test.gone)
			}
		})
	}
}

func TestIntactNoticesWhatHappenedToASpec(t *testing.T) {
	f := newFixture(t)
	_, digest := f.write(t, f.gpus[0], f.gpus[1])
	check := func(want bool) {
		t.Helper()
		if got, err := f.Intact(uid, digest); err != nil || got != want {
			t.Errorf("intact: %t, %v; want %t", got, err, want)
		}
	}
	check(true)
	path := filepath.Join(f.dir, vendor+"-claim_"+string(uid)+".json")
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	check(false)
	if err := f.Remove(uid); err != nil {
		t.Fatal(err)
	}
	check(false)
	if err := f.Remove(uid); err != nil {
		t.Errorf("removing it again: %v", err)
	}
}

func TestSweepLeavesOtherDriversSpecsAlone(t *testing.T) {
	f := newFixture(t)
	f.write(t, f.gpus[0])
	files := map[string]bool{ // name -> kept
		vendor + "-claim_gone.json":                       false,
		vendor + "_metadata_gone_gpu.json":                false,
		vendor + "_metadata_" + string(uid) + "_gpu.json": true,
		"." + vendor + "-claim_gone.json.tmp-1":           false,
		"." + vendor + "_metadata_gone_gpu.json.tmp-1":    false,
		".other.example.com-claim_gone.json.tmp-1":        true,
		"nvidia.yaml":                                      true,
		"gpu.nvidia.com-claim_gone.json":                   true,
		vendor + "-claim_" + string(uid) + ".json":         true,
		"other.example.com_metadata_" + "gone" + "_x.json": true,
	}
	for name := range files {
		path := filepath.Join(f.dir, name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Sweep(func(claim types.UID) bool { return claim == uid }); err != nil {
		t.Fatal(err)
	}
	for name, kept := range files {
		if _, err := os.Stat(filepath.Join(f.dir, name)); (err == nil) != kept {
			t.Errorf("%s: kept %t, want %t", name, err == nil, kept)
		}
	}
}

func TestNamesAreNeverUsedAgain(t *testing.T) {
	share := ptr.To(types.UID("s1"))
	names := []string{
		DeviceName("c1", "gpu-4f3a1b2c", nil), DeviceName("c1", "gpu-4f3a1b2c", share), DeviceName("c2", "gpu-4f3a1b2c", share),
	}
	want := []string{"c1-gpu-4f3a1b2c", "c1-gpu-4f3a1b2c-s1", "c2-gpu-4f3a1b2c-s1"}
	if !slices.Equal(names, want) {
		t.Errorf("names are %v, want %v", names, want)
	}
}

func TestDeviceNodesAreTheMachinesWhereTheDriverRootHasNone(t *testing.T) {
	f := newFixture(t)
	if got := devRoot(f.machine.DriverRoot()); got != f.machine.DriverRoot() {
		t.Errorf("device nodes are looked for under %s", got)
	}
	if got := devRoot(t.TempDir()); got != "/" {
		t.Errorf("device nodes are looked for under %s", got)
	}
}

func TestContainersDoNotGetTheHostsOwnMPSDaemon(t *testing.T) {
	library := &specs.Mount{HostPath: "/usr/lib/libcuda.so", ContainerPath: "/usr/lib/libcuda.so"}
	edits := specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: "/tmp/nvidia-mps", ContainerPath: "/tmp/nvidia-mps"}, library}}
	withoutHostMPS(&edits)
	if len(edits.Mounts) != 1 || edits.Mounts[0] != library {
		t.Errorf("%d mounts are left", len(edits.Mounts))
	}
}

func TestDriverNameMustBeAVendor(t *testing.T) {
	if _, err := New(Options{Vendor: "not a vendor"}); err == nil || !strings.Contains(err.Error(), `"not a vendor"`) {
		t.Errorf("error is %v", err)
	}
}
