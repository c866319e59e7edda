package inventory

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOldLibraryDoesNotAbort reads through the real go-nvml from a library that
// lacks most functions. A call of one of those would end the process, so it is
// done in another.
func TestOldLibraryDoesNotAbort(t *testing.T) {
	const variable = "APPORTION_TEST_NVML_LIBRARY"
	if path := os.Getenv(variable); path != "" {
		readOldLibrary(t, path)
		return
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if out, err := exec.CommandContext(t.Context(), compiler, "-shared", "-fPIC", "-o", path, "testdata/oldnvml.c").CombinedOutput(); err != nil {
		t.Fatalf("compiling the library: %v\n%s", err, out)
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), variable+"="+path)
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("reading from the library: %v\n%s", err, out)
	}
}

func readOldLibrary(t *testing.T, path string) {
	n := NewNVML(Options{Library: OpenLibrary(path, ""), SysFS: sysFS("0000:07:00.0")})
	want := Node{
		DriverVersion: Version{Raw: "390.157", Semver: "390.157.0"},
		GPUs: []GPU{{
			UUID:                  uuid0,
			Minor:                 ptr(3),
			PCIBusID:              "0000:07:00.0",
			PCIeRoot:              "pci0000:00",
			NUMANode:              ptr(1),
			ProductName:           "Tesla K80",
			Brand:                 "Tesla",
			CUDAComputeCapability: Version{Raw: "3.7", Semver: "3.7.0"},
			MemoryBytes:           ptr(uint64(11996954624)),
			MIG:                   MIG{Capable: ptr(false)},
			MemoryLimits:          ptr(false),
		}},
	}
	if diff := cmp.Diff(want, snapshot(t, n)); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	if l := n.listen(t.Context(), "key"); l.active() {
		t.Error("listens to events of a library that has none")
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}
