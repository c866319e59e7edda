package gpumetrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// notAvailable is NVML_VALUE_NOT_AVAILABLE, where NVML does not say how much memory a
// process has.
const notAvailable = ^uint64(0)

// noInstance is NVML's number for "no MIG instance".
const noInstance = ^uint32(0)

// samplingPeriod is the longest over which NVML samples utilization
// (nvmlUtilization_t): for so long there may be no new sample although a process is at
// work.
const samplingPeriod = time.Second

// runningProcess is a process as NVML lists it.
type runningProcess struct {
	pid, instance uint32
	bytes         uint64
}

// processLists are NVML's lists of processes, by their kinds of context.
var processLists = []struct {
	symbols string
	read    func(nvml.Device) ([]nvml.ProcessInfo, nvml.Return)
}{
	{
		"nvmlDeviceGetComputeRunningProcesses_v3|nvmlDeviceGetComputeRunningProcesses_v2|nvmlDeviceGetComputeRunningProcesses",
		nvml.Device.GetComputeRunningProcesses,
	},
	{
		"nvmlDeviceGetGraphicsRunningProcesses_v3|nvmlDeviceGetGraphicsRunningProcesses_v2|nvmlDeviceGetGraphicsRunningProcesses",
		nvml.Device.GetGraphicsRunningProcesses,
	},
	{
		"nvmlDeviceGetMPSComputeRunningProcesses_v3|nvmlDeviceGetMPSComputeRunningProcesses_v2|nvmlDeviceGetMPSComputeRunningProcesses",
		nvml.Device.GetMPSComputeRunningProcesses,
	},
}

// running lists the processes on a handle. One with several kinds of context is in
// several lists, with the same memory. The result is false if there is no list, or one
// that does not say how much memory everyone has.
func (r *reading) running(dev nvml.Device) ([]runningProcess, bool) {
	var processes []runningProcess
	listed := false
	for _, list := range processLists {
		if r.lost || !r.reader.has(list.symbols) {
			continue
		}
		infos, ret := list.read(dev)
		if !r.ok("processes", ret) {
			continue
		}
		listed = true
		for _, info := range infos {
			if info.UsedGpuMemory == notAvailable {
				return nil, false
			}
			processes = append(processes, runningProcess{pid: info.Pid, instance: info.GpuInstanceId, bytes: info.UsedGpuMemory})
		}
	}
	slices.SortFunc(processes, func(a, b runningProcess) int {
		return cmp.Or(cmp.Compare(a.instance, b.instance), cmp.Compare(a.pid, b.pid), cmp.Compare(b.bytes, a.bytes))
	})
	processes = slices.CompactFunc(processes, func(a, b runningProcess) bool { return a.instance == b.instance && a.pid == b.pid })
	return processes, listed
}

// processes are those of a GPU that is not in MIG mode.
func (r *reading) processes() []Process {
	running, ok := r.running(r.dev)
	if !ok {
		return nil
	}
	busy := map[uint32]float64(nil)
	if len(running) > 0 {
		busy = r.processesBusy()
	}
	processes := make([]Process, 0, len(running))
	for _, p := range running {
		process := Process{PID: int(p.pid), UsedBytes: p.bytes}
		if busy != nil {
			// Who is not in NVML's answer did nothing.
			util := busy[p.pid]
			process.SMUtil = &util
		}
		processes = append(processes, process)
	}
	return processes
}

// instanceProcesses are those of a partition. The GPU's own lists have all of them, but
// may be closed to us.
func (r *reading) instanceProcesses(ofGPU []runningProcess, listed bool) []Process {
	id := uint32(r.instance.ID)
	running := ofGPU
	if !listed {
		var ok bool
		if running, ok = r.running(r.dev); !ok {
			return nil
		}
	}
	processes := []Process{}
	for _, p := range running {
		if p.instance == id || !listed && p.instance == noInstance {
			processes = append(processes, Process{PID: int(p.pid), UsedBytes: p.bytes})
		}
	}
	return processes
}

// processUtilization is what is remembered of the utilization of a GPU's processes.
type processUtilization struct {
	// lastSeen is the time of the latest sample, in NVML's microseconds.
	lastSeen uint64
	// busy are the latest values by PID, 0 to 1, at a time.
	busy map[uint32]float64
	at   time.Time
}

// processesBusy is how busy the processes kept the GPU by PID, 0 to 1, nil if it was
// not measured.
func (r *reading) processesBusy() map[uint32]float64 {
	if r.lost || !r.reader.has(symbolProcessUtilization) {
		return nil
	}
	p := &r.state.processes
	samples, ret := r.dev.GetProcessUtilization(p.lastSeen)
	switch {
	case ret == nvml.ERROR_NOT_FOUND, ret == nvml.ERROR_INSUFFICIENT_SIZE && len(samples) == 0:
		samples = nil
	case !r.ok("utilization of processes", ret):
		p.busy = nil
		return nil
	}
	samples = slices.DeleteFunc(samples, func(s nvml.ProcessUtilizationSample) bool {
		// Places that NVML did not fill have no PID, or nonsense.
		return s.Pid == 0 || s.SmUtil > 100 || s.TimeStamp <= p.lastSeen
	})
	if elapsed := r.now.Sub(p.at); len(samples) == 0 && p.busy != nil && elapsed >= 0 && elapsed < samplingPeriod {
		return p.busy
	}
	p.busy, p.at = means(samples), r.now
	for _, s := range samples {
		p.lastSeen = max(p.lastSeen, s.TimeStamp)
	}
	return p.busy
}

const symbolProcessUtilization = "nvmlDeviceGetProcessUtilization"

// means are the mean utilizations of processes, 0 to 1.
func means(samples []nvml.ProcessUtilizationSample) map[uint32]float64 {
	sums, counts := map[uint32]float64{}, map[uint32]float64{}
	for _, s := range samples {
		sums[s.Pid] += float64(s.SmUtil) / percent
		counts[s.Pid]++
	}
	for pid := range sums {
		sums[pid] /= counts[pid]
	}
	return sums
}
