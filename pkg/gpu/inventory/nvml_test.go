package inventory

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

func snapshot(t *testing.T, n *NVML) Node {
	t.Helper()
	node, err := n.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// wantPlain is what is known of plainGPU(uuid, address) with sysFS.
func wantPlain(index int, uuid, address string) GPU {
	return GPU{
		UUID:                  uuid,
		Index:                 index,
		Minor:                 ptr(3),
		PCIBusID:              address,
		PCIeRoot:              "pci0000:00",
		NUMANode:              ptr(1),
		ProductName:           "NVIDIA L4",
		Brand:                 "Nvidia",
		Architecture:          "Ada",
		CUDAComputeCapability: Version{Raw: "8.9", Semver: "8.9.0"},
		MemoryBytes:           ptr(uint64(24152899584)),
		MIG:                   MIG{Capable: ptr(false)},
		MemoryLimits:          ptr(false),
	}
}

func TestSnapshot(t *testing.T) {
	lib := newFakeLibrary(plainGPU(uuid1, "00000000:3B:00.0"), plainGPU(uuid0, "00000000:07:00.0"))
	n := NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0", "0000:3b:00.0")})
	want := Node{
		DriverVersion:     Version{Raw: "580.95.05", Semver: "580.95.5"},
		CUDADriverVersion: Version{Raw: "13.0", Semver: "13.0.0"},
		GPUs:              []GPU{wantPlain(1, uuid0, "0000:07:00.0"), wantPlain(0, uuid1, "0000:3b:00.0")},
	}
	if diff := cmp.Diff(want, snapshot(t, n)); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if lib.users != 0 {
		t.Errorf("%d Inits are left after Close", lib.users)
	}
}

func TestEveryPropertyIsReadOnItsOwn(t *testing.T) {
	const unreadable = nvml.ERROR_UNKNOWN
	for _, tc := range []struct {
		name string
		fail func(d *mock.Device)
		want func(g *GPU)
	}{
		{
			"minor",
			func(d *mock.Device) { d.GetMinorNumberFunc = func() (int, nvml.Return) { return 0, unreadable } },
			func(g *GPU) { g.Minor = nil },
		},
		{
			"name",
			func(d *mock.Device) { d.GetNameFunc = func() (string, nvml.Return) { return "", unreadable } },
			func(g *GPU) { g.ProductName = "" },
		},
		{
			"brand",
			func(d *mock.Device) { d.GetBrandFunc = func() (nvml.BrandType, nvml.Return) { return 0, unreadable } },
			func(g *GPU) { g.Brand = "" },
		},
		{
			"unknown brand",
			func(d *mock.Device) {
				d.GetBrandFunc = func() (nvml.BrandType, nvml.Return) { return nvml.BRAND_UNKNOWN, nvml.SUCCESS }
			},
			func(g *GPU) { g.Brand = "" },
		},
		{
			"architecture",
			func(d *mock.Device) {
				d.GetArchitectureFunc = func() (nvml.DeviceArchitecture, nvml.Return) { return 0, unreadable }
			},
			func(g *GPU) { g.Architecture = "" },
		},
		{
			"compute capability",
			func(d *mock.Device) {
				d.GetCudaComputeCapabilityFunc = func() (int, int, nvml.Return) { return 0, 0, unreadable }
			},
			func(g *GPU) { g.CUDAComputeCapability = Version{} },
		},
		{
			"memory",
			func(d *mock.Device) {
				d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, unreadable }
			},
			func(g *GPU) { g.MemoryBytes = nil },
		},
		{
			"MIG mode",
			func(d *mock.Device) { d.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, unreadable } },
			func(g *GPU) { g.MIG.Capable = nil },
		},
		{
			"address",
			func(d *mock.Device) {
				d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, unreadable }
			},
			func(g *GPU) { g.PCIBusID, g.PCIeRoot, g.NUMANode = "", "", nil },
		},
		{
			"UUID",
			func(d *mock.Device) { d.GetUUIDFunc = func() (string, nvml.Return) { return "", unreadable } },
			func(g *GPU) { g.UUID, g.Problem = "", "the GPU's UUID cannot be read: ERROR_UNKNOWN" },
		},
		{
			"reset required",
			func(d *mock.Device) {
				d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_RESET_REQUIRED }
			},
			func(g *GPU) { g.MemoryBytes, g.Problem = nil, problemReset },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			broken := plainGPU(uuid0, "00000000:07:00.0")
			tc.fail(broken)
			n := NewNVML(Options{
				Library: newFakeLibrary(broken, plainGPU(uuid1, "00000000:3B:00.0")),
				SysFS:   sysFS("0000:07:00.0", "0000:3b:00.0"),
			})
			want := wantPlain(0, uuid0, "0000:07:00.0")
			tc.want(&want)
			neighbour := wantPlain(1, uuid1, "0000:3b:00.0")
			gpus := []GPU{want, neighbour}
			if want.PCIBusID == "" {
				gpus = []GPU{neighbour, want}
			}
			if diff := cmp.Diff(gpus, snapshot(t, n).GPUs); diff != "" {
				t.Errorf("GPUs (-want +got):\n%s", diff)
			}
		})
	}
}

// A call of a function that the library lacks ends the process; here the mock
// panics.
func TestOldLibraryLacksFunctions(t *testing.T) {
	dev := plainGPU(uuid0, "00000000:07:00.0")
	dev.GetArchitectureFunc, dev.GetMigModeFunc, dev.GetNvLinkStateFunc = nil, nil, nil
	dev.GetSupportedEventTypesFunc, dev.RegisterEventsFunc = nil, nil
	lib := newFakeLibrary(dev)
	lib.SystemGetCudaDriverVersion_v2Func, lib.EventSetCreateFunc = nil, nil
	lib.missing = []string{
		"nvmlDeviceGetArchitecture", "nvmlDeviceGetMigMode", "nvmlDeviceGetNvLinkState",
		"nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlEventSetCreate",
	}
	n := NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0")})
	gpu := wantPlain(0, uuid0, "0000:07:00.0")
	gpu.Architecture = ""
	want := Node{DriverVersion: Version{Raw: "580.95.05", Semver: "580.95.5"}, GPUs: []GPU{gpu}}
	if diff := cmp.Diff(want, snapshot(t, n)); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	if l := n.listen(t.Context(), "key"); l.active() {
		t.Error("listens to events of a library that has none")
	}
}

func TestOnlyTheOldCUDAVersionCall(t *testing.T) {
	lib := newFakeLibrary()
	lib.SystemGetCudaDriverVersion_v2Func = nil
	lib.SystemGetCudaDriverVersionFunc = func() (int, nvml.Return) { return 12090, nvml.SUCCESS }
	lib.missing = []string{"nvmlSystemGetCudaDriverVersion_v2"}
	got := snapshot(t, NewNVML(Options{Library: lib, SysFS: sysFS()})).CUDADriverVersion
	if want := (Version{Raw: "12.9", Semver: "12.9.0"}); got != want {
		t.Errorf("CUDA version is %v, want %v", got, want)
	}
}

func TestLostGPU(t *testing.T) {
	for name, losing := range map[string]func(f *fakeLibrary){
		"handle answers that it is lost": func(f *fakeLibrary) { lose(f.devices[0]) },
		"no handle":                      func(f *fakeLibrary) { f.devices[0] = nil },
	} {
		t.Run(name+", known before", func(t *testing.T) {
			lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"), plainGPU(uuid1, "00000000:3B:00.0"))
			n := NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0", "0000:3b:00.0")})
			snapshot(t, n)
			lib.set(losing)
			lost := wantPlain(0, uuid0, "0000:07:00.0")
			lost.Problem = problemLost
			want := []GPU{lost, wantPlain(1, uuid1, "0000:3b:00.0")}
			for range 2 {
				if diff := cmp.Diff(want, snapshot(t, n).GPUs); diff != "" {
					t.Errorf("GPUs (-want +got):\n%s", diff)
				}
			}
		})
		t.Run(name+", not known before", func(t *testing.T) {
			lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"), plainGPU(uuid1, "00000000:3B:00.0"))
			lib.set(losing)
			n := NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0", "0000:3b:00.0")})
			want := []GPU{wantPlain(1, uuid1, "0000:3b:00.0"), {Problem: problemLost}}
			got := snapshot(t, n).GPUs
			for i := range got {
				got[i].MIG.Capable = want[i].MIG.Capable
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("GPUs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLostGPUThatComesBackIsRead(t *testing.T) {
	healthy := plainGPU(uuid0, "00000000:07:00.0")
	lib := newFakeLibrary(healthy)
	n := NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0")})
	snapshot(t, n)
	lib.set(func(f *fakeLibrary) { f.devices[0] = nil })
	snapshot(t, n)
	lib.set(func(f *fakeLibrary) { f.devices[0] = healthy })
	if diff := cmp.Diff([]GPU{wantPlain(0, uuid0, "0000:07:00.0")}, snapshot(t, n).GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

func TestRemovedGPUIsNotTakenForALostOne(t *testing.T) {
	tree := sysFS("0000:07:00.0", "0000:3b:00.0")
	lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"), plainGPU(uuid1, "00000000:3B:00.0"))
	n := NewNVML(Options{Library: lib, SysFS: tree})
	snapshot(t, n)
	// The first is taken out, the second is lost: NVML's index 0 is now the second.
	for path := range tree {
		if strings.Contains(path, "0000:07:00.0") {
			delete(tree, path)
		}
	}
	lib.set(func(f *fakeLibrary) { f.devices = []*mock.Device{nil} })
	lost := wantPlain(0, uuid1, "0000:3b:00.0")
	lost.Problem = problemLost
	if diff := cmp.Diff([]GPU{lost}, snapshot(t, n).GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

func TestUUIDStaysKnown(t *testing.T) {
	dev := plainGPU(uuid0, "00000000:07:00.0")
	n := NewNVML(Options{Library: newFakeLibrary(dev), SysFS: sysFS("0000:07:00.0")})
	snapshot(t, n)
	dev.GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
	dev.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_UNKNOWN }
	want := wantPlain(0, uuid0, "0000:07:00.0")
	want.MemoryBytes = nil
	want.Problem = "the GPU's UUID cannot be read: ERROR_UNKNOWN"
	if diff := cmp.Diff([]GPU{want}, snapshot(t, n).GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

func TestAddressUnreadableForAWhile(t *testing.T) {
	first := plainGPU(uuid0, "00000000:07:00.0")
	n := NewNVML(Options{
		Library: newFakeLibrary(first, plainGPU(uuid1, "00000000:3B:00.0")),
		SysFS:   sysFS("0000:07:00.0", "0000:3b:00.0"),
	})
	before := snapshot(t, n)
	address := first.GetPciInfoFunc
	first.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.ERROR_UNKNOWN }
	without := wantPlain(0, uuid0, "")
	without.PCIeRoot, without.NUMANode = "", nil
	if diff := cmp.Diff([]GPU{wantPlain(1, uuid1, "0000:3b:00.0"), without}, snapshot(t, n).GPUs); diff != "" {
		t.Errorf("GPUs without the address (-want +got):\n%s", diff)
	}
	first.GetPciInfoFunc = address
	if diff := cmp.Diff(before, snapshot(t, n)); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}

// A library may answer from memory for a GPU that is lost.
func TestLostGPUThatStillSaysWhichItIs(t *testing.T) {
	dev := plainGPU(uuid0, "00000000:07:00.0")
	n := NewNVML(Options{Library: newFakeLibrary(dev), SysFS: sysFS("0000:07:00.0")})
	snapshot(t, n)
	dev.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	want := wantPlain(0, uuid0, "0000:07:00.0")
	want.Problem = problemLost
	if diff := cmp.Diff([]GPU{want}, snapshot(t, n).GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

func TestDriverThatCannotBeRead(t *testing.T) {
	for _, tc := range []struct {
		ret  nvml.Return
		want string
	}{
		{nvml.ERROR_LIBRARY_NOT_FOUND, "install it on the node"},
		{nvml.ERROR_DRIVER_NOT_LOADED, "modprobe nvidia"},
		{nvml.ERROR_LIB_RM_VERSION_MISMATCH, "different versions"},
		{nvml.ERROR_NO_PERMISSION, "/dev/nvidiactl"},
		{nvml.ERROR_OPERATING_SYSTEM, "/dev/nvidiactl"},
		{nvml.ERROR_UNKNOWN, "ERROR_UNKNOWN"},
	} {
		t.Run(tc.ret.Error(), func(t *testing.T) {
			lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"))
			lib.initRet = tc.ret
			n := NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0")})
			got := snapshot(t, n)
			if !strings.Contains(got.Problem, tc.want) || got.GPUs == nil || len(got.GPUs) > 0 || got.RestartNeeded {
				t.Errorf("node is %+v, want no GPUs and a problem with %q", got, tc.want)
			}
			// It gets in order without a restart.
			lib.set(func(f *fakeLibrary) { f.initRet = nvml.SUCCESS })
			if got := snapshot(t, n); got.Problem != "" || len(got.GPUs) != 1 {
				t.Errorf("node is %+v, want one GPU and no problem", got)
			}
		})
	}
}

func TestDriverReloadedWhileRunning(t *testing.T) {
	lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"))
	n := NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0")})
	snapshot(t, n)
	lib.set(func(f *fakeLibrary) { f.users, f.driver = 0, "590.10.01" })
	got := snapshot(t, n)
	if want := (Version{Raw: "590.10.01", Semver: "590.10.1"}); got.DriverVersion != want || len(got.GPUs) != 1 {
		t.Errorf("node is %+v, want driver %v and one GPU", got, want)
	}
}

func TestPluggedInGPUMakesNVMLLookAgain(t *testing.T) {
	tree := sysFS("0000:07:00.0")
	lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"))
	n := NewNVML(Options{Library: lib, SysFS: tree})
	snapshot(t, n)
	snapshot(t, n)
	if lib.inits != 1 {
		t.Fatalf("initialized %d times while nothing changed, want once", lib.inits)
	}
	for path, file := range sysFS("0000:3b:00.0") {
		tree[path] = file
	}
	snapshot(t, n)
	snapshot(t, n)
	if lib.inits != 2 || lib.users != 1 {
		t.Errorf("initialized %d times with %d users, want 2 and 1", lib.inits, lib.users)
	}
}

func TestSnapshotEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewNVML(Options{Library: newFakeLibrary(), SysFS: sysFS()}).Snapshot(ctx); err == nil {
		t.Error("no error after ctx ended")
	}
}

func TestConcurrentSnapshots(t *testing.T) {
	n := NewNVML(Options{Library: newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0")), SysFS: sysFS("0000:07:00.0")})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if node, err := n.Snapshot(t.Context()); err != nil || len(node.GPUs) != 1 {
				t.Errorf("snapshot gave %v, %v", node, err)
			}
		})
	}
	wg.Wait()
}
