package gpumetrics

import "time"

// FieldType says what the values of a field are.
type FieldType string

const (
	// Gauge is a number that goes up and down.
	Gauge FieldType = "gauge"
	// Counter is a number that only grows, until the driver is loaded again.
	Counter FieldType = "counter"
	// Label is a text, such as a version. It belongs into a label of the series that
	// have it, not into a series of its own.
	Label FieldType = "label"
)

// Field is one of DCGM's fields that this package can read.
type Field struct {
	// Name is DCGM's, such as DCGM_FI_DEV_GPU_UTIL.
	Name string
	// Help is one line that gives the unit.
	Help string
	Type FieldType
	// PerInstance is true if MIG partitions have values of their own, or of a label
	// their GPU's. A GPU in MIG mode has its value beside them, of the whole GPU, where
	// NVML gives one.
	PerInstance bool
	// OverTime is true if a value is measured from Device.MeasuredSince on until it is
	// read.
	OverTime bool
}

// Sample is what was read of all devices of a node at one time.
type Sample struct {
	Time time.Time
	// Devices are the GPUs that the inventory has with a UUID, in its order, each
	// followed by its MIG partitions in theirs. One that cannot be read is there
	// without values. There are none while the driver as a whole cannot be used, and
	// not all if the context of the Read ended.
	Devices []Device
}

// DeviceKind tells GPUs and partitions apart.
type DeviceKind string

const (
	// GPU is a whole GPU, also one in MIG mode.
	GPU DeviceKind = "gpu"
	// Instance is a MIG partition.
	Instance DeviceKind = "instance"
)

// GPUIdentity says which GPU it is.
type GPUIdentity struct {
	// Index is NVML's at the time of the inventory.
	Index int
	// Minor is the number in /dev/nvidiaN.
	Minor *int
	UUID  string
	// PCIBusID is the address as the inventory has it, "dddd:bb:dd.f" in lower case.
	PCIBusID  string
	ModelName string
}

// Device is what was read of one GPU or partition. What NVML could not give is absent.
type Device struct {
	Kind DeviceKind
	// UUID is NVML's: of the GPU, or of the MIG device.
	UUID string
	// GPU is the GPU itself, or the one that the partition is on.
	GPU GPUIdentity
	// Profile is a partition's, such as "1g.10gb"; GPUInstanceID its number on the GPU.
	Profile       string
	GPUInstanceID *int
	// Values are those of the fields given to [NewReader], in the same order.
	Values []Value
	// MeasuredSince is the start of the period over which some of the values were
	// measured; zero if none was.
	MeasuredSince time.Time
	// EnergyMillijoules is what the GPU has drawn since its driver was loaded. A
	// partition has none.
	EnergyMillijoules *uint64
	// SMUtil is the part of the time in which the device was at work, 0 to 1. Of a GPU
	// it is NVML's utilization over its last sampling period, of a partition what GPM
	// measured since the last Read.
	SMUtil *float64
	// Processes are those that use the device, by PID; nil if they cannot be listed, or
	// not with their memory. A GPU in MIG mode has none of its own: each is its
	// partition's.
	Processes []Process
}

// Value is a field's value on one device. The zero Value is an absent one.
type Value struct {
	// Number is the value of a gauge or a counter, Text that of a label.
	Number  float64
	Text    string
	Present bool
}

// Process is a process that uses a device. One that uses several is in the list of each.
type Process struct {
	// PID is the one that this process sees it under; on a node, in the node's own PID
	// namespace, NVML gives the node's.
	PID int
	// UsedBytes is the device's memory that the process has, in bytes.
	UsedBytes uint64
	// SMUtil is the part of the device's time in which its multiprocessors worked for
	// the process, 0 to 1, since the last Read, or in NVML's last sampling period if
	// that is longer. It is nil where it was not measured: in a partition, always.
	SMUtil *float64
}
