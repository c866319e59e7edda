package inventory

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"
)

// migGPU is an H100 with three of its profiles and the given instances.
func migGPU(enabled int, instances map[uint32][]nvml.GpuInstanceInfo, uuids map[int]string) *mock.Device {
	dev := plainGPU(uuid0, "00000000:07:00.0")
	dev.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 81559 << 20}, nvml.SUCCESS }
	dev.GetMigModeFunc = func() (int, int, nvml.Return) { return enabled, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS }
	profiles := map[int]nvml.GpuInstanceProfileInfo{
		nvml.GPU_INSTANCE_PROFILE_1_SLICE:      {Id: 19, SliceCount: 1, InstanceCount: 7, MultiprocessorCount: 16, CopyEngineCount: 1, DecoderCount: 1, JpegCount: 1, MemorySizeMB: 9856},
		nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: {Id: 20, SliceCount: 1, InstanceCount: 1, MultiprocessorCount: 16, CopyEngineCount: 1, DecoderCount: 1, JpegCount: 1, OfaCount: 1, MemorySizeMB: 9856},
		nvml.GPU_INSTANCE_PROFILE_7_SLICE:      {Id: 0, SliceCount: 7, InstanceCount: 1, MultiprocessorCount: 132, CopyEngineCount: 8, DecoderCount: 7, JpegCount: 7, OfaCount: 1, MemorySizeMB: 80896},
	}
	dev.GetGpuInstanceProfileInfoFunc = func(index int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
		info, ok := profiles[index]
		if !ok {
			return info, nvml.ERROR_NOT_SUPPORTED
		}
		return info, nvml.SUCCESS
	}
	dev.GetGpuInstancePossiblePlacementsFunc = func(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstancePlacement, nvml.Return) {
		switch info.Id {
		case 0:
			return []nvml.GpuInstancePlacement{{Start: 0, Size: 8}}, nvml.SUCCESS
		case 19:
			return []nvml.GpuInstancePlacement{{Start: 1, Size: 1}, {Start: 0, Size: 1}}, nvml.SUCCESS
		}
		return nil, nvml.ERROR_UNKNOWN
	}
	dev.GetGpuInstancesFunc = func(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstance, nvml.Return) {
		var result []nvml.GpuInstance
		for _, instance := range instances[info.Id] {
			result = append(result, &mock.GpuInstance{GetInfoFunc: func() (nvml.GpuInstanceInfo, nvml.Return) { return instance, nvml.SUCCESS }})
		}
		return result, nvml.SUCCESS
	}
	dev.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	dev.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		uuid, ok := uuids[i]
		if !ok {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetGpuInstanceIdFunc: func() (int, nvml.Return) { return i / 2, nvml.SUCCESS },
			GetUUIDFunc:          func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	return dev
}

var h100Profiles = []MIGProfile{
	{
		Name: "7g.80gb", ID: 0, Index: 4, Slices: 7, MemoryMiB: 80896, Multiprocessors: 132, CopyEngines: 8, Decoders: 7, JPEGEngines: 7, OFAEngines: 1,
		MaxInstances: 1, Placements: []MIGPlacement{{Start: 0, Size: 8}},
	},
	{
		Name: "1g.10gb", ID: 19, Index: 0, Slices: 1, MemoryMiB: 9856, Multiprocessors: 16, CopyEngines: 1, Decoders: 1, JPEGEngines: 1,
		MaxInstances: 7, Placements: []MIGPlacement{{Start: 0, Size: 1}, {Start: 1, Size: 1}},
	},
	{
		Name: "1g.10gb+me", ID: 20, Index: 7, Slices: 1, MemoryMiB: 9856, Multiprocessors: 16, CopyEngines: 1, Decoders: 1, JPEGEngines: 1, OFAEngines: 1,
		MaxInstances: 1, // the placements of this one cannot be read
	},
}

func TestMIG(t *testing.T) {
	instances := map[uint32][]nvml.GpuInstanceInfo{
		19: {
			{Id: 3, ProfileId: 19, Placement: nvml.GpuInstancePlacement{Start: 1, Size: 1}},
			{Id: 2, ProfileId: 19, Placement: nvml.GpuInstancePlacement{Start: 0, Size: 1}},
		},
	}
	// MIG devices 4 and 5 lie in GPU instance 2; instance 3 has none.
	uuids := map[int]string{4: "MIG-aaaa", 5: "MIG-bbbb"}
	for _, tc := range []struct {
		name    string
		enabled int
		want    MIG
	}{
		{"disabled", nvml.DEVICE_MIG_DISABLE, MIG{Capable: ptr(true), Enabled: ptr(false), Pending: ptr(true), Profiles: h100Profiles}},
		{"enabled", nvml.DEVICE_MIG_ENABLE, MIG{
			Capable: ptr(true), Enabled: ptr(true), Pending: ptr(true), Profiles: h100Profiles,
			Instances: []MIGInstance{
				{ID: 2, ProfileID: 19, Placement: MIGPlacement{Start: 0, Size: 1}, UUID: "MIG-aaaa"},
				{ID: 3, ProfileID: 19, Placement: MIGPlacement{Start: 1, Size: 1}},
			},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := NewNVML(Options{Library: newFakeLibrary(migGPU(tc.enabled, instances, uuids)), SysFS: sysFS("0000:07:00.0")})
			if diff := cmp.Diff(tc.want, snapshot(t, n).GPUs[0].MIG); diff != "" {
				t.Errorf("MIG (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMIGFunctionsMissing(t *testing.T) {
	dev := migGPU(nvml.DEVICE_MIG_ENABLE, nil, nil)
	dev.GetGpuInstancePossiblePlacementsFunc, dev.GetGpuInstancesFunc = nil, nil
	dev.GetMaxMigDeviceCountFunc, dev.GetMigDeviceHandleByIndexFunc = nil, nil
	lib := newFakeLibrary(dev)
	lib.missing = []string{
		"nvmlDeviceGetGpuInstancePossiblePlacements", "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
		"nvmlDeviceGetGpuInstances", "nvmlDeviceGetMaxMigDeviceCount",
	}
	got := snapshot(t, NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0")})).GPUs[0].MIG
	if len(got.Profiles) != 3 || got.Profiles[0].Placements != nil || got.Instances != nil {
		t.Errorf("MIG is %+v, want profiles without placements and no instances", got)
	}
	dev.GetGpuInstanceProfileInfoFunc = nil
	lib.missing = append(lib.missing, "nvmlDeviceGetGpuInstanceProfileInfo")
	got = snapshot(t, NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0")})).GPUs[0].MIG
	if got.Profiles != nil || !*got.Capable {
		t.Errorf("MIG is %+v, want a capable GPU without profiles", got)
	}
}

// A library that has the function but gives the empty handler is a fake; the
// handler would call into a library that is not loaded.
func TestMIGProfileNameOfFakeHandler(t *testing.T) {
	dev := migGPU(nvml.DEVICE_MIG_DISABLE, nil, nil)
	dev.GetGpuInstanceProfileInfoVFunc = func(int) nvml.GpuInstanceProfileInfoHandler { return nvml.GpuInstanceProfileInfoHandler{} }
	lib := newFakeLibrary(dev)
	lib.ExtensionsFunc = func() nvml.ExtendedInterface {
		return &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return nil }}
	}
	got := snapshot(t, NewNVML(Options{Library: lib, SysFS: sysFS("0000:07:00.0")})).GPUs[0].MIG.Profiles
	if diff := cmp.Diff(h100Profiles, got); diff != "" {
		t.Errorf("profiles (-want +got):\n%s", diff)
	}
}

func TestMIGProfileNames(t *testing.T) {
	// Total memory of the GPU in MiB, memory of the profile in MiB.
	for _, tc := range []struct {
		want          string
		index, slices int
		total, memory uint64
	}{
		{"1g.5gb", nvml.GPU_INSTANCE_PROFILE_1_SLICE, 1, 40960, 4864},
		{"1g.5gb+me", nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 1, 40960, 4864},
		{"1g.10gb", nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2, 1, 40960, 9856},
		{"2g.10gb", nvml.GPU_INSTANCE_PROFILE_2_SLICE, 2, 40960, 9856},
		{"3g.20gb", nvml.GPU_INSTANCE_PROFILE_3_SLICE, 3, 40960, 19968},
		{"7g.40gb", nvml.GPU_INSTANCE_PROFILE_7_SLICE, 7, 40960, 40192},
		{"1g.6gb", nvml.GPU_INSTANCE_PROFILE_1_SLICE, 1, 24576, 5952},
		{"4g.24gb", nvml.GPU_INSTANCE_PROFILE_4_SLICE, 4, 24576, 24125},
		{"1g.18gb", nvml.GPU_INSTANCE_PROFILE_1_SLICE, 1, 143771, 16384},
		{"1g.24gb+gfx", nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX, 1, 97887, 24192},
		{"1g.24gb+me.all", nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME, 1, 97887, 24192},
		{"1g.24gb-me", nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME, 1, 97887, 24192},
		{"2g.48gb+gfx", nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX, 2, 97887, 48512},
		{"3g.72gb+gfx", nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX, 3, 97887, 72800},
	} {
		t.Run(tc.want, func(t *testing.T) {
			dev := plainGPU(uuid0, "00000000:07:00.0")
			dev.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: tc.total << 20}, nvml.SUCCESS }
			dev.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.SUCCESS }
			dev.GetGpuInstanceProfileInfoFunc = func(index int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
				if index != tc.index {
					return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
				}
				return nvml.GpuInstanceProfileInfo{SliceCount: uint32(tc.slices), MemorySizeMB: tc.memory}, nvml.SUCCESS
			}
			dev.GetGpuInstancePossiblePlacementsFunc = func(*nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstancePlacement, nvml.Return) {
				return nil, nvml.SUCCESS
			}
			profiles := snapshot(t, NewNVML(Options{Library: newFakeLibrary(dev), SysFS: sysFS("0000:07:00.0")})).GPUs[0].MIG.Profiles
			if len(profiles) != 1 || profiles[0].Name != tc.want {
				t.Errorf("profiles are %+v, want %s", profiles, tc.want)
			}
		})
	}
}
