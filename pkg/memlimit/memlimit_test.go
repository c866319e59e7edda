package memlimit

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"apportion.dev/apportion/pkg/fakegpu"
)

const (
	v2Mounts     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
	hybridMounts = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	v1Mounts     = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)

func TestCgroupOfAContainer(t *testing.T) {
	tests := []struct {
		name, cgroup, mounts string
		v1                   bool
		want, wantErr        string
	}{
		{"version 2", "0::/kubepods/pod1/c1\n", v2Mounts, false, "/sys/fs/cgroup/kubepods/pod1/c1", ""},
		{"both", "4:memory:/kubepods/pod1/c1\n0::/kubepods/pod1/c1\n", hybridMounts, false, "/sys/fs/cgroup/unified/kubepods/pod1/c1", ""},
		{"version 1 only", "4:memory:/kubepods/pod1/c1\n", v1Mounts, false, "", "no cgroup of version 2"},
		{"version 1 only, on a fake machine", "4:cpu,memory:/kubepods/pod1/c1\n", v1Mounts, true, "/sys/fs/cgroup/memory/kubepods/pod1/c1", ""},
		{"not placed", "0::/\n", v2Mounts, false, "", "no cgroup of version 2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := Cgroups{V1: test.v1, Root: fstest.MapFS{
				"proc/42/cgroup":      {Data: []byte(test.cgroup)},
				"proc/self/mountinfo": {Data: []byte(test.mounts)},
			}}
			got, err := c.Of("42")
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error is %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestStateThatNoRuntimeWrites(t *testing.T) {
	for state, want := range map[string]string{
		"":                            "not what an OCI runtime writes",
		`{"pid":0}`:                   "names no process",
		`{"pid":-1}`:                  "names no process",
		`[]`:                          "not what an OCI runtime writes",
		strings.Repeat(" ", 5<<20):    "larger than",
		`{"pid":"1","bundle":"/etc"}`: "not what an OCI runtime writes",
	} {
		if _, err := ReadState(strings.NewReader(state)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
	if pid, err := ReadState(strings.NewReader(`{"ociVersion":"1.0.2","id":"c","pid":42,"bundle":"/b"}`)); err != nil || pid != 42 {
		t.Errorf("got %d, %v", pid, err)
	}
}

func TestSharesOfOneContainerAddUpAndOthersHaveTheirOwn(t *testing.T) {
	const gib = 1 << 30
	machine, err := fakegpu.Create(filepath.Join(t.TempDir(), "machine"), fakegpu.Spec{Node: "node-a", DriverVersion: "615.43.02", GPUs: []string{"a100-sxm4-40gb"}})
	if err != nil {
		t.Fatal(err)
	}
	library := machine.NVML()
	if ret := library.Init(); ret != 0 {
		t.Fatal(ret)
	}
	device, ret := library.DeviceGetHandleByIndex(0)
	if ret != 0 {
		t.Fatal(ret)
	}
	uuid, ret := device.GetUUID()
	if ret != 0 {
		t.Fatal(ret)
	}
	for _, step := range []struct {
		cgroup     string
		limit      Limit
		soft, hard uint64
	}{
		{"/cg/one", Limit{4 * gib, 5 * gib}, 4 * gib, 5 * gib},
		{"/cg/two", Limit{10 * gib, 10 * gib}, 10 * gib, 10 * gib},
		{"/cg/one", Limit{7 * gib, 7 * gib}, 11 * gib, 12 * gib},
	} {
		if err := Apply(library, uuid, step.cgroup, step.limit); err != nil {
			t.Fatal(err)
		}
		got, ret := device.GetMemoryLimits_v1(step.cgroup)
		if ret != 0 || got.SoftLimit != step.soft || got.HardLimit != step.hard {
			t.Errorf("limit of %s is %+v, %v; want %d and %d", step.cgroup, got, ret, step.soft, step.hard)
		}
	}
	if err := Apply(library, uuid, "/cg/three", Limit{2 * gib, gib}); err == nil {
		t.Error("a soft limit above the hard one was taken")
	}
	if err := machine.SetDriverVersion("580.95.05"); err != nil {
		t.Fatal(err)
	}
	if err := Apply(library, uuid, "/cg/four", Limit{gib, gib}); err == nil || !strings.Contains(err.Error(), "615") {
		t.Errorf("with an older driver: %v", err)
	}
}

func TestAllocationsBeyondTheLimitAreRefused(t *testing.T) {
	const gib = 1 << 30
	machine, err := fakegpu.Create(filepath.Join(t.TempDir(), "machine"), fakegpu.Spec{Node: "node-a", DriverVersion: "615.43.02", GPUs: []string{"a100-sxm4-40gb"}})
	if err != nil {
		t.Fatal(err)
	}
	library := machine.NVML()
	if ret := library.Init(); ret != 0 {
		t.Fatal(ret)
	}
	device, ret := library.DeviceGetHandleByIndex(0)
	if ret != 0 {
		t.Fatal(ret)
	}
	uuid, ret := device.GetUUID()
	if ret != 0 {
		t.Fatal(ret)
	}
	if err := Apply(library, uuid, "/sys/fs/cgroup/kubepods/a", Limit{10 * gib, 10 * gib}); err != nil {
		t.Fatal(err)
	}
	// A container knows its cgroup by its name alone.
	limited, err := machine.NewAllocator("0", "/kubepods/a")
	if err != nil {
		t.Fatal(err)
	}
	free, err := machine.NewAllocator("0", "/kubepods/b")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		who  *fakegpu.Allocator
		gib  uint64
		fits bool
	}{{limited, 9, true}, {limited, 2, false}, {limited, 1, true}, {free, 20, true}, {free, 20, false}} {
		if err := step.who.Allocate(step.gib * gib); (err == nil) != step.fits {
			t.Errorf("%d GiB: %v, want fits %t", step.gib, err, step.fits)
		}
	}
	if err := limited.Close(); err != nil {
		t.Fatal(err)
	}
	if memory, ret := device.GetMemoryInfo_v2(); ret != 0 || memory.Used != 20*gib {
		t.Errorf("in use are %d bytes, %v", memory.Used, ret)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
}
