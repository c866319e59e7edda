package gpumetrics

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

const gib = 1 << 30

// An idle H100 draws 70 W, a busy one 700 W; it has 81559 MiB, of which 551 are
// reserved.
func TestDefaultFieldsOfAnH100(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []string{"h100-sxm5-80gb"}, Default()...)
		node := r.node()
		time.Sleep(10 * time.Second)
		r.readOf(node)
		must(t, r.SetLoad("0", fakegpu.Load{GPUPercent: 50, MemoryPercent: 20, Processes: []fakegpu.Process{
			{PID: 7, MemoryBytes: 20 * gib}, {PID: 8, MemoryBytes: 10 * gib},
		}}))
		time.Sleep(4 * time.Second)
		devices := r.readOf(node)
		if len(devices) != 1 {
			t.Fatalf("%d devices", len(devices))
		}
		d := devices[0]
		wantValues(t, r.reader, d, map[string]Value{
			"DCGM_FI_DEV_SM_CLOCK": of(1980), "DCGM_FI_DEV_MEM_CLOCK": of(2619),
			"DCGM_FI_DEV_GPU_TEMP": of(50), "DCGM_FI_DEV_MEMORY_TEMP": of(55),
			"DCGM_FI_DEV_POWER_USAGE": of(385),
			// 10 s at 70 W and 4 s at 385 W.
			"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": of(2_240_000),
			"DCGM_FI_DEV_PCIE_REPLAY_COUNTER":      of(0),
			"DCGM_FI_DEV_GPU_UTIL":                 of(50), "DCGM_FI_DEV_MEM_COPY_UTIL": of(20), "DCGM_FI_DEV_ENC_UTIL": of(0), "DCGM_FI_DEV_DEC_UTIL": of(0),
			"DCGM_FI_DEV_XID_ERRORS": of(0),
			"DCGM_FI_DEV_FB_USED":    of(30720), "DCGM_FI_DEV_FB_FREE": of(50288), "DCGM_FI_DEV_FB_RESERVED": of(551),
			// 100000 MiB in each direction in a second in which it is busy.
			"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL":      of(104857.6),
			"DCGM_FI_DEV_VGPU_LICENSE_STATUS":         of(0),
			"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": of(0), "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": of(0), "DCGM_FI_DEV_ROW_REMAP_FAILURE": of(0),
			"DCGM_FI_DRIVER_VERSION":        words("580.95.05"),
			"DCGM_FI_PROF_GR_ENGINE_ACTIVE": of(0.5), "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": of(0.25), "DCGM_FI_PROF_DRAM_ACTIVE": of(0.25),
			// 10000 and 5000 MiB/s while it is busy.
			"DCGM_FI_PROF_PCIE_TX_BYTES": of(5000 << 20), "DCGM_FI_PROF_PCIE_RX_BYTES": of(2500 << 20),
		})
		gpu := node.GPUs[0]
		want := Device{
			Kind: GPU, UUID: gpu.UUID,
			GPU: GPUIdentity{Index: 0, Minor: ptr(0), UUID: gpu.UUID, PCIBusID: gpu.PCIBusID, ModelName: "NVIDIA H100 80GB HBM3"},
			// It was first read after 10 s; synctest's clock begins with the year 2000.
			MeasuredSince:     time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC),
			EnergyMillijoules: ptr(uint64(2_240_000)), SMUtil: ptr(0.5),
			Processes: []Process{{PID: 7, UsedBytes: 20 * gib, SMUtil: ptr(0.25)}, {PID: 8, UsedBytes: 10 * gib, SMUtil: ptr(0.25)}},
		}
		d.Values = nil
		if diff := cmp.Diff(want, d); diff != "" {
			t.Errorf("device (-want +got):\n%s", diff)
		}
	})
}

func TestPartitionsHaveValuesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []string{"h100-sxm5-80gb"}, "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP",
			"DCGM_FI_DRIVER_VERSION", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES")
		large, err := r.CreateMIG("0", "3g.40gb", 4)
		must(t, err)
		small, err := r.CreateMIG("0", "1g.10gb", 0)
		must(t, err)
		a, err := r.NewAllocator(small, t.TempDir())
		must(t, err)
		must(t, a.Allocate(gib))
		must(t, a.Work(60))
		r.read()
		time.Sleep(time.Second)
		devices := r.read()
		if len(devices) != 3 || devices[1].UUID != small || devices[2].UUID != large {
			t.Fatalf("devices %+v", devices)
		}
		gpu := devices[0].GPU
		// 60% of 16 of 132 multiprocessors are 7.27%, and 30 + 7 * 2/5 degrees.
		wantValues(t, r.reader, devices[0], map[string]Value{
			"DCGM_FI_DEV_FB_USED": of(1024), "DCGM_FI_DEV_FB_FREE": of(79984), "DCGM_FI_DEV_GPU_TEMP": of(32), "DCGM_FI_DRIVER_VERSION": words("580.95.05"),
			"DCGM_FI_PROF_GR_ENGINE_ACTIVE": of(0.0727), "DCGM_FI_PROF_PCIE_TX_BYTES": of(727 << 20),
		})
		wantValues(t, r.reader, devices[1], map[string]Value{
			"DCGM_FI_DEV_FB_USED": of(1024), "DCGM_FI_DEV_FB_FREE": of(8960), "DCGM_FI_DRIVER_VERSION": words("580.95.05"), "DCGM_FI_PROF_GR_ENGINE_ACTIVE": of(0.6),
		})
		wantValues(t, r.reader, devices[2], map[string]Value{
			"DCGM_FI_DEV_FB_USED": of(0), "DCGM_FI_DEV_FB_FREE": of(40448), "DCGM_FI_DRIVER_VERSION": words("580.95.05"), "DCGM_FI_PROF_GR_ENGINE_ACTIVE": of(0),
		})
		for i := range devices {
			devices[i].Values = nil
		}
		pid := devices[1].Processes[0].PID
		began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		want := []Device{
			{Kind: GPU, UUID: gpu.UUID, GPU: gpu, MeasuredSince: began, EnergyMillijoules: devices[0].EnergyMillijoules, SMUtil: ptr(0.0727)},
			{Kind: Instance, UUID: small, GPU: gpu, Profile: "1g.10gb", GPUInstanceID: devices[1].GPUInstanceID, MeasuredSince: began, SMUtil: ptr(0.6), Processes: []Process{{PID: pid, UsedBytes: gib}}},
			{Kind: Instance, UUID: large, GPU: gpu, Profile: "3g.40gb", GPUInstanceID: devices[2].GPUInstanceID, MeasuredSince: began, SMUtil: ptr(0.0), Processes: []Process{}},
		}
		if diff := cmp.Diff(want, devices); diff != "" {
			t.Errorf("devices (-want +got):\n%s", diff)
		}
		if devices[0].EnergyMillijoules == nil || devices[1].GPUInstanceID == nil || *devices[1].GPUInstanceID == *devices[2].GPUInstanceID {
			t.Errorf("devices %+v", devices)
		}

		must(t, a.Close())
		must(t, r.DestroyMIG("0", "all"))
		if devices := r.read(); len(devices) != 1 {
			t.Errorf("%d devices are left", len(devices))
		}
		// Those of the GPU itself.
		if _, samples := r.library.held(); samples != 2 {
			t.Errorf("%d sample buffers are left", samples)
		}
	})
}

func TestWhatAProductLacksIsAbsent(t *testing.T) {
	for product, missing := range map[string][]string{
		"t4": {
			"DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
			"DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
		},
		"a100-sxm4-40gb": {
			"DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
		},
		"h200-sxm5-141gb": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, []string{product}, Default()...)
			r.read()
			time.Sleep(time.Second)
			d := r.read()[0]
			var got []string
			for i, f := range r.reader.Fields() {
				if !d.Values[i].Present {
					got = append(got, f.Name)
				}
			}
			if diff := cmp.Diff(missing, got); diff != "" {
				t.Errorf("%s lacks (-want +got):\n%s", product, diff)
			}
		})
	}
}

func TestAFailureIsOfOneFieldAndOneSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []string{"h100-sxm5-80gb", "h100-sxm5-80gb"}, Default()...)
		node := r.node()
		r.readOf(node)
		all := func(failing ...string) {
			t.Helper()
			time.Sleep(time.Second)
			for g, d := range r.readOf(node) {
				for i, f := range r.reader.Fields() {
					if want := g == 1 || !slices.Contains(failing, f.Name); d.Values[i].Present != want {
						t.Errorf("%s of GPU %d is there: %t, want %t", f.Name, g, d.Values[i].Present, want)
					}
				}
			}
		}
		all()
		for property, fields := range map[string][]string{
			"temperature":  {"DCGM_FI_DEV_GPU_TEMP"},
			"power":        {"DCGM_FI_DEV_POWER_USAGE"},
			"energy":       {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"},
			"memory":       {"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED"},
			"field-values": {"DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"},
		} {
			must(t, r.Fail("0", property, "unknown"))
			all(fields...)
			must(t, r.Heal("0", property))
			all()
		}
		must(t, r.Fail("0", "processes", "no-permission"))
		if d := r.readOf(node)[0]; d.Processes != nil {
			t.Errorf("processes %+v", d.Processes)
		}
		must(t, r.Heal("0", "processes"))

		must(t, r.LoseGPU("0"))
		devices := r.readOf(node)
		wantValues(t, r.reader, devices[0], nil)
		if !devices[1].Values[0].Present {
			t.Error("its neighbour has no values")
		}
		must(t, r.RestoreGPU("0"))
		r.readOf(node)
		all()

		must(t, r.RemoveGPU("0"))
		wantValues(t, r.reader, r.readOf(node)[0], nil)
		if devices := r.read(); len(devices) != 1 || devices[0].UUID != node.GPUs[1].UUID {
			t.Errorf("devices %+v", devices)
		}
	})
}

// Functions are hidden one after the other: their fields go, and no others.
func TestOlderLibrariesOnTheFake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []string{"h100-sxm5-80gb"}, Default()...)
		r.read()
		for _, step := range []struct {
			symbols, fields []string
		}{
			{[]string{"nvmlDeviceGetTotalEnergyConsumption"}, []string{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}},
			{[]string{"nvmlDeviceGetFieldValues"}, []string{"DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"}},
			{[]string{"nvmlDeviceGetMemoryInfo_v2"}, []string{"DCGM_FI_DEV_FB_RESERVED"}},
			{[]string{"nvmlEventSetCreate"}, []string{"DCGM_FI_DEV_XID_ERRORS"}},
			{[]string{"nvmlGpmMetricsGet"}, []string{
				"DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
			}},
		} {
			must(t, r.HideSymbols(step.symbols...))
			time.Sleep(time.Second)
			d := r.read()[0]
			for i, f := range r.reader.Fields() {
				if want := !slices.Contains(step.fields, f.Name); d.Values[i].Present != want {
					t.Errorf("without %v %s is there: %t", step.symbols, f.Name, d.Values[i].Present)
				}
			}
			must(t, r.ShowSymbols())
			r.read()
			time.Sleep(time.Second)
			r.read()
		}
	})
}

func TestAReloadedDriverBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []string{"h100-sxm5-80gb"}, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DRIVER_VERSION")
		r.read()
		time.Sleep(time.Second)
		wantValues(t, r.reader, r.read()[0], map[string]Value{
			"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": of(70_000), "DCGM_FI_PROF_SM_ACTIVE": of(0), "DCGM_FI_DRIVER_VERSION": words("580.95.05"),
		})
		must(t, r.SetDriverVersion("none"))
		if devices := r.read(); len(devices) != 0 {
			t.Errorf("devices %+v", devices)
		}
		must(t, r.SetDriverVersion("590.44.01"))
		time.Sleep(time.Second)
		wantValues(t, r.reader, r.read()[0], map[string]Value{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": of(70_000), "DCGM_FI_DRIVER_VERSION": words("590.44.01")})
	})
}
