package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("not a library"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestFindLibrary(t *testing.T) {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	if triplet == "" {
		t.Skipf("no folder is known for %s", runtime.GOARCH)
	}
	debian := "usr/lib/" + triplet
	for _, tc := range []struct {
		name string
		make func(t *testing.T, root string)
		want string // relative to the root, "" for not found
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"Red Hat", func(t *testing.T, root string) { write(t, root+"/usr/lib64/libnvidia-ml.so.1") }, "usr/lib64/libnvidia-ml.so.1"},
		{"Debian", func(t *testing.T, root string) { write(t, root+"/"+debian+"/libnvidia-ml.so.1") }, debian + "/libnvidia-ml.so.1"},
		{"GKE", func(t *testing.T, root string) { write(t, root+"/usr/local/nvidia/lib64/libnvidia-ml.so.1") }, "usr/local/nvidia/lib64/libnvidia-ml.so.1"},
		{
			"relative link to the version",
			func(t *testing.T, root string) {
				write(t, root+"/"+debian+"/libnvidia-ml.so.580.95.05")
				link(t, "libnvidia-ml.so.580.95.05", root+"/"+debian+"/libnvidia-ml.so.1")
			},
			debian + "/libnvidia-ml.so.1",
		},
		{
			"absolute link means a path under the root",
			func(t *testing.T, root string) {
				write(t, root+"/opt/driver/libnvidia-ml.so.580.95.05")
				link(t, "/opt/driver/libnvidia-ml.so.580.95.05", root+"/"+debian+"/libnvidia-ml.so.1")
			},
			"opt/driver/libnvidia-ml.so.580.95.05",
		},
		{
			"broken link, the library is elsewhere",
			func(t *testing.T, root string) {
				link(t, "libnvidia-ml.so.1.0", root+"/usr/lib64/libnvidia-ml.so.1")
				write(t, root+"/lib64/libnvidia-ml.so.1")
			},
			"lib64/libnvidia-ml.so.1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			tc.make(t, root)
			got, err := FindLibrary("", root)
			if tc.want == "" {
				if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), "usr/lib64") {
					t.Errorf("got %q, %v, want an error that says where it looked", got, err)
				}
				return
			}
			if want := filepath.Join(root, tc.want); err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}

func TestFindLibraryExplicit(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "my.so")
	if got, err := FindLibrary(path, root); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %q, %v, want an error that names the file", got, err)
	}
	write(t, path)
	if got, err := FindLibrary(path, "/elsewhere"); err != nil || got != path {
		t.Errorf("got %q, %v, want %q", got, err, path)
	}
}

func TestLibraryIsFoundOnceItIsInstalled(t *testing.T) {
	root := t.TempDir()
	lib := OpenLibrary("", root)
	if ret := lib.Init(); ret != nvml.ERROR_LIBRARY_NOT_FOUND || lib.Path() != "" || !errors.Is(lib.LoadError(), fs.ErrNotExist) {
		t.Fatalf("Init gave %v, path %q, error %v", ret, lib.Path(), lib.LoadError())
	}
	n := NewNVML(Options{Library: lib, SysFS: sysFS()})
	if got := snapshot(t, n).Problem; !strings.Contains(got, "no NVIDIA driver was found") {
		t.Errorf("problem is %q", got)
	}

	path := filepath.Join(root, "usr/lib64/libnvidia-ml.so.1")
	write(t, path)
	// The file is no library, so it is found and does not load.
	if got := snapshot(t, n).Problem; !strings.Contains(got, path) {
		t.Errorf("problem is %q, want one that names %s", got, path)
	}
	if lib.Path() != path || lib.LoadError() != nil {
		t.Errorf("path is %q, error %v, want %q", lib.Path(), lib.LoadError(), path)
	}
}

func TestLibraryReplaced(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/usr/lib64/libnvidia-ml.so.580")
	link(t, "libnvidia-ml.so.580", root+"/usr/lib64/libnvidia-ml.so.1")
	lib := OpenLibrary("", root)
	if lib.Replaced() {
		t.Error("replaced before it was found")
	}
	lib.Init()
	if lib.Replaced() {
		t.Error("replaced while nothing changed")
	}
	write(t, root+"/usr/lib64/libnvidia-ml.so.590")
	if err := os.Remove(root + "/usr/lib64/libnvidia-ml.so.1"); err != nil {
		t.Fatal(err)
	}
	if lib.Replaced() {
		t.Error("replaced while there is no library")
	}
	link(t, "libnvidia-ml.so.590", root+"/usr/lib64/libnvidia-ml.so.1")
	if !lib.Replaced() {
		t.Error("not replaced although the link means another file")
	}
}

// replacedLibrary is a library whose file was replaced.
type replacedLibrary struct{ *fakeLibrary }

func (replacedLibrary) Replaced() bool { return true }

func TestReplacedDriverNeedsANewProcess(t *testing.T) {
	lib := newFakeLibrary()
	lib.initRet = nvml.ERROR_LIB_RM_VERSION_MISMATCH
	got := snapshot(t, NewNVML(Options{Library: replacedLibrary{lib}, SysFS: sysFS()}))
	if !got.RestartNeeded || !strings.Contains(got.Problem, "must be restarted") {
		t.Errorf("node is %+v, want one that needs a new process", got)
	}
}
