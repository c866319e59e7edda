package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/fake/fakeroot"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// The environment of whoever runs the tests must not count.
func TestMain(m *testing.M) {
	for _, name := range []string{machineEnv, nodeEnv} {
		if err := os.Unsetenv(name); err != nil {
			os.Exit(1)
		}
	}
	// Nothing here loads the library of a machine.
	if err := os.Setenv(libraryEnv, os.DevNull); err != nil {
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// call runs the program.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), append([]string{"apportion"}, args...), &out, &err)
	return code, out.String(), err.String()
}

// ok runs the program, which must succeed, and gives its output.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := call(t, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("%v: exit %d, %s", args, code, stderr)
	}
	return stdout
}

// machine makes a machine and names it in the environment.
func machine(t *testing.T, gpus string) string {
	t.Helper()
	dir := t.TempDir()
	ok(t, "fake", "create", "--machine", dir, "--node", "node-a", "--gpus", gpus)
	t.Setenv(machineEnv, dir)
	return dir
}

func shown(t *testing.T) fakegpu.Summary {
	t.Helper()
	var s fakegpu.Summary
	if err := json.Unmarshal([]byte(ok(t, "fake", "show", "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFakeCreateTakesTheNodesEntry(t *testing.T) {
	const table = "node-a=h100-sxm5-80gb:2;node-b=none;*=t4:1"
	for node, want := range map[string]string{"node-a": "2 GPUs", "node-b": "0 GPUs", "node-c": "1 GPUs"} {
		got := ok(t, "fake", "create", "--machine", t.TempDir(), "--node", node, "--gpus", table)
		if !strings.Contains(got, "fake machine "+node+" in ") || !strings.Contains(got, want+", driver 580.95.05") {
			t.Errorf("%s: %s", node, got)
		}
	}
}

func TestFakeCreateKeepsAMachine(t *testing.T) {
	dir := machine(t, "h100-sxm5-80gb:2")
	got := ok(t, "fake", "create", "--machine", dir, "--node", "node-b", "--gpus", "t4", "--driver-version", "570.124.06")
	if !strings.Contains(got, "fake machine node-a") || !strings.Contains(got, "2 GPUs, driver 580.95.05") {
		t.Errorf("%s", got)
	}
}

func TestFakeCreatePutsTheLibraryInPlace(t *testing.T) {
	dir, library := t.TempDir(), filepath.Join(t.TempDir(), "nvml.so")
	create := func(content string) {
		t.Helper()
		if err := os.WriteFile(library, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		ok(t, "fake", "create", "--machine", dir, "--node", "node-a", "--gpus", "t4", "--library", library)
	}
	want := func(file, content string) {
		t.Helper()
		folder := filepath.Join(dir, "root", fakeroot.LibraryDir)
		if got, err := os.ReadFile(filepath.Join(folder, "libnvidia-ml.so.1")); err != nil || string(got) != content {
			t.Errorf("library has %q, %v; want %q", got, err, content)
		}
		if target, err := os.Readlink(filepath.Join(folder, "libnvidia-ml.so.1")); err != nil || target != file {
			t.Errorf("library is %q, %v; want %q", target, err, file)
		}
		if found, err := filepath.Glob(filepath.Join(folder, "libnvidia-ml.so.*.*")); err != nil || len(found) != 1 {
			t.Errorf("libraries are %v, %v; want one", found, err)
		}
	}
	create("first")
	want("libnvidia-ml.so.580.95.05", "first")
	ok(t, "fake", "driver-version", "590.44.01", "--machine", dir)
	want("libnvidia-ml.so.590.44.01", "first")
	create("second")
	want("libnvidia-ml.so.590.44.01", "second")
}

func TestWithoutALibraryFakeCreateSaysHowToGetOne(t *testing.T) {
	t.Setenv(libraryEnv, "")
	code, _, stderr := call(t, "fake", "create", "--machine", t.TempDir(), "--node", "node-a", "--gpus", "t4")
	if code != exitFailure || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "make build") || !strings.Contains(stderr, "--library") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestFlagsFromTheEnvironment(t *testing.T) {
	t.Setenv(machineEnv, t.TempDir())
	t.Setenv(nodeEnv, "node-e")
	ok(t, "fake", "create", "--gpus", "t4")
	if got := shown(t).Node; got != "node-e" {
		t.Errorf("node %q", got)
	}
}

func TestFakeCommandsChangeTheMachine(t *testing.T) {
	dir := machine(t, "a100-sxm4-40gb:2")
	uuid := shown(t).GPUs[1].UUID
	steps := []struct {
		args  []string
		check func(s fakegpu.Summary) bool
	}{
		{[]string{"lose-gpu", "--gpu", uuid}, func(s fakegpu.Summary) bool { return s.GPUs[1].State == "lost" }},
		{[]string{"restore-gpu", "--gpu", "1"}, func(s fakegpu.Summary) bool { return s.GPUs[1].State == "ok" }},
		{[]string{"fail", "memory", "--gpu", "0000:1B:00.0", "--code", "timeout"}, func(s fakegpu.Summary) bool {
			return cmp.Equal(s.GPUs[0].Failures, map[string]string{"memory": "timeout"})
		}},
		{[]string{"heal", "memory", "--gpu", "0"}, func(s fakegpu.Summary) bool { return len(s.GPUs[0].Failures) == 0 }},
		{[]string{"fail", "name", "--gpu", "0"}, func(s fakegpu.Summary) bool { return s.GPUs[0].Failures["name"] == "unknown" }},
		{[]string{"heal", "--gpu", "0"}, func(s fakegpu.Summary) bool { return len(s.GPUs[0].Failures) == 0 }},
		{[]string{"xid", "48", "--gpu", "0"}, func(s fakegpu.Summary) bool { return s.GPUs[0].State == "ok" }},
		{[]string{"set", "--gpu", "0", "--utilization", "80", "--memory-used", "2Gi", "--process", "pid=7,memory=1Gi,name=train"},
			func(s fakegpu.Summary) bool {
				return cmp.Equal(s.GPUs[0].Load, fakegpu.Load{GPUPercent: 80, MemoryBytes: 2 << 30,
					Processes: []fakegpu.Process{{PID: 7, Name: "train", MemoryBytes: 1 << 30}}})
			}},
		{[]string{"set", "--gpu", "0", "--memory-utilization", "10"}, func(s fakegpu.Summary) bool {
			return s.GPUs[0].Load.GPUPercent == 80 && s.GPUs[0].Load.MemoryPercent == 10
		}},
		{[]string{"mig", "mode", "on", "--gpu", "0"}, func(s fakegpu.Summary) bool { return s.GPUs[0].MIGMode == "pending on" }},
		{[]string{"set", "--gpu", "0", "--idle"}, func(s fakegpu.Summary) bool { return cmp.Equal(s.GPUs[0].Load, fakegpu.Load{}) }},
		{[]string{"reset-gpu", "--gpu", "0"}, func(s fakegpu.Summary) bool { return s.GPUs[0].MIGMode == "on" }},
		{[]string{"mig", "create", "3g.20gb", "--gpu", "0", "--start", "4"}, func(s fakegpu.Summary) bool {
			return len(s.GPUs[0].MIG) == 1 && s.GPUs[0].MIG[0].Profile == "3g.20gb" && s.GPUs[0].MIG[0].Start == 4
		}},
		{[]string{"mig", "destroy", "all", "--gpu", "0"}, func(s fakegpu.Summary) bool { return len(s.GPUs[0].MIG) == 0 }},
		{[]string{"mig", "mode", "off", "--gpu", "0"}, func(s fakegpu.Summary) bool { return s.GPUs[0].MIGMode == "off" }},
		{[]string{"remove-gpu", "--gpu", "1"}, func(s fakegpu.Summary) bool { return len(s.GPUs) == 1 }},
		{[]string{"add-gpu"}, func(s fakegpu.Summary) bool { return len(s.GPUs) == 2 && s.GPUs[1].UUID == uuid }},
		{[]string{"add-gpu", "t4", "--slot", "7"}, func(s fakegpu.Summary) bool { return len(s.GPUs) == 3 }},
		{[]string{"driver-version", "570.124.06"}, func(s fakegpu.Summary) bool { return s.DriverVersion == "570.124.06" }},
		{[]string{"symbols", "hide", "nvmlDeviceGetMigMode"}, func(s fakegpu.Summary) bool { return len(s.MissingSymbols) == 1 }},
		{[]string{"symbols", "show"}, func(s fakegpu.Summary) bool { return len(s.MissingSymbols) == 0 }},
		{[]string{"driver-version", "none"}, func(s fakegpu.Summary) bool { return s.DriverVersion == "" }},
	}
	for _, step := range steps {
		if out := ok(t, append([]string{"fake"}, step.args...)...); strings.Count(out, "\n") != 1 {
			t.Errorf("%v says %q", step.args, out)
		}
		if s := shown(t); !step.check(s) {
			t.Errorf("after %v: %+v", step.args, s)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "root/usr/bin/nvidia-smi")); !os.IsNotExist(err) {
		t.Errorf("nvidia-smi without a driver: %v", err)
	}
}

func TestMistakesAreOneLineAndExit2(t *testing.T) {
	machine(t, "t4:2")
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"fly"}, `unknown command "fly"; known are: explain, fake, inventory`},
		{[]string{"fake", "fly"}, "known are: add-gpu, allocate, create, driver-version"},
		{[]string{"fake", "mig", "fly"}, "known are: create, destroy, mode"},
		{[]string{"fake", "show", "--fly"}, "unknown flag: --fly"},
		{[]string{"fake", "show", "now"}, `unexpected argument "now"`},
		{[]string{"fake", "show", "-o", "xml"}, "known are: table, json, yaml"},
		{[]string{"inventory", "-o", "xml"}, "known are: table, json, yaml, slices"},
		{[]string{"fake", "create", "--gpus", "t4"}, "--node is missing"},
		{[]string{"fake", "create", "--node", "n"}, "--gpus is missing"},
		{[]string{"fake", "create", "--node", "n", "--gpus", "gtx"}, "known are: a100-pcie-80gb"},
		{[]string{"fake", "create", "--node", "n", "--gpus", "t4:17"}, "more than 16"},
		{[]string{"fake", "create", "--node", "n", "--gpus", "t4", "--driver-version", "x"}, "no driver version"},
		{[]string{"fake", "lose-gpu"}, "--gpu is missing"},
		{[]string{"fake", "lose-gpu", "--gpu", "5"}, "the machine has: 0 (0000:1b:00.0"},
		{[]string{"fake", "fail", "--gpu", "0"}, "PROPERTY is missing"},
		{[]string{"fake", "fail", "colour", "--gpu", "0"}, "known are: architecture"},
		{[]string{"fake", "fail", "name", "--gpu", "0", "--code", "bad"}, "known are: gpu-is-lost"},
		{[]string{"fake", "xid", "many", "--gpu", "0"}, "no XID"},
		{[]string{"fake", "set", "--gpu", "0"}, "nothing to set"},
		{[]string{"fake", "set", "--gpu", "0", "--utilization", "101"}, "0 to 100"},
		{[]string{"fake", "set", "--gpu", "0", "--memory-used", "much"}, "no amount of memory"},
		{[]string{"fake", "set", "--gpu", "0", "--process", "pid=1,colour=red"}, "known are: pid, memory, type, mig, name"},
		{[]string{"fake", "set", "--gpu", "0", "--process", "name=x"}, "pid is missing"},
		{[]string{"fake", "set", "--gpu", "0", "--process", "pid=1,type=art"}, "known are: compute, graphics"},
		{[]string{"fake", "mig", "create", "1g.5gb", "--gpu", "0"}, "a Tesla T4 has no MIG"},
		{[]string{"fake", "mig", "mode", "maybe", "--gpu", "0"}, "known are: on, off"},
		{[]string{"fake", "driver-version", "latest"}, "no driver version"},
		{[]string{"fake", "symbols", "hide", "printf"}, "no NVML function"},
		{[]string{"fake", "add-gpu", "gtx"}, "known are: a100-pcie-80gb"},
		{[]string{"fake", "add-gpu", "--slot", "16"}, "no slot 16"},
		{[]string{"inventory", "--fake", "gtx"}, "known are: a100-pcie-80gb"},
		{[]string{"inventory", "--fake", "t4", "--machine", "/tmp"}, "only one of"},
		{[]string{"inventory", "--nvml-library", "/nowhere/libnvidia-ml.so.1"}, "no such file"},
		{[]string{"inventory", "--fake", "t4", "--exclude-devices", "0"}, "PCI address"},
	}
	for _, test := range tests {
		code, stdout, stderr := call(t, test.args...)
		if code != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 ||
			!strings.HasPrefix(stderr, "apportion: ") || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: exit %d, want %q\nstdout: %s\nstderr: %s", test.args, code, test.want, stdout, stderr)
		}
	}
}

func TestOtherFailuresExit1(t *testing.T) {
	for _, args := range [][]string{
		{"fake", "show", "--machine", t.TempDir()},
		{"inventory", "--machine", t.TempDir()},
		{"inventory", "--driver-root", t.TempDir()},
	} {
		code, stdout, stderr := call(t, args...)
		if code != exitFailure || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit %d\nstdout: %s\nstderr: %s", args, code, stdout, stderr)
		}
	}
}

func TestWithoutMachineSaysWhatIsMissing(t *testing.T) {
	code, _, stderr := call(t, "fake", "show")
	if code != exitUsage || !strings.Contains(stderr, "--machine is missing") || !strings.Contains(stderr, machineEnv) {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// Every command has a line of what it does and an example that names it.
func TestEveryCommandHasHelp(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		if cmd.Short == "" || !strings.Contains(cmd.Example, strings.TrimPrefix(cmd.CommandPath(), "apportion")) {
			t.Errorf("%s: short %q, example %q", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRootCommand("apportion"))
}

func TestAsPluginOfKubectl(t *testing.T) {
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"/usr/bin/kubectl-apportion", "fake", "fail", "--help"}, &out, &stderr); code != 0 {
		t.Fatalf("exit %d: %s", code, &stderr)
	}
	for _, want := range []string{"  kubectl apportion fake fail PROPERTY [flags]", "  kubectl apportion fake fail memory --gpu 2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if code := run(t.Context(), []string{"kubectl-apportion", "fly"}, &out, &stderr); code != exitUsage ||
		!strings.HasPrefix(stderr.String(), "kubectl apportion: ") {
		t.Errorf("exit %d: %s", code, &stderr)
	}
}

func TestFakeShowForPeople(t *testing.T) {
	machine(t, "h100-sxm5-80gb:2")
	ok(t, "fake", "mig", "create", "1g.10gb", "--gpu", "1")
	ok(t, "fake", "set", "--gpu", "0", "--process", "pid=7,type=graphics")
	ok(t, "fake", "fail", "power", "--gpu", "0")
	got := ok(t, "fake", "show")
	for _, want := range []string{
		"Node node-a, driver 580.95.05, CUDA 13.0\n", "ok, power fails (unknown)", "0/81559 MiB", "1g.10gb", "graphics",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestFakeProducts(t *testing.T) {
	got := ok(t, "fake", "products")
	for _, want := range []string{"rtx-pro-6000-96gb", "NVIDIA A30", "1g.6gb+me", "bridge"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	var products []fakegpu.Product
	if err := yaml.UnmarshalStrict([]byte(ok(t, "fake", "products", "-o", "yaml")), &products); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(fakegpu.Products(), products); diff != "" {
		t.Error(diff)
	}
}

func TestInventoryAsTable(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	got := ok(t, "inventory", "--fake", "h100-sxm5-80gb:2", "--node-name", "node-a")
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != 4 || lines[0] != "Node node-a, driver 580.95.05, CUDA 13.0" {
		t.Fatalf("%s", got)
	}
	fields := strings.Fields(lines[2])
	if fields[0] != "gpu-b58867e9" || !strings.Contains(lines[2], "NVIDIA H100 80GB HBM3") || !strings.Contains(lines[2], "81559 MiB") || !strings.Contains(lines[2], "25 possible") {
		t.Errorf("%s", lines[2])
	}
	leftovers, err := filepath.Glob(filepath.Join(os.TempDir(), "apportion-inventory-*"))
	if err != nil || len(leftovers) > 0 {
		t.Errorf("left behind: %v %v", leftovers, err)
	}
}

func TestInventoryAsFacts(t *testing.T) {
	machine(t, "a30:2")
	var node inventory.Node
	if err := yaml.UnmarshalStrict([]byte(ok(t, "inventory", "-o", "yaml")), &node); err != nil {
		t.Fatal(err)
	}
	if len(node.GPUs) != 2 || node.GPUs[0].ProductName != "NVIDIA A30" || *node.GPUs[1].NUMANode != 1 {
		t.Errorf("%+v", node)
	}
	if diff := cmp.Diff([]string{"0000:9d:00.0"}, node.GPUs[0].NVLink.Peers); diff != "" {
		t.Error(diff)
	}
	var same inventory.Node
	if err := json.Unmarshal([]byte(ok(t, "inventory", "-o", "json")), &same); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(node, same); diff != "" {
		t.Errorf("JSON and YAML differ: %s", diff)
	}
}

func TestInventoryAsSlices(t *testing.T) {
	machine(t, "h100-sxm5-80gb:2")
	out := ok(t, "inventory", "-o", "slices", "--driver-name", "gpu.example.com")
	var devices, counters int
	documents := strings.Split(out, "\n---\n")
	for i, document := range documents {
		var slice resourceapi.ResourceSlice
		if err := yaml.UnmarshalStrict([]byte(document), &slice); err != nil {
			t.Fatal(err)
		}
		pool := slice.Spec.Pool
		if slice.Kind != "ResourceSlice" || slice.APIVersion != "resource.k8s.io/v1" || slice.Spec.Driver != "gpu.example.com" ||
			pool.Name != "node-a" || *slice.Spec.NodeName != "node-a" || pool.ResourceSliceCount != int64(len(documents)) {
			t.Errorf("document %d: %s", i, document)
		}
		devices += len(slice.Spec.Devices)
		counters += len(slice.Spec.SharedCounters)
	}
	if devices < 2 || counters != 2 {
		t.Errorf("%d devices and %d counter sets for 2 GPUs", devices, counters)
	}
}

func TestInventoryOfANodeWithoutDriver(t *testing.T) {
	machine(t, "t4")
	ok(t, "fake", "driver-version", "none")
	code, stdout, stderr := call(t, "inventory")
	if code != exitFailure || stdout != "" || !strings.Contains(stderr, "kernel driver is not loaded") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
}

func TestInventoryShowsWhatIsNotPublished(t *testing.T) {
	got := ok(t, "inventory", "--fake", "t4,l4", "--node-name", "n", "--exclude-devices", "NVIDIA L4")
	if !strings.Contains(got, "Tesla T4") || !strings.Contains(got, "Not published: GPU GPU-") {
		t.Errorf("%s", got)
	}
}
