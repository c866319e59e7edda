package fakegpu

import (
	"testing"

	nvlib "github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// migGPU is a GPU in MIG mode.
func migGPU(t *testing.T, product string) (*Machine, nvml.Interface, nvml.Device) {
	t.Helper()
	m := newMachine(t, product)
	lib := initialised(t, m)
	d := gpuAt(t, lib, 0)
	if activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); activation != nvml.SUCCESS || ret != nvml.SUCCESS {
		t.Fatalf("SetMigMode: %v %v", activation, ret)
	}
	return m, lib, d
}

func profileInfo(t *testing.T, d nvml.Device, index int) *nvml.GpuInstanceProfileInfo {
	t.Helper()
	info := succeed[nvml.GpuInstanceProfileInfo](t)(d.GetGpuInstanceProfileInfo(index))
	return &info
}

// createAt makes an instance of a profile and gives the code.
func createAt(t *testing.T, d nvml.Device, index int, start, size uint32) nvml.Return {
	t.Helper()
	_, ret := d.CreateGpuInstanceWithPlacement(profileInfo(t, d, index), &nvml.GpuInstancePlacement{Start: start, Size: size})
	return ret
}

func TestProfilesAreNVMLs(t *testing.T) {
	_, _, d := migGPU(t, "h100-sxm5-80gb")
	want := nvml.GpuInstanceProfileInfo{
		Id: 20, SliceCount: 1, InstanceCount: 1, MultiprocessorCount: 16, CopyEngineCount: 1, DecoderCount: 1,
		JpegCount: 1, OfaCount: 1, MemorySizeMB: 9984,
	}
	info := profileInfo(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1)
	if diff := cmp.Diff(want, *info); diff != "" {
		t.Error(diff)
	}
	places := succeed[[]nvml.GpuInstancePlacement](t)(d.GetGpuInstancePossiblePlacements(profileInfo(t, d, nvml.GPU_INSTANCE_PROFILE_3_SLICE)))
	if diff := cmp.Diff([]nvml.GpuInstancePlacement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}, places); diff != "" {
		t.Error(diff)
	}
	if _, ret := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("graphics on H100: %v", ret)
	}
	if _, ret := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_COUNT); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("no profile: %v", ret)
	}
}

func TestPlacementRules(t *testing.T) {
	const (
		one, two, three, four, seven = nvml.GPU_INSTANCE_PROFILE_1_SLICE, nvml.GPU_INSTANCE_PROFILE_2_SLICE,
			nvml.GPU_INSTANCE_PROFILE_3_SLICE, nvml.GPU_INSTANCE_PROFILE_4_SLICE, nvml.GPU_INSTANCE_PROFILE_7_SLICE
		media, wide = nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2
	)
	type step struct {
		profile     int
		start, size uint32
		want        nvml.Return
	}
	for name, steps := range map[string][]step{
		"halves": {
			{three, 0, 4, nvml.SUCCESS}, {three, 4, 4, nvml.SUCCESS},
			{one, 6, 1, nvml.ERROR_INSUFFICIENT_RESOURCES},
		},
		"4 and 3": {{four, 0, 4, nvml.SUCCESS}, {three, 0, 4, nvml.ERROR_INSUFFICIENT_RESOURCES}, {three, 4, 4, nvml.SUCCESS}},
		"the last memory slice is only for wide and large ones": {
			{one, 6, 1, nvml.SUCCESS}, {one, 7, 1, nvml.ERROR_INVALID_ARGUMENT},
			{wide, 6, 2, nvml.ERROR_INSUFFICIENT_RESOURCES}, {wide, 4, 2, nvml.SUCCESS},
		},
		"whole":         {{seven, 0, 8, nvml.SUCCESS}, {one, 0, 1, nvml.ERROR_INSUFFICIENT_RESOURCES}},
		"not the whole": {{one, 3, 1, nvml.SUCCESS}, {seven, 0, 8, nvml.ERROR_INSUFFICIENT_RESOURCES}},
		"odd start":     {{two, 1, 2, nvml.ERROR_INVALID_ARGUMENT}, {wide, 1, 2, nvml.ERROR_INVALID_ARGUMENT}},
		"wrong size":    {{two, 0, 1, nvml.ERROR_INVALID_ARGUMENT}},
		"one media engine": {
			{media, 0, 1, nvml.SUCCESS}, {media, 1, 1, nvml.ERROR_INSUFFICIENT_RESOURCES}, {one, 1, 1, nvml.SUCCESS},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, d := migGPU(t, "h100-sxm5-80gb")
			for i, s := range steps {
				if ret := createAt(t, d, s.profile, s.start, s.size); ret != s.want {
					t.Errorf("step %d: %v, want %v", i, ret, s.want)
				}
			}
		})
	}
}

func TestTheMediaInstanceFitsBesideSixPlainOnes(t *testing.T) {
	// Plain 1g instances have no decoder, so the +me one finds its own.
	_, _, d := migGPU(t, "a100-sxm4-40gb")
	for start := range uint32(6) {
		if ret := createAt(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE, start, 1); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
	}
	if ret := createAt(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 6, 1); ret != nvml.SUCCESS {
		t.Error(ret)
	}
}

func TestInstancesWithoutPlacement(t *testing.T) {
	_, _, d := migGPU(t, "a30")
	info := profileInfo(t, d, nvml.GPU_INSTANCE_PROFILE_2_SLICE)
	if got := succeed[int](t)(d.GetGpuInstanceRemainingCapacity(info)); got != 2 {
		t.Errorf("%d of 2 fit", got)
	}
	for _, start := range []uint32{2, 0} {
		gi := succeed[nvml.GpuInstance](t)(d.CreateGpuInstance(info))
		if got := succeed[nvml.GpuInstanceInfo](t)(gi.GetInfo()).Placement.Start; got != start {
			t.Errorf("starts at %d, want %d", got, start)
		}
	}
	if _, ret := d.CreateGpuInstance(info); ret != nvml.ERROR_INSUFFICIENT_RESOURCES {
		t.Errorf("a third: %v", ret)
	}
	if got := succeed[int](t)(d.GetGpuInstanceRemainingCapacity(info)); got != 0 {
		t.Errorf("%d fit on the full GPU", got)
	}
}

func TestLifeOfAPartition(t *testing.T) {
	m, lib, d := migGPU(t, "h100-sxm5-80gb:2")
	gi := succeed[nvml.GpuInstance](t)(d.CreateGpuInstanceWithPlacement(
		profileInfo(t, d, nvml.GPU_INSTANCE_PROFILE_2_SLICE), &nvml.GpuInstancePlacement{Start: 2, Size: 2}))
	info := succeed[nvml.GpuInstanceInfo](t)(gi.GetInfo())
	if info.Id != 4 || info.ProfileId != 14 || info.Device != d {
		t.Errorf("info %+v", info)
	}
	if _, ret := d.GetMigDeviceHandleByIndex(0); ret != nvml.ERROR_NOT_FOUND {
		t.Errorf("a MIG device without a compute instance: %v", ret)
	}
	compute := succeed[nvml.ComputeInstanceProfileInfo](t)(
		gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED))
	ci := succeed[nvml.ComputeInstance](t)(gi.CreateComputeInstance(&compute))
	if _, ret := gi.CreateComputeInstance(&compute); ret != nvml.ERROR_INSUFFICIENT_RESOURCES {
		t.Errorf("a second full compute instance: %v", ret)
	}

	mig := succeed[nvml.Device](t)(d.GetMigDeviceHandleByIndex(0))
	uuid := succeed[string](t)(mig.GetUUID())
	if found, ret := lib.DeviceGetHandleByUUID(uuid); ret != nvml.SUCCESS || found != mig {
		t.Errorf("by UUID: %v %v", found, ret)
	}
	if got := succeed[string](t)(mig.GetName()); got != "NVIDIA H100 80GB HBM3 MIG 2g.20gb" {
		t.Errorf("name %q", got)
	}
	if parent := succeed[nvml.Device](t)(mig.GetDeviceHandleFromMigDeviceHandle()); parent != d {
		t.Errorf("parent %v", parent)
	}
	want := nvml.DeviceAttributes{
		MultiprocessorCount: 32, SharedCopyEngineCount: 2, SharedDecoderCount: 2, SharedJpegCount: 2,
		GpuInstanceSliceCount: 2, ComputeInstanceSliceCount: 2, MemorySizeMB: 20096,
	}
	if diff := cmp.Diff(want, succeed[nvml.DeviceAttributes](t)(mig.GetAttributes())); diff != "" {
		t.Error(diff)
	}
	wrapped, err := nvlib.New(lib).NewMigDeviceByUUID(uuid)
	must(t, err)
	profile, err := wrapped.GetProfile()
	must(t, err)
	if profile.String() != "2g.20gb" {
		t.Errorf("go-nvlib's profile %s", profile)
	}

	must(t, m.SetLoad("0", Load{Processes: []Process{{PID: 9, MemoryBytes: 1 << 30, MIGDevice: uuid}}}))
	if got := succeed[nvml.Memory](t)(mig.GetMemoryInfo()).Used; got != 1<<30 {
		t.Errorf("%d bytes used", got)
	}
	processes := succeed[[]nvml.ProcessInfo](t)(d.GetComputeRunningProcesses())
	if len(processes) != 1 || processes[0].GpuInstanceId != 4 || processes[0].ComputeInstanceId != 0 {
		t.Errorf("processes %+v", processes)
	}
	if ret := ci.Destroy(); ret != nvml.ERROR_IN_USE {
		t.Errorf("destroying a compute instance in use: %v", ret)
	}
	must(t, m.SetLoad("0", Load{}))
	for _, step := range []struct {
		name string
		do   func() nvml.Return
		want nvml.Return
	}{
		{"GPU instance with a compute instance", gi.Destroy, nvml.ERROR_IN_USE},
		{"compute instance", ci.Destroy, nvml.SUCCESS},
		{"compute instance again", ci.Destroy, nvml.ERROR_NOT_FOUND},
		{"GPU instance", gi.Destroy, nvml.SUCCESS},
		{"GPU instance again", gi.Destroy, nvml.ERROR_NOT_FOUND},
	} {
		if ret := step.do(); ret != step.want {
			t.Errorf("destroy %s: %v, want %v", step.name, ret, step.want)
		}
	}
	if _, ret := mig.GetUUID(); ret != nvml.ERROR_NOT_FOUND {
		t.Errorf("handle of a destroyed MIG device: %v", ret)
	}
}

func TestComputeInstancesShareAGPUInstance(t *testing.T) {
	_, _, d := migGPU(t, "a100-sxm4-80gb")
	gi := succeed[nvml.GpuInstance](t)(d.CreateGpuInstance(profileInfo(t, d, nvml.GPU_INSTANCE_PROFILE_3_SLICE)))
	for _, index := range []int{nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE, nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE} {
		info := succeed[nvml.ComputeInstanceProfileInfo](t)(gi.GetComputeInstanceProfileInfo(index, 0))
		succeed[nvml.ComputeInstance](t)(gi.CreateComputeInstance(&info))
	}
	var names []string
	for i := range 2 {
		names = append(names, succeed[string](t)(succeed[nvml.Device](t)(d.GetMigDeviceHandleByIndex(i)).GetName()))
	}
	if diff := cmp.Diff([]string{"NVIDIA A100-SXM4-80GB MIG 2c.3g.40gb", "NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb"}, names); diff != "" {
		t.Error(diff)
	}
	if _, ret := gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE, 0); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("4c in 3g: %v", ret)
	}
}

// The expected placements are those of the MIG user guide.
func TestMIGMode(t *testing.T) {
	busy := Load{Processes: []Process{{PID: 1}}}
	tests := []struct {
		product         string
		load            Load
		activation, ret nvml.Return
		current         int
		pending         int
	}{
		{"a100-sxm4-40gb", Load{}, nvml.SUCCESS, nvml.SUCCESS, 1, 1},
		{"a100-sxm4-40gb", busy, nvml.ERROR_IN_USE, nvml.SUCCESS, 0, 1},
		{"h100-sxm5-80gb", Load{}, nvml.SUCCESS, nvml.SUCCESS, 1, 1},
		{"h100-sxm5-80gb", busy, nvml.ERROR_IN_USE, nvml.ERROR_IN_USE, 0, 0},
	}
	for _, test := range tests {
		m := newMachine(t, test.product)
		d := gpuAt(t, initialised(t, m), 0)
		must(t, m.SetLoad("0", test.load))
		if activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); activation != test.activation || ret != test.ret {
			t.Errorf("%s: %v %v, want %v %v", test.product, activation, ret, test.activation, test.ret)
		}
		if current, pending, ret := d.GetMigMode(); current != test.current || pending != test.pending || ret != nvml.SUCCESS {
			t.Errorf("%s: mode %d, pending %d, %v", test.product, current, pending, ret)
		}
	}
	m := newMachine(t, "l4")
	d := gpuAt(t, initialised(t, m), 0)
	if _, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("L4: %v", ret)
	}
	if got := succeed[int](t)(d.GetMaxMigDeviceCount()); got != 0 {
		t.Errorf("L4 has at most %d MIG devices", got)
	}
}

func TestAResetAppliesThePendingMode(t *testing.T) {
	m := newMachine(t, "a100-sxm4-40gb")
	must(t, m.SetLoad("0", Load{Processes: []Process{{PID: 1}}}))
	must(t, m.SetMIGMode("0", true))
	if got := summary(t, m).GPUs[0].MIGMode; got != "pending on" {
		t.Errorf("mode %q", got)
	}
	if err := m.ResetGPU("0"); err == nil {
		t.Error("a GPU in use was reset")
	}
	must(t, m.SetLoad("0", Load{}))
	must(t, m.ResetGPU("0"))
	if got := summary(t, m).GPUs[0].MIGMode; got != "on" {
		t.Errorf("mode %q", got)
	}
}

func TestAdministratorMakesAndDestroysPartitions(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb")
	first, err := m.CreateMIG("0", "3g.40gb", 4)
	must(t, err)
	_, err = m.CreateMIG("0", "1g.10gb+me", -1)
	must(t, err)
	var got []string
	for _, p := range summary(t, m).GPUs[0].MIG {
		got = append(got, p.Profile)
	}
	if diff := cmp.Diff([]string{"1g.10gb+me", "3g.40gb"}, got); diff != "" {
		t.Error(diff)
	}
	if err := m.SetMIGMode("0", false); err == nil {
		t.Error("MIG mode off with instances")
	}
	must(t, m.DestroyMIG("", first))
	again, err := m.CreateMIG("0", "3g.40gb", 4)
	must(t, err)
	if again != first {
		t.Errorf("the same partition has UUID %s, then %s", first, again)
	}
	must(t, m.DestroyMIG("0", "all"))
	must(t, m.SetMIGMode("0", false))
	if g := summary(t, m).GPUs[0]; len(g.MIG) != 0 || g.MIGMode != "off" {
		t.Errorf("%+v", g)
	}
}
