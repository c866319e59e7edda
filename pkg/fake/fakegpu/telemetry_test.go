package fakegpu

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/fakeroot"
)

func energyOf(t *testing.T, d nvml.Device) uint64 {
	t.Helper()
	return succeed[uint64](t)(d.GetTotalEnergyConsumption())
}

func wantEnergy(t *testing.T, d nvml.Device, joules uint64) {
	t.Helper()
	if got := energyOf(t, d); got != joules*1000 {
		t.Errorf("%d mJ, want %d J", got, joules)
	}
}

// An H100 draws 70 W idle and 700 W busy.
func TestEnergyIsThePowerOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "h100-sxm5-80gb:2")
		lib := initialised(t, m)
		d, other := gpuAt(t, lib, 0), gpuAt(t, lib, 1)
		wantEnergy(t, d, 0)
		time.Sleep(20 * time.Second)
		wantEnergy(t, d, 20*70)
		must(t, m.SetLoad("0", Load{GPUPercent: 50}))
		time.Sleep(10 * time.Second)
		wantEnergy(t, d, 20*70+10*385)
		must(t, m.SetLoad("0", Load{GPUPercent: 100}))
		time.Sleep(time.Second)
		must(t, m.SetLoad("0", Load{}))
		time.Sleep(100 * time.Second)
		wantEnergy(t, d, 20*70+10*385+700+100*70)
		wantEnergy(t, other, 131*70)

		// Another process sees the same.
		again, err := Open(m.Dir())
		must(t, err)
		wantEnergy(t, gpuAt(t, initialised(t, again), 0), 20*70+10*385+700+100*70)

		must(t, m.SetDriverVersion("615.43.02"))
		time.Sleep(3 * time.Second)
		wantEnergy(t, d, 3*70)
		must(t, m.RemoveGPU("0"))
		time.Sleep(time.Second)
		uuid, err := m.AddGPU("", 0)
		must(t, err)
		time.Sleep(2 * time.Second)
		wantEnergy(t, succeed[nvml.Device](t)(lib.DeviceGetHandleByUUID(uuid)), 2*70)
	})
}

func TestEnergyOfWorkEndsWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "h100-sxm5-80gb")
		d := gpuAt(t, initialised(t, m), 0)
		a := allocator(t, m, t.TempDir())
		must(t, a.Work(100))
		time.Sleep(10 * time.Second)
		wantEnergy(t, d, 7000)
		must(t, a.Work(50))
		time.Sleep(10 * time.Second)
		must(t, a.Close())
		wantEnergy(t, d, 7000+3850)
		time.Sleep(10 * time.Second)
		wantEnergy(t, d, 7000+3850+700)

		// This one is killed: what holds its file ends without a word.
		killed := allocator(t, m, t.TempDir())
		must(t, killed.Work(100))
		time.Sleep(time.Second)
		must(t, killed.holder.Close())
		wantEnergy(t, d, 7000+3850+700+700)
		time.Sleep(time.Second)
		wantEnergy(t, d, 7000+3850+700+700+70)
		if st, err := m.store.read(); err != nil || len(st.GPUs[0].Allocations) != 0 {
			t.Errorf("allocations are left: %+v, %v", st.GPUs[0].Allocations, err)
		}
	})
}

func TestEnergyDoesNotGoBackWhileTheLoadChanges(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb")
	d := gpuAt(t, initialised(t, m), 0)
	done := make(chan error)
	go func() {
		var err error
		for i := range 50 {
			err = errors.Join(err, m.SetLoad("0", Load{GPUPercent: uint32(i%2) * 100}))
		}
		done <- err
	}()
	var last uint64
	for {
		now := energyOf(t, d)
		if now < last {
			t.Fatalf("%d mJ after %d", now, last)
		}
		last = now
		select {
		case err := <-done:
			must(t, err)
			return
		default:
		}
	}
}

func utilizationOf(t *testing.T, d nvml.Device, lastSeen uint64) map[uint32]uint32 {
	t.Helper()
	samples, ret := d.GetProcessUtilization(lastSeen)
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
		t.Fatal(ret)
	}
	busy := map[uint32]uint32{}
	for _, s := range samples {
		busy[s.Pid] += s.SmUtil
	}
	return busy
}

// Everything in this process has its PID, so processes of the load stand for others.
func TestProcessesTogetherAreAsBusyAsTheGPU(t *testing.T) {
	self := uint32(os.Getpid())
	for _, test := range []struct {
		name string
		load Load
		work []uint32
		want map[uint32]uint32
		gpu  uint32
	}{
		{"idle", Load{Processes: []Process{{PID: 1}}}, nil, map[uint32]uint32{}, 0},
		{"a load without processes", Load{GPUPercent: 40}, nil, map[uint32]uint32{}, 40},
		{"evenly, without a rest", Load{GPUPercent: 50, Processes: []Process{{PID: 1}, {PID: 2}, {PID: 3}}}, nil, map[uint32]uint32{1: 16, 2: 17, 3: 17}, 50},
		{"their own", Load{}, []uint32{30}, map[uint32]uint32{self: 30}, 30},
		{"beside a load", Load{GPUPercent: 40, Processes: []Process{{PID: 1}}}, []uint32{30, 20}, map[uint32]uint32{1: 40, self: 50}, 90},
		{"beside a load of nobody", Load{GPUPercent: 40}, []uint32{30}, map[uint32]uint32{self: 30}, 70},
		{"more than there is", Load{GPUPercent: 50, Processes: []Process{{PID: 1}}}, []uint32{100, 50}, map[uint32]uint32{1: 25, self: 75}, 100},
		{"more than there is, beside a load of nobody", Load{GPUPercent: 100}, []uint32{100}, map[uint32]uint32{self: 50}, 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t, "l4")
			d := gpuAt(t, initialised(t, m), 0)
			must(t, m.SetLoad("0", test.load))
			for _, percent := range test.work {
				a := allocator(t, m, t.TempDir())
				must(t, a.Work(percent))
				defer a.Close()
			}
			got := utilizationOf(t, d, 0)
			for pid, want := range test.want {
				if got[pid] != want {
					t.Errorf("process %d: %d%%, want %d%%", pid, got[pid], want)
				}
			}
			if len(got) != len(test.want) {
				t.Errorf("processes %v, want %v", got, test.want)
			}
			if u := succeed[nvml.Utilization](t)(d.GetUtilizationRates()); u.Gpu != test.gpu {
				t.Errorf("the GPU %d%%, want %d%%", u.Gpu, test.gpu)
			}
		})
	}
}

func TestWorkIsAtMostAll(t *testing.T) {
	m := newMachine(t, "l4")
	a := allocator(t, m, t.TempDir())
	defer a.Close()
	if err := a.Work(101); err == nil {
		t.Error("a process may be busier than all the time")
	}
}

// partitioned is an H100 (132 multiprocessors) with a 1g.10gb (16) and a 3g.40gb (60).
func partitioned(t *testing.T) (m *Machine, small, large string) {
	t.Helper()
	m = newMachine(t, "h100-sxm5-80gb")
	small, err := m.CreateMIG("0", "1g.10gb", 6)
	must(t, err)
	large, err = m.CreateMIG("0", "3g.40gb", 0)
	must(t, err)
	return m, small, large
}

func TestAProcessHasMemoryOfItsPartition(t *testing.T) {
	m, small, large := partitioned(t)
	lib := initialised(t, m)
	d := gpuAt(t, lib, 0)
	a, err := m.NewAllocator(small, t.TempDir())
	must(t, err)
	must(t, a.Allocate(9*gib))
	var tooMuch *OutOfMemoryError
	if err := a.Allocate(gib); !errors.As(err, &tooMuch) || tooMuch.Limit != 9984*mebibyte || tooMuch.Used != 9*gib {
		t.Errorf("more than the partition has: %v", err)
	}
	partition := succeed[nvml.Device](t)(lib.DeviceGetHandleByUUID(small))
	other := succeed[nvml.Device](t)(lib.DeviceGetHandleByUUID(large))
	wantUsed(t, partition, 9*gib)
	wantUsed(t, other, 0)
	wantUsed(t, d, 9*gib)
	instance := succeed[int](t)(partition.GetGpuInstanceId())
	for _, handle := range []nvml.Device{partition, d} {
		processes := succeed[[]nvml.ProcessInfo](t)(handle.GetComputeRunningProcesses())
		if len(processes) != 1 || processes[0].UsedGpuMemory != 9*gib || processes[0].GpuInstanceId != uint32(instance) {
			t.Errorf("processes %+v", processes)
		}
	}
	if processes := succeed[[]nvml.ProcessInfo](t)(other.GetComputeRunningProcesses()); len(processes) != 0 {
		t.Errorf("processes of the other partition %+v", processes)
	}
	if err := m.DestroyMIG("0", small); err == nil {
		t.Error("a partition was destroyed under a process")
	}
	must(t, a.Close())
	must(t, m.DestroyMIG("0", small))
	if err := a.Allocate(gib); err == nil || errors.Is(err, ErrOutOfMemory) {
		t.Errorf("in a partition that is gone: %v", err)
	}
	if _, err := m.NewAllocator(small, t.TempDir()); err == nil {
		t.Error("an allocator for a partition that is gone")
	}
}

func TestPartitionsDrawPowerByTheirMultiprocessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, small, large := partitioned(t)
		d := gpuAt(t, initialised(t, m), 0)
		before := energyOf(t, d)
		for uuid, percent := range map[string]uint32{small: 100, large: 50} {
			a, err := m.NewAllocator(uuid, t.TempDir())
			must(t, err)
			must(t, a.Work(percent))
			t.Cleanup(func() { must(t, a.Close()) })
		}
		// 100% of 16 and 50% of 60 multiprocessors are 46 of 132, 34.84%: 70 W and
		// 630 W * 0.3484 = 289.492 W.
		if got := succeed[uint32](t)(d.GetPowerUsage()); got != 289_492 {
			t.Errorf("%d mW", got)
		}
		time.Sleep(10 * time.Second)
		if got := energyOf(t, d) - before; got != 2_894_920 {
			t.Errorf("%d mJ", got)
		}
		if _, ret := d.GetProcessUtilization(0); ret != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("utilization of processes in MIG mode: %v", ret)
		}
	})
}

// metricsBetween are GPM's values between two samples, by metric.
func metricsBetween(t *testing.T, lib nvml.Interface, before, after nvml.GpmSample, ids ...nvml.GpmMetricId) []nvml.GpmMetric {
	t.Helper()
	get := &nvml.GpmMetricsGetType{NumMetrics: uint32(len(ids)), Sample1: before, Sample2: after}
	for i, id := range ids {
		get.Metrics[i].MetricId = uint32(id)
	}
	if ret := lib.GpmMetricsGet(get); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	return get.Metrics[:len(ids)]
}

func twoSamples(t *testing.T, lib nvml.Interface) (before, after nvml.GpmSample) {
	t.Helper()
	for _, sample := range []*nvml.GpmSample{&before, &after} {
		*sample = succeed[nvml.GpmSample](t)(lib.GpmSampleAlloc())
		t.Cleanup(func() {
			if ret := lib.GpmSampleFree(*sample); ret != nvml.SUCCESS {
				t.Errorf("free: %v", ret)
			}
			if ret := lib.GpmSampleFree(*sample); ret != nvml.ERROR_INVALID_ARGUMENT {
				t.Errorf("free again: %v", ret)
			}
		})
	}
	return before, after
}

func wantReturn(t *testing.T, what string, got, want nvml.Return) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestGPMMeasuresBetweenTwoSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "h100-sxm5-80gb")
		lib := initialised(t, m)
		d := gpuAt(t, lib, 0)
		if support := succeed[nvml.GpmSupport](t)(lib.GpmQueryDeviceSupport(d)); support.IsSupportedDevice != 1 {
			t.Error("an H100 has no GPM")
		}
		before, after := twoSamples(t, lib)
		if ret := lib.GpmMetricsGet(&nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: before, Sample2: after}); ret != nvml.ERROR_INVALID_ARGUMENT {
			t.Errorf("metrics of empty samples: %v", ret)
		}
		wantReturn(t, "first sample", lib.GpmSampleGet(d, before), nvml.SUCCESS)
		time.Sleep(time.Second)
		must(t, m.SetLoad("0", Load{GPUPercent: 80}))
		time.Sleep(3 * time.Second)
		wantReturn(t, "second sample", lib.GpmSampleGet(d, after), nvml.SUCCESS)
		// 80% for three of four seconds.
		for id, want := range map[nvml.GpmMetricId]float64{
			nvml.GPM_METRIC_GRAPHICS_UTIL: 60, nvml.GPM_METRIC_ANY_TENSOR_UTIL: 30, nvml.GPM_METRIC_PCIE_TX_PER_SEC: 6000,
			nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: 60_000,
		} {
			got := metricsBetween(t, lib, before, after, id)[0]
			if nvml.Return(got.NvmlReturn) != nvml.SUCCESS || math.Abs(got.Value-want) > 1e-9 {
				t.Errorf("metric %d: %v, %v, want %v", id, got.Value, nvml.Return(got.NvmlReturn), want)
			}
		}
		if got := metricsBetween(t, lib, before, after, 30)[0]; nvml.Return(got.NvmlReturn) != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("a decoder's: %v", nvml.Return(got.NvmlReturn))
		}
	})
}

func TestGPMOfAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, small, large := partitioned(t)
		lib := initialised(t, m)
		d := gpuAt(t, lib, 0)
		partition := succeed[nvml.Device](t)(lib.DeviceGetHandleByUUID(small))
		other := succeed[nvml.Device](t)(lib.DeviceGetHandleByUUID(large))
		before, after := twoSamples(t, lib)
		instance := succeed[int](t)(partition.GetGpuInstanceId())
		wantReturn(t, "first sample", lib.GpmMigSampleGet(d, instance, before), nvml.SUCCESS)
		a, err := m.NewAllocator(small, t.TempDir())
		must(t, err)
		must(t, a.Work(40))
		time.Sleep(time.Second)
		wantReturn(t, "second sample", lib.GpmSampleGet(partition, after), nvml.SUCCESS)
		got := metricsBetween(t, lib, before, after, nvml.GPM_METRIC_SM_UTIL, nvml.GPM_METRIC_PCIE_TX_PER_SEC)
		if got[0].Value != 40 || nvml.Return(got[1].NvmlReturn) != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("metrics %+v", got)
		}
		wantReturn(t, "sample of the other", lib.GpmSampleGet(other, before), nvml.SUCCESS)
		if ret := lib.GpmMetricsGet(&nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: before, Sample2: after}); ret != nvml.ERROR_INVALID_ARGUMENT {
			t.Errorf("metrics of two devices: %v", ret)
		}
		wantReturn(t, "sample of no instance", lib.GpmMigSampleGet(d, 14, before), nvml.ERROR_NOT_FOUND)
		must(t, a.Close())
	})
}

func TestWhoHasGPM(t *testing.T) {
	m := newMachine(t, "a100-sxm4-40gb")
	lib := initialised(t, m)
	d := gpuAt(t, lib, 0)
	if support := succeed[nvml.GpmSupport](t)(lib.GpmQueryDeviceSupport(d)); support.IsSupportedDevice != 0 {
		t.Error("an A100 has GPM")
	}
	sample, _ := twoSamples(t, lib)
	wantReturn(t, "sample of an A100", lib.GpmSampleGet(d, sample), nvml.ERROR_NOT_SUPPORTED)
	must(t, lib.Extensions().LookupSymbol("nvmlGpmMetricsGet"))
	must(t, m.SetDriverVersion("515.65.01"))
	if err := lib.Extensions().LookupSymbol("nvmlGpmMetricsGet"); err == nil {
		t.Error("an old library has GPM")
	}
	wantReturn(t, "sample with an old library", lib.GpmSampleGet(d, sample), nvml.ERROR_FUNCTION_NOT_FOUND)
}

func TestFieldValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "h100-sxm5-80gb,t4")
		lib := initialised(t, m)
		must(t, m.SetLoad("0", Load{GPUPercent: 50}))
		time.Sleep(2 * time.Second)
		for _, test := range []struct {
			gpu   int
			id    uint32
			ret   nvml.Return
			value [8]byte
		}{
			{0, nvml.FI_DEV_MEMORY_TEMP, nvml.SUCCESS, [8]byte{55}},
			// 385 W.
			{0, nvml.FI_DEV_POWER_INSTANT, nvml.SUCCESS, [8]byte{0xe8, 0xdf, 0x05}},
			// 1 s of 100000 MiB/s in KiB.
			{0, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.SUCCESS, [8]byte{0x00, 0x80, 0x1a, 0x06}},
			{0, nvml.FI_DEV_RETIRED_DBE, nvml.ERROR_NOT_SUPPORTED, [8]byte{}},
			{1, nvml.FI_DEV_MEMORY_TEMP, nvml.ERROR_NOT_SUPPORTED, [8]byte{}},
			{1, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.ERROR_NOT_SUPPORTED, [8]byte{}},
			{1, nvml.FI_DEV_RETIRED_DBE, nvml.SUCCESS, [8]byte{}},
			{1, 9999, nvml.ERROR_NOT_SUPPORTED, [8]byte{}},
		} {
			values := []nvml.FieldValue{{FieldId: test.id}}
			wantReturn(t, "call", gpuAt(t, lib, test.gpu).GetFieldValues(values), nvml.SUCCESS)
			if got := values[0]; nvml.Return(got.NvmlReturn) != test.ret || got.Value != test.value || got.Timestamp != time.Now().UnixMicro() {
				t.Errorf("GPU %d, value %d: %+v", test.gpu, test.id, got)
			}
		}
	})
}

func TestAProgramSeesTheDevicesWhoseNodesItHas(t *testing.T) {
	m, small, large := partitioned(t)
	plain, err := m.AddGPU("h100-sxm5-80gb", 1)
	must(t, err)
	dev := t.TempDir()
	wantVisible := func(want ...string) {
		t.Helper()
		if got, err := m.VisibleDevices(dev); err != nil || !slices.Equal(got, want) {
			t.Errorf("visible are %v, %v; want %v", got, err, want)
		}
	}
	wantVisible()
	node := func(name string) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dev, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dev, name), nil, 0o600))
	}
	node("nvidia0")
	wantVisible()
	if err := m.CheckDeviceNode(dev, small); err == nil {
		t.Error("a partition is there without its capability")
	}
	// Where nvidia-smi says the capabilities are: gpu0/gi<id>/access and ci0 after it.
	st, err := m.store.read()
	must(t, err)
	for _, d := range st.present()[0].migDevices() {
		if d.uuid == small {
			node("nvidia-caps/" + fmt.Sprintf("nvidia-cap%d", fakeroot.InstanceCapability(0, d.gi.ID)))
			wantVisible()
			node("nvidia-caps/" + fmt.Sprintf("nvidia-cap%d", fakeroot.ComputeCapability(0, d.gi.ID, d.ci.ID)))
		}
	}
	wantVisible(small)
	must(t, m.CheckDeviceNode(dev, small))
	if err := m.CheckDeviceNode(dev, large); err == nil {
		t.Error("another partition is there")
	}
	node("nvidia1")
	wantVisible(small, plain)
}
