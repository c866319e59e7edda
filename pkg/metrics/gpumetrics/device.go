package gpumetrics

import (
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// readGPU adds a GPU and its partitions to the devices of a sample.
func (r *Reader) readGPU(logger klog.Logger, devices []Device, node *inventory.Node, gpu *inventory.GPU, now time.Time) []Device {
	reading := &reading{
		reader: r, logger: logger, node: node, gpu: gpu, now: now,
		state: r.device(logger, gpu.UUID, node.DriverVersion.Raw),
	}
	mig := gpu.MIG.Enabled != nil && *gpu.MIG.Enabled
	device := Device{Kind: GPU, UUID: gpu.UUID, GPU: identityOf(gpu)}
	reading.dev = reading.handle(gpu.UUID)
	reading.gpuDev = reading.dev
	reading.fill(&device)
	if reading.reachable() && !mig {
		device.Processes = reading.processes()
	}
	devices = append(devices, device)
	if !mig {
		return devices
	}
	var running []runningProcess
	listed := false
	if reading.reachable() && len(gpu.MIG.Instances) > 0 {
		running, listed = reading.running(reading.dev)
	}
	for i := range gpu.MIG.Instances {
		if gpu.MIG.Instances[i].UUID != "" {
			devices = append(devices, reading.readInstance(&gpu.MIG.Instances[i], running, listed))
		}
	}
	return devices
}

func identityOf(gpu *inventory.GPU) GPUIdentity {
	return GPUIdentity{Index: gpu.Index, Minor: gpu.Minor, UUID: gpu.UUID, PCIBusID: gpu.PCIBusID, ModelName: gpu.ProductName}
}

// readInstance reads a partition of a GPU, whose processes are known already if listed.
func (r *reading) readInstance(instance *inventory.MIGInstance, ofGPU []runningProcess, listed bool) Device {
	id := instance.ID
	device := Device{Kind: Instance, UUID: instance.UUID, GPU: identityOf(r.gpu), Profile: profileOf(r.gpu, instance), GPUInstanceID: &id}
	of := &reading{
		reader: r.reader, logger: r.logger, node: r.node, gpu: r.gpu, now: r.now, lost: r.lost, instance: instance, gpuDev: r.gpuDev,
		state: r.reader.device(r.logger, instance.UUID, r.node.DriverVersion.Raw),
	}
	if r.reachable() {
		of.dev = of.handle(instance.UUID)
	}
	of.fill(&device)
	if of.reachable() {
		device.Processes = of.instanceProcesses(ofGPU, listed)
	}
	r.lost = of.lost
	return device
}

func profileOf(gpu *inventory.GPU, instance *inventory.MIGInstance) string {
	i := slices.IndexFunc(gpu.MIG.Profiles, func(p inventory.MIGProfile) bool { return p.ID == instance.ProfileID })
	if i < 0 {
		return ""
	}
	return gpu.MIG.Profiles[i].Name
}

// handle looks the device up. It is nil for one that NVML does not know.
func (r *reading) handle(uuid string) nvml.Device {
	dev, ret := inventory.Handle(r.reader.lib, uuid)
	if !r.ok("handle", ret) {
		return nil
	}
	return dev
}

// reachable says whether calls on the device make sense.
func (r *reading) reachable() bool { return r.dev != nil && !r.lost }

// fill reads the values of the device.
func (r *reading) fill(device *Device) {
	device.Values = make([]Value, len(r.reader.fields))
	if !r.reachable() {
		return
	}
	for i := range r.reader.fields {
		device.Values[i] = r.value(i)
	}
	device.MeasuredSince = r.since
	if r.lost {
		return
	}
	if r.instance == nil && r.reader.has(symbolEnergy) {
		if millijoules, ret := r.energy(); r.ok("energy", ret) {
			device.EnergyMillijoules = &millijoules
		}
	}
	device.SMUtil = r.busy()
}

// busy is the part of the time in which the device was at work, 0 to 1.
func (r *reading) busy() *float64 {
	if r.instance == nil && r.reader.has(symbolUtilization) {
		if u, ret := r.utilization(); r.ok("utilization", ret) {
			busy := min(float64(u.Gpu)/percent, 1)
			return &busy
		}
	}
	values := r.metrics()
	if values == nil {
		return nil
	}
	active := values[r.reader.metricIndex[nvml.GPM_METRIC_GRAPHICS_UTIL]]
	if !active.Present {
		return nil
	}
	busy := active.Number / percent
	return &busy
}
