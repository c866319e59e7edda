package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

const state = `{"ociVersion":"1.2.0","id":"c","status":"created","pid":42,"bundle":"/b"}`

// rig is a fake machine and a container with a cgroup in a temporary folder.
type rig struct {
	machine *fakegpu.Machine
	uuid    string
	// cgroup is of version 2, memory of version 1's memory controller.
	cgroup, memory string
}

func newRig(t *testing.T, driver string) *rig {
	t.Helper()
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", DriverVersion: driver, GPUs: []string{"a100-sxm4-40gb"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Summary()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{machine: m, uuid: s.GPUs[0].UUID, cgroup: filepath.Join(t.TempDir(), "p/c"), memory: filepath.Join(t.TempDir(), "p/c")}
	for _, dir := range []string{r.cgroup, r.memory} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// root is a root folder with a process 42 in the cgroups; the runtime is in another.
func (r *rig) root(cgroups string) fstest.MapFS {
	mounts := fmt.Sprintf("30 23 0:26 / %s rw - cgroup2 cgroup2 rw\n31 23 0:27 / %s rw - cgroup cgroup rw,memory\n",
		strings.TrimSuffix(r.cgroup, "/p/c"), strings.TrimSuffix(r.memory, "/p/c"))
	own := "0::/runtime\n"
	if strings.Contains(cgroups, "memory") {
		own = "4:memory:/runtime\n0::/runtime\n"
	}
	return fstest.MapFS{
		"proc/42/cgroup":                  {Data: []byte(cgroups)},
		"proc/self/cgroup":                {Data: []byte(own)},
		"proc/self/mountinfo":             {Data: []byte(mounts)},
		strings.TrimPrefix(r.cgroup, "/"): {Mode: fs.ModeDir},
		strings.TrimPrefix(r.memory, "/"): {Mode: fs.ModeDir},
	}
}

func (r *rig) run(cgroups, stdin string, args ...string) (code int, stderr string) {
	var out, err bytes.Buffer
	args = append([]string{"limit-memory"}, args...)
	code = run(args, r.root(cgroups), r.open, strings.NewReader(stdin), &out, &err)
	return code, out.String() + err.String()
}

// open opens the machine's NVML for a call that names its driver root, and otherwise
// what is there.
func (r *rig) open(nvmlLibrary, driverRoot string) nvml.Interface {
	if driverRoot == r.machine.DriverRoot() {
		return r.machine.NVML()
	}
	return inventory.OpenLibrary(nvmlLibrary, driverRoot)
}

func (r *rig) share(soft, hard string) []string {
	return []string{"--gpu", r.uuid, "--soft", soft, "--hard", hard, "--driver-root", r.machine.DriverRoot()}
}

func (r *rig) wantLimit(t *testing.T, cgroup string, soft, hard uint64) {
	t.Helper()
	lib := r.machine.NVML()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	defer lib.Shutdown()
	d, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	got, ret := d.GetMemoryLimits_v1(cgroup)
	if ret != nvml.SUCCESS || got.SoftLimit != soft || got.HardLimit != hard {
		t.Errorf("limit is %+v, %v; want %d, %d", got, ret, soft, hard)
	}
}

const (
	inV2   = "0::/p/c\n"
	inBoth = "4:memory:/p/c\n0::/p/c\n"
	inV1   = "4:memory:/p/c\n0::/\n"
)

func TestTwoSharesOfOneContainerAddUp(t *testing.T) {
	r := newRig(t, "615.43.02")
	for _, args := range [][]string{r.share("100", "200"), r.share("1000", "1000")} {
		if code, stderr := r.run(inV2, state, args...); code != 0 || stderr != "" {
			t.Fatalf("exit %d: %s", code, stderr)
		}
	}
	r.wantLimit(t, r.cgroup, 1100, 1200)
}

// Where both versions are mounted it is version 1's cgroup that the container sees. NVML
// says whether it takes it, and this one does.
func TestTheCgroupOfVersion1IsLimitedWhereNVMLTakesIt(t *testing.T) {
	for _, cgroups := range []string{inV1, inBoth} {
		r := newRig(t, "615.43.02")
		if code, stderr := r.run(cgroups, state, r.share("100", "200")...); code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		r.wantLimit(t, r.memory, 100, 200)
	}
}

func TestTheContainerDoesNotStart(t *testing.T) {
	r, old := newRig(t, "615.43.02"), newRig(t, "580.95.05")
	missing := []string{"--gpu", r.uuid, "--soft", "1", "--hard", "1", "--driver-root", t.TempDir()}
	for _, test := range []struct {
		name           string
		r              *rig
		cgroups, stdin string
		args           []string
		code           int
		want           string
	}{
		{"in the runtime's cgroup", r, "0::/runtime\n", state, r.share("1", "1"), 1, "no cgroup of its own"},
		{"in the root cgroup", r, "0::/\n", state, r.share("1", "1"), 1, "no cgroup of its own"},
		{"running already", r, inV2, `{"id":"c","pid":42,"status":"running"}`, r.share("1", "1"), 1, `container "c" is "running"`},
		{"an older driver", old, inBoth, state, old.share("1", "1"), 1, "615 or newer"},
		{"more than the GPU has", r, inBoth, state, r.share("1", "42949672961"), 1, "INVALID_ARGUMENT"},
		{"not a hook", r, inBoth, "", r.share("1", "1"), 1, "not a container's state"},
		{"too late", r, inBoth, `{"pid":0,"status":"stopped"}`, r.share("1", "1"), 1, "createRuntime"},
		{"no such process", r, inBoth, `{"pid":43}`, r.share("1", "1"), 1, "process 43"},
		{"no NVML", r, inV2, state, missing, 1, "libnvidia-ml.so.1 is in none"},
		{"a partition", r, inBoth, state, []string{"--gpu", "MIG-" + r.uuid[4:], "--soft", "1", "--hard", "1"}, 2, "not the UUID of a GPU"},
		{"no GPU", r, inBoth, state, []string{"--soft", "1", "--hard", "1"}, 2, "--gpu"},
		{"no limits", r, inBoth, state, []string{"--gpu", r.uuid}, 2, "--soft"},
		{"half a limit", r, inBoth, state, []string{"--gpu", r.uuid, "--soft", "1"}, 2, "--hard"},
		{"a quantity", r, inBoth, state, r.share("1", "1Gi"), 2, "not a number of bytes"},
		{"a negative limit", r, inBoth, state, r.share("-1", "1"), 2, "not a number of bytes"},
		{"no limit at all", r, inBoth, state, r.share("0", "0"), 2, "hard limit is 0"},
		{"soft above hard", r, inBoth, state, r.share("2", "1"), 2, "not between"},
		{"two libraries", r, inBoth, state, append(r.share("1", "1"), "--nvml-library", "/libnvidia-ml.so.1"), 2, "only one of"},
		{"an argument", r, inBoth, state, append(r.share("1", "1"), "now"), 2, `unexpected argument "now"`},
		{"another flag", r, inBoth, state, []string{"--fly"}, 2, "unknown flag: --fly"},
	} {
		code, stderr := test.r.run(test.cgroups, test.stdin, test.args...)
		if code != test.code || strings.Count(stderr, "\n") != 1 ||
			!strings.HasPrefix(stderr, "apportion-cdi-hook: ") || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit %d, want %d and %q: %s", test.name, code, test.code, test.want, stderr)
		}
	}
}

func TestHelpHasAnExample(t *testing.T) {
	var out, stderr bytes.Buffer
	if code := run([]string{"limit-memory", "--help"}, fstest.MapFS{}, nil, strings.NewReader(""), &out, &stderr); code != 0 ||
		!strings.Contains(out.String(), "apportion-cdi-hook limit-memory --gpu GPU-") || stderr.Len() > 0 {
		t.Errorf("exit %d: %s%s", code, out.String(), stderr.String())
	}
	if code := run([]string{"fly"}, fstest.MapFS{}, nil, strings.NewReader(""), &out, &stderr); code != 2 || !strings.Contains(stderr.String(), `unknown command "fly"`) {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}
