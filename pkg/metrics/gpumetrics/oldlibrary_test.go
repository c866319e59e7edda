package gpumetrics

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// TestOldLibraryDoesNotAbort reads all fields through the real go-nvml from a library
// that lacks most functions. A call of one of those would end the process, so it is
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
	r := newReader(t, inventory.OpenLibrary(path, ""), allNames()...)
	node := oneGPU(func(g *inventory.GPU) {
		g.MIG.Enabled = ptr(true)
		g.MIG.Instances = []inventory.MIGInstance{{ID: 7, UUID: mig0}}
	})
	for second := range 2 {
		devices := r.Read(t.Context(), node, time.Unix(int64(second), 0)).Devices
		if len(devices) != 2 {
			t.Fatalf("devices %+v", devices)
		}
		wantValues(t, r, devices[0], map[string]Value{
			"DCGM_FI_DEV_GPU_TEMP": of(41), "DCGM_FI_DEV_FB_TOTAL": of(11441), "DCGM_FI_DEV_FB_USED": of(441), "DCGM_FI_DEV_FB_FREE": of(11000),
			"DCGM_FI_DRIVER_VERSION": words("580.95.05"), "DCGM_FI_CUDA_DRIVER_VERSION": words("12040"), "DCGM_FI_NVML_VERSION": words("9.390.157"),
			"DCGM_FI_DEV_NAME": words("NVIDIA L4"), "DCGM_FI_DEV_BRAND": words("Nvidia"), "DCGM_FI_DEV_MIG_MODE": of(1),
		})
		// The library does not know partitions.
		wantValues(t, r, devices[1], nil)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
