package gpumetrics

import (
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

type processInfos = []nvml.ProcessInfo

func listing(infos ...nvml.ProcessInfo) func() (processInfos, nvml.Return) {
	return func() (processInfos, nvml.Return) { return infos, nvml.SUCCESS }
}

func failing(ret nvml.Return) func() (processInfos, nvml.Return) {
	return func() (processInfos, nvml.Return) { return nil, ret }
}

func process(pid uint32, bytes uint64) nvml.ProcessInfo {
	return nvml.ProcessInfo{Pid: pid, UsedGpuMemory: bytes, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}
}

func TestProcessesOfAllLists(t *testing.T) {
	for _, test := range []struct {
		name                   string
		compute, graphics, mps func() (processInfos, nvml.Return)
		missing                []string
		want                   []Process
	}{
		{name: "none", compute: listing(), graphics: listing(), mps: listing(), want: []Process{}},
		{
			name: "one with two kinds of context counts once", compute: listing(process(9, 500), process(7, 300)),
			graphics: listing(process(7, 300), process(8, 20)), mps: listing(process(9, 400)),
			want: []Process{{PID: 7, UsedBytes: 300}, {PID: 8, UsedBytes: 20}, {PID: 9, UsedBytes: 500}},
		},
		{
			name: "one list fails", compute: listing(process(7, 300)), graphics: failing(nvml.ERROR_NOT_SUPPORTED), mps: failing(nvml.ERROR_UNKNOWN),
			want: []Process{{PID: 7, UsedBytes: 300}},
		},
		{name: "all lists fail", compute: failing(nvml.ERROR_NO_PERMISSION), graphics: failing(nvml.ERROR_NO_PERMISSION), mps: failing(nvml.ERROR_NO_PERMISSION)},
		{name: "memory that is not said", compute: listing(process(7, notAvailable)), graphics: listing(), mps: listing()},
		{
			name: "an older library", compute: listing(process(7, 300)), graphics: listing(),
			missing: []string{
				"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
				"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses",
			},
			want: []Process{{PID: 7, UsedBytes: 300}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := plainDevice(&fieldNumbers{})
			d.GetComputeRunningProcessesFunc, d.GetGraphicsRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc = test.compute, test.graphics, test.mps
			r := newReader(t, newMock(map[string]*mock.Device{uuid0: d}, append(test.missing, symbolProcessUtilization)...))
			if diff := cmp.Diff(test.want, readOne(t, r, oneGPU(), time.Unix(0, 0)).Processes); diff != "" {
				t.Errorf("processes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHowBusyProcessesAre(t *testing.T) {
	type samples = []nvml.ProcessUtilizationSample
	var answer samples
	var ret nvml.Return
	var asked uint64
	d := plainDevice(&fieldNumbers{})
	d.GetComputeRunningProcessesFunc = listing(process(7, 300), process(8, 20))
	d.GetProcessUtilizationFunc = func(lastSeen uint64) (samples, nvml.Return) {
		asked = lastSeen
		return answer, ret
	}
	r := newReader(t, newMock(map[string]*mock.Device{uuid0: d}))
	for i, step := range []struct {
		name     string
		at       float64
		answer   samples
		ret      nvml.Return
		asked    uint64
		pid7     float64
		pid8     float64
		measured bool
	}{
		{"one sample each", 0, samples{{Pid: 7, TimeStamp: 100, SmUtil: 30}, {Pid: 8, TimeStamp: 101, SmUtil: 50}}, nvml.SUCCESS, 0, 0.3, 0.5, true},
		{"who is not listed did nothing", 1, samples{{Pid: 7, TimeStamp: 200, SmUtil: 40}}, nvml.SUCCESS, 101, 0.4, 0, true},
		{"the mean of several", 2, samples{{Pid: 7, TimeStamp: 300, SmUtil: 40}, {Pid: 7, TimeStamp: 400, SmUtil: 60}}, nvml.SUCCESS, 200, 0.5, 0, true},
		{"too soon for new samples", 2.9, nil, nvml.ERROR_NOT_FOUND, 400, 0.5, 0, true},
		{"nobody did anything", 3.1, nil, nvml.ERROR_NOT_FOUND, 400, 0, 0, true},
		{"places that are not filled", 4.2, samples{{Pid: 0, TimeStamp: 9999, SmUtil: 7}, {Pid: 8, TimeStamp: 500, SmUtil: 2_000_000}, {Pid: 7, TimeStamp: 450, SmUtil: 10}}, nvml.SUCCESS, 400, 0.1, 0, true},
		{"samples that were seen", 5.3, samples{{Pid: 7, TimeStamp: 450, SmUtil: 10}}, nvml.SUCCESS, 450, 0, 0, true},
		{"not measured", 6, nil, nvml.ERROR_UNKNOWN, 450, 0, 0, false},
		{"an empty buffer", 7.1, nil, nvml.ERROR_INSUFFICIENT_SIZE, 450, 0, 0, true},
	} {
		answer, ret = step.answer, step.ret
		got := readOne(t, r, oneGPU(), time.Unix(0, int64(step.at*1e9))).Processes
		want := []Process{{PID: 7, UsedBytes: 300}, {PID: 8, UsedBytes: 20}}
		if step.measured {
			want[0].SMUtil, want[1].SMUtil = &step.pid7, &step.pid8
		}
		if diff := cmp.Diff(want, got); diff != "" || asked != step.asked {
			t.Errorf("step %d, %s: asked for samples after %d, want %d; processes (-want +got):\n%s", i, step.name, asked, step.asked, diff)
		}
	}
}

// The GPU's lists have the processes of all partitions; where they are closed, each
// partition's own is asked.
func TestProcessesOfPartitions(t *testing.T) {
	const other = "MIG-4f3a1b2c-0000-4000-8000-0000000000bb"
	node := oneGPU(func(g *inventory.GPU) {
		g.MIG.Enabled = ptr(true)
		g.MIG.Instances = []inventory.MIGInstance{{ID: 7, UUID: mig0}, {ID: 9, UUID: other}}
	})
	inInstance := func(pid, instance uint32, bytes uint64) nvml.ProcessInfo {
		p := process(pid, bytes)
		p.GpuInstanceId = instance
		return p
	}
	for _, test := range []struct {
		name            string
		ofGPU           func() (processInfos, nvml.Return)
		first, second   func() (processInfos, nvml.Return)
		want, wantOther []Process
	}{
		{
			name:  "from the GPU",
			ofGPU: listing(inInstance(11, 9, 500), inInstance(11, 7, 100), inInstance(10, 7, 50), process(12, 1)),
			want:  []Process{{PID: 10, UsedBytes: 50}, {PID: 11, UsedBytes: 100}}, wantOther: []Process{{PID: 11, UsedBytes: 500}},
		},
		{
			name: "from the partitions", ofGPU: failing(nvml.ERROR_NO_PERMISSION),
			first: listing(inInstance(10, 7, 50)), second: listing(process(11, 500)),
			want: []Process{{PID: 10, UsedBytes: 50}}, wantOther: []Process{{PID: 11, UsedBytes: 500}},
		},
		{
			name: "one cannot be asked", ofGPU: failing(nvml.ERROR_NO_PERMISSION),
			first: failing(nvml.ERROR_NO_PERMISSION), second: listing(),
			wantOther: []Process{},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			devices := map[string]*mock.Device{}
			for uuid, list := range map[string]func() (processInfos, nvml.Return){uuid0: test.ofGPU, mig0: test.first, other: test.second} {
				d := plainDevice(&fieldNumbers{})
				// Without a list it panics if it is asked.
				d.GetComputeRunningProcessesFunc, d.GetGraphicsRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc = list, list, list
				devices[uuid] = d
			}
			r := newReader(t, newMock(devices))
			got := r.Read(t.Context(), node, time.Unix(0, 0)).Devices
			if len(got) != 3 || got[0].Processes != nil {
				t.Fatalf("devices %+v", got)
			}
			if diff := cmp.Diff([][]Process{test.want, test.wantOther}, [][]Process{got[1].Processes, got[2].Processes}); diff != "" {
				t.Errorf("processes (-want +got):\n%s", diff)
			}
		})
	}
}
