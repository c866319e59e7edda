package inventory

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestADriverRootThatIsASystemHasItsOwnSysFS(t *testing.T) {
	root := t.TempDir()
	sys := SysFS(root)
	if _, err := fs.Stat(sys, "kernel"); err != nil {
		t.Errorf("without one the host's is not read: %v", err)
	}
	// A driver container comes up after this process.
	device := filepath.Join(root, "sys/devices/pci0000:00/0000:07:00.0")
	link(t, "../../../devices/pci0000:00/0000:07:00.0", filepath.Join(root, "sys/bus/pci/devices/0000:07:00.0"))
	if err := os.MkdirAll(device, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(device, "numa_node"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if data, err := fs.ReadFile(sys, "bus/pci/devices/0000:07:00.0/numa_node"); err != nil || string(data) != "1\n" {
		t.Errorf("got %q, %v", data, err)
	}
	if target, err := sys.ReadLink("bus/pci/devices/0000:07:00.0"); err != nil || target != "../../../devices/pci0000:00/0000:07:00.0" {
		t.Errorf("link to %q, %v", target, err)
	}
	if info, err := sys.Lstat("bus/pci/devices/0000:07:00.0"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("got %v, %v; want a link", info, err)
	}
	if _, err := fs.Stat(sys, "kernel"); err == nil {
		t.Error("the host's is read although there is one")
	}
}

func TestWhetherMemoryCanBeLimitedIsNVMLsAnswer(t *testing.T) {
	for _, test := range []struct {
		ret  nvml.Return
		want *bool
	}{
		{nvml.SUCCESS, ptr(true)},
		{nvml.ERROR_NOT_FOUND, ptr(true)},
		{nvml.ERROR_NOT_SUPPORTED, ptr(false)},
		{nvml.ERROR_FUNCTION_NOT_FOUND, ptr(false)},
		// As on a node that runs on cgroup v1.
		{nvml.ERROR_OPERATING_SYSTEM, ptr(false)},
		{nvml.ERROR_UNKNOWN, nil},
	} {
		dev := plainGPU(uuid0, "00000000:07:00.0")
		dev.GetMemoryLimits_v1Func = func(string) (nvml.MemoryLimits_v1, nvml.Return) { return nvml.MemoryLimits_v1{}, test.ret }
		got := snapshot(t, NewNVML(Options{Library: newFakeLibrary(dev), SysFS: sysFS("0000:07:00.0")})).GPUs[0].MemoryLimits
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%v: got %v, want %v", test.ret, got, test.want)
		}
	}
}
