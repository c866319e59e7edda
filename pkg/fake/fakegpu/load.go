package fakegpu

// processLoad is a process on a GPU, and the part of the time in which it keeps the
// device that it runs on busy, in percent.
type processLoad struct {
	Process
	percent uint32
}

// running are the processes on the GPU: those of its load, and those with
// allocations, which have the PID that this process sees.
func (v view) running() []Process {
	loads := v.processLoads(v.seen())
	processes := make([]Process, len(loads))
	for i, p := range loads {
		processes[i] = p.Process
	}
	return processes
}

// processLoads are the processes of the GPU's load and those with allocations, with
// what each of them keeps busy by itself.
func (v view) processLoads(allocations []allocation) []processLoad {
	loads := make([]processLoad, 0, len(v.Load.Processes)+len(allocations))
	for _, p := range v.Load.Processes {
		loads = append(loads, processLoad{Process: p})
	}
	index := map[string]int{}
	for _, a := range allocations {
		i, known := index[a.Holder]
		if !known {
			i = len(loads)
			index[a.Holder] = i
			loads = append(loads, processLoad{Process: Process{PID: a.PID, Name: a.Name, MIGDevice: a.MIGDevice}})
		}
		loads[i].MemoryBytes += a.Bytes
		loads[i].percent += a.BusyPercent
	}
	return loads
}

// busyOn are the processes on a MIG device, or on the GPU itself if it is empty, and how
// busy they keep it together, in percent. Processes that do not say what they do share
// the GPU's utilization evenly. All together are never more than 100: then each gets
// its part of that.
func (v view) busyOn(migDevice string, allocations []allocation) (loads []processLoad, percent uint32) {
	var silent []int
	for _, p := range v.processLoads(allocations) {
		if p.MIGDevice != migDevice {
			continue
		}
		if p.percent == 0 {
			silent = append(silent, len(loads))
		}
		loads = append(loads, p)
	}
	// What the load says is the GPU's own, unless there are processes to do it.
	var own uint32
	if len(silent) > 0 {
		for i, part := range split(v.Load.GPUPercent, make([]uint32, len(silent))) {
			loads[silent[i]].percent = part
		}
	} else if migDevice == "" {
		own = v.Load.GPUPercent
	}
	weights, sum := make([]uint32, 0, len(loads)+1), own
	for _, p := range loads {
		weights = append(weights, p.percent)
		sum += p.percent
	}
	if sum <= 100 {
		return loads, sum
	}
	for i, part := range split(100, append(weights, own))[:len(loads)] {
		loads[i].percent = part
	}
	return loads, 100
}

// split divides a number by weights, evenly if all are 0. The parts are whole and their
// sum is the number.
func split(total uint32, weights []uint32) []uint32 {
	var all uint64
	for _, w := range weights {
		all += uint64(w)
	}
	parts := make([]uint32, len(weights))
	var before, given uint64
	for i, w := range weights {
		weight := uint64(w)
		sum := all
		if all == 0 {
			weight, sum = 1, uint64(len(weights))
		}
		before += weight
		upTo := uint64(total) * before / sum
		parts[i] = uint32(upTo - given)
		given = upTo
	}
	return parts
}

// whole is a device that is busy all the time, in the unit of utilization that is
// reckoned with.
const whole = 10_000

// activity is how busy the GPU is as a whole, and each of its MIG devices by UUID. In MIG
// mode a device counts by its multiprocessors; a load without processes is the GPU's.
func (v view) activity(allocations []allocation) (gpu uint64, migDevices map[string]uint64) {
	if !v.MIGEnabled {
		_, percent := v.busyOn("", allocations)
		return uint64(percent) * (whole / 100), nil
	}
	migDevices = map[string]uint64{}
	processes := 0
	for _, m := range v.migDevices() {
		loads, percent := v.busyOn(m.uuid, allocations)
		migDevices[m.uuid] = uint64(percent) * (whole / 100)
		gpu += migDevices[m.uuid] * uint64(m.compute.Multiprocessors)
		processes += len(loads)
	}
	if processes == 0 {
		return uint64(v.Load.GPUPercent) * (whole / 100), migDevices
	}
	return min(gpu/uint64(max(v.product.Multiprocessors, 1)), whole), migDevices
}

// busyNow is how busy the GPU is, in percent.
func (v view) busyNow() uint32 {
	gpu, _ := v.activity(v.seen())
	return uint32(gpu / (whole / 100))
}
