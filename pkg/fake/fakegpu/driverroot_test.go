package fakegpu

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/pkg/fake/fakeroot"
)

func cdi(t *testing.T, m *Machine) nvcdi.Interface {
	t.Helper()
	lib, err := nvcdi.New(
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithNvmlLib(m.NVML()),
		nvcdi.WithDriverRoot(m.DriverRoot()),
		nvcdi.WithNVIDIACDIHookPath("/usr/bin/nvidia-cdi-hook"),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
	)
	must(t, err)
	return lib
}

func mounted(edits *specs.ContainerEdits) []string {
	var paths []string
	for _, m := range edits.Mounts {
		paths = append(paths, m.ContainerPath)
	}
	slices.Sort(paths)
	return paths
}

func deviceNodes(edits *specs.ContainerEdits) []string {
	var paths []string
	for _, d := range edits.DeviceNodes {
		paths = append(paths, d.Path)
	}
	slices.Sort(paths)
	return paths
}

// skipWithoutDevices skips where not even the substitutes of device nodes can be
// made.
func skipWithoutDevices(t *testing.T, m *Machine) {
	t.Helper()
	info, err := os.Lstat(filepath.Join(m.DriverRoot(), "dev/nvidiactl"))
	must(t, err)
	if info.Mode()&fs.ModeCharDevice == 0 {
		t.Skip("this process may not make character devices")
	}
}

func TestNvcdiFindsADriver(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb:2")
	skipWithoutDevices(t, m)
	edits, err := cdi(t, m).GetCommonEdits()
	must(t, err)
	libraries := "/" + fakeroot.LibraryDir + "/"
	want := []string{
		"/usr/bin/nvidia-cuda-mps-control",
		"/usr/bin/nvidia-smi",
		libraries + "libcuda.so.580.95.05",
		libraries + "libcudadebugger.so.580.95.05",
		libraries + "libnvcuvid.so.580.95.05",
		libraries + "libnvidia-allocator.so.580.95.05",
		libraries + "libnvidia-cfg.so.580.95.05",
		libraries + "libnvidia-encode.so.580.95.05",
		// The file by which NVML finds the machine goes where the library goes.
		libraries + "libnvidia-fake-machine.so.580.95.05",
		libraries + "libnvidia-gpucomp.so.580.95.05",
		libraries + "libnvidia-ml.so.580.95.05",
		libraries + "libnvidia-nvvm.so.580.95.05",
		libraries + "libnvidia-opencl.so.580.95.05",
		libraries + "libnvidia-opticalflow.so.580.95.05",
		libraries + "libnvidia-ptxjitcompiler.so.580.95.05",
		// nvcdi's own, so that no runtime adds GPUs on its own.
		"/var/run/nvidia-container-devices/void",
	}
	if diff := cmp.Diff(want, mounted(edits.ContainerEdits)); diff != "" {
		t.Error(diff)
	}
	control := []string{"/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"}
	if diff := cmp.Diff(control, deviceNodes(edits.ContainerEdits)); diff != "" {
		t.Error(diff)
	}
}

func TestNvcdiFindsEachGPU(t *testing.T) {
	m := newMachine(t, "a100-sxm4-40gb:8")
	skipWithoutDevices(t, m)
	gpus := summary(t, m).GPUs
	devices, err := cdi(t, m).GetDeviceSpecsByID(gpus[3].UUID)
	must(t, err)
	if len(devices) != 1 {
		t.Fatalf("%d devices", len(devices))
	}
	if diff := cmp.Diff([]string{"/dev/nvidia3"}, deviceNodes(&devices[0].ContainerEdits)); diff != "" {
		t.Error(diff)
	}
	all, err := cdi(t, m).GetDeviceSpecsByID("all")
	must(t, err)
	if len(all) != 8 {
		t.Errorf("%d devices of 8", len(all))
	}
}

func TestNvcdiFollowsAnotherDriverVersion(t *testing.T) {
	m := newMachine(t, "t4")
	must(t, m.SetDriverVersion("570.124.06"))
	edits, err := cdi(t, m).GetCommonEdits()
	must(t, err)
	for _, path := range mounted(edits.ContainerEdits) {
		if strings.Contains(path, ".so.") && !strings.HasSuffix(path, ".so.570.124.06") {
			t.Errorf("%s is mounted", path)
		}
	}
	if len(edits.Mounts) < 5 {
		t.Errorf("only %d mounts", len(edits.Mounts))
	}
	target, err := os.Readlink(filepath.Join(m.DriverRoot(), fakeroot.LibraryDir, "libcuda.so.1"))
	if err != nil || target != "libcuda.so.570.124.06" {
		t.Errorf("libcuda.so.1 points to %s, %v", target, err)
	}
	old, err := filepath.Glob(filepath.Join(m.DriverRoot(), fakeroot.LibraryDir, "*580.95.05"))
	if err != nil || len(old) > 0 {
		t.Errorf("old libraries %v, %v", old, err)
	}
}

// Whoever reads while the driver is replaced finds the libraries of the version
// that the machine reports, and libcuda.so.1 always leads to one.
func TestReadersNeverSeeNoDriver(t *testing.T) {
	m := newMachine(t, "t4")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := os.ReadFile(filepath.Join(m.DriverRoot(), fakeroot.LibraryDir, "libcuda.so.1")); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 10 {
		must(t, m.SetDriverVersion("570.124.06"))
		must(t, m.SetDriverVersion("580.95.05"))
	}
	close(stop)
	<-done
}

func TestDeviceNodesFollowTheGPUs(t *testing.T) {
	m := newMachine(t, "t4:2")
	nodes := func() []string {
		found, err := filepath.Glob(filepath.Join(m.DriverRoot(), "dev/nvidia*"))
		must(t, err)
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		return found
	}
	control := []string{"nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools"}
	for _, step := range []struct {
		do   func() error
		want []string
	}{
		{func() error { return nil }, append(slices.Clone(control), "nvidia0", "nvidia1", "nvidiactl")},
		{func() error { return m.RemoveGPU("0") }, append(slices.Clone(control), "nvidia1", "nvidiactl")},
		{func() error { return m.RemoveGPU("0") }, nil},
		{func() error { _, err := m.AddGPU("t4", 4); return err }, append(slices.Clone(control), "nvidia4", "nvidiactl")},
		{func() error { return m.SetDriverVersion("none") }, nil},
	} {
		must(t, step.do())
		if diff := cmp.Diff(step.want, nodes()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDeviceNumbers(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb:2")
	_, err := m.CreateMIG("1", "1g.10gb", 2)
	must(t, err)
	if os.Geteuid() != 0 {
		t.Skip("only root may make devices with numbers")
	}
	// GPU 1, GPU instance 9: 3 + (1*15+9)*9 = 219; its compute instance 0 is 220.
	for path, minor := range map[string]uint32{
		"dev/nvidia1": 1, "dev/nvidiactl": 255, "dev/nvidia-caps/nvidia-cap219": 2219, "dev/nvidia-caps/nvidia-cap220": 2220,
	} {
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(m.DriverRoot(), path), &stat); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(stat.Rdev) != 195 || unix.Minor(stat.Rdev) != minor {
			t.Errorf("%s is %o %d:%d", path, stat.Mode, unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
		}
	}
}

func TestMIGCapabilitiesFollowThePartitions(t *testing.T) {
	m := newMachine(t, "a30")
	read := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(m.DriverRoot(), "proc/driver", path))
		must(t, err)
		return string(data)
	}
	if got := read("nvidia-caps/mig-minors"); !strings.HasPrefix(got, "config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\n") ||
		!strings.Contains(got, "\ngpu0/gi14/ci7/access 137\n") {
		t.Errorf("mig-minors: %s", got)
	}
	uuid, err := m.CreateMIG("0", "4g.24gb", 0)
	must(t, err)
	if got := read("nvidia/capabilities/gpu0/mig/gi0/ci0/access"); !strings.HasPrefix(got, "DeviceFileMinor: 4\n") {
		t.Errorf("access: %s", got)
	}
	must(t, m.DestroyMIG("", uuid))
	for _, gone := range []string{"proc/driver/nvidia/capabilities/gpu0", "dev/nvidia-caps/nvidia-cap4"} {
		if _, err := os.Lstat(filepath.Join(m.DriverRoot(), gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", gone, err)
		}
	}
}

// Who keeps what was found in a driver's folders until they change keeps it while
// partitions come and go.
func TestPartitionsLeaveTheDriversFoldersAlone(t *testing.T) {
	m := newMachine(t, "a30")
	files := func() (inodes []uint64) {
		t.Helper()
		for _, folder := range []string{"usr/bin", fakeroot.LibraryDir, "dev"} {
			entries, err := os.ReadDir(filepath.Join(m.DriverRoot(), folder))
			must(t, err)
			for _, e := range entries {
				var stat unix.Stat_t
				must(t, unix.Lstat(filepath.Join(m.DriverRoot(), folder, e.Name()), &stat))
				inodes = append(inodes, stat.Ino)
			}
		}
		return inodes
	}
	before := files()
	uuid, err := m.CreateMIG("0", "4g.24gb", 0)
	must(t, err)
	if diff := cmp.Diff(before, files()); diff != "" {
		t.Errorf("after a partition was made: %s", diff)
	}
	if out, err := runSmi(t, m, filepath.Join(m.DriverRoot(), "dev"), "-L"); err != nil || !strings.Contains(out, uuid) {
		t.Errorf("nvidia-smi says %s, %v", out, err)
	}
	must(t, m.DestroyMIG("", uuid))
	if diff := cmp.Diff(before, files()); diff != "" {
		t.Errorf("after it was destroyed: %s", diff)
	}
}

func TestCreateRemovesWhatAKilledProcessLeft(t *testing.T) {
	m := newMachine(t, "t4")
	left := filepath.Join(m.DriverRoot(), fakeroot.LibraryDir, ".new-libcuda.so.1")
	must(t, os.WriteFile(left, nil, 0o644))
	_, err := Create(m.Dir(), Spec{Node: "node-a"})
	must(t, err)
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", left, err)
	}
}

func TestDeviceAttributesAreFoundInSysfs(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb:8")
	for _, test := range []struct {
		index int
		root  string
		numa  int64
	}{{0, "pci0000:15", 0}, {1, "pci0000:15", 0}, {2, "pci0000:50", 0}, {4, "pci0000:9a", 1}, {7, "pci0000:d0", 1}} {
		address := summary(t, m).GPUs[test.index].PCIBusID
		root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(address, deviceattribute.WithFS(m.SysFS()))
		must(t, err)
		if *root.Value.StringValue != test.root {
			t.Errorf("GPU %d is under %s, want %s", test.index, *root.Value.StringValue, test.root)
		}
		numa, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(address, deviceattribute.ScalarAttribute, deviceattribute.WithFS(m.SysFS()))
		must(t, err)
		if *numa.Value.IntValue != test.numa {
			t.Errorf("GPU %d is on node %d, want %d", test.index, *numa.Value.IntValue, test.numa)
		}
	}
	must(t, m.RemoveGPU("7"))
	if _, err := fs.ReadDir(m.SysFS(), "devices/pci0000:d0/0000:d0:01.0/0000:df:00.0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed GPU in sysfs: %v", err)
	}
}

func TestLibrariesAreELF(t *testing.T) {
	m := newMachine(t, "t4")
	for file, soname := range map[string]string{
		"libcuda.so.580.95.05":             "libcuda.so.1",
		"libnvidia-nvvm.so.580.95.05":      "libnvidia-nvvm.so.4",
		"libnvidia-gpucomp.so.580.95.05":   "libnvidia-gpucomp.so.580.95.05",
		"libnvidia-ml.so.1":                "libnvidia-ml.so.1",
		"libnvidia-ptxjitcompiler.so.1":    "libnvidia-ptxjitcompiler.so.1",
		"libnvidia-allocator.so.580.95.05": "libnvidia-allocator.so.1",
	} {
		f, err := elf.Open(filepath.Join(m.DriverRoot(), fakeroot.LibraryDir, file))
		must(t, err)
		if f.Type != elf.ET_DYN {
			t.Errorf("%s has type %s", file, f.Type)
		}
		must(t, f.Close())
		// debug/elf looks for section headers, of which there are none.
		data, err := os.ReadFile(filepath.Join(m.DriverRoot(), fakeroot.LibraryDir, file))
		must(t, err)
		if !strings.Contains(string(data), "\x00"+soname+"\x00") {
			t.Errorf("%s has not the soname %s", file, soname)
		}
	}
}

func TestLdconfigIndexesTheLibraries(t *testing.T) {
	ldconfig, err := exec.LookPath("ldconfig")
	if err != nil {
		if ldconfig, err = exec.LookPath("/usr/sbin/ldconfig"); err != nil {
			t.Skip("no ldconfig here")
		}
	}
	m := newMachine(t, "t4")
	cache := filepath.Join(t.TempDir(), "cache")
	dir := filepath.Join(m.DriverRoot(), fakeroot.LibraryDir)
	// -N leaves the cache alone and -X the links: it only says what it finds.
	out, err := exec.Command(ldconfig, "-v", "-N", "-X", "-C", cache, "-f", "/dev/null", dir).CombinedOutput()
	must(t, err)
	for _, want := range []string{
		"libcuda.so.1 -> libcuda.so.580.95.05", "libnvidia-ml.so.1 -> libnvidia-ml.so.580.95.05",
		"libnvidia-nvvm.so.4 -> libnvidia-nvvm.so.580.95.05",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("ldconfig does not say %q:\n%s", want, out)
		}
	}
}

// runSmi runs the machine's nvidia-smi as a container with the device nodes dev
// would.
func runSmi(t *testing.T, m *Machine, dev string, args ...string) (string, error) {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(m.DriverRoot(), "usr/bin/nvidia-smi"))
	must(t, err)
	text := strings.ReplaceAll(string(script), `"/dev/`, `"`+dev+"/")
	out, err := exec.Command("sh", append([]string{"-c", text, "nvidia-smi"}, args...)...).CombinedOutput()
	return string(out), err
}

func TestNvidiaSmiShowsTheGPUsOfTheContainer(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb:3")
	first, err := m.CreateMIG("1", "1g.10gb", 0)
	must(t, err)
	second, err := m.CreateMIG("1", "3g.40gb", 4)
	must(t, err)
	gpus := summary(t, m).GPUs
	dev := t.TempDir()
	touch := func(name string) {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dev, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dev, name), nil, 0o644))
	}

	out, err := runSmi(t, m, dev, "-L")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 6 || out != "No devices were found\n" {
		t.Errorf("without devices: %v %q", err, out)
	}

	touch("nvidia1")
	touch("nvidia2")
	touch("nvidia-caps/nvidia-cap157") // GPU 1, instance 2: 3 + (15+2)*9 = 156, then its compute instance.
	out, err = runSmi(t, m, dev, "-L")
	must(t, err)
	want := "GPU 0: NVIDIA H100 80GB HBM3 (UUID: " + gpus[1].UUID + ")\n" +
		"  MIG 3g.40gb         Device  1: (UUID: " + second + ")\n" +
		"GPU 1: NVIDIA H100 80GB HBM3 (UUID: " + gpus[2].UUID + ")\n"
	if out != want {
		t.Errorf("got\n%swant\n%s(the other partition is %s)", out, want, first)
	}

	must(t, m.LoseGPU("2"))
	out, err = runSmi(t, m, dev)
	must(t, err)
	for _, want := range []string{"Driver Version: 580.95.05", "CUDA Version: 13.0", "81559MiB", "lost"} {
		if !strings.Contains(out, want) {
			t.Errorf("the summary has no %q:\n%s", want, out)
		}
	}
	if out, err := runSmi(t, m, dev, "-q"); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "-q") {
		t.Errorf("unknown argument: %v %q", err, out)
	}
}
