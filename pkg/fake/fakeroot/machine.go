// Package fakeroot lays out the files of an NVIDIA driver installation for GPUs that
// do not exist: versioned libraries, device nodes, nvidia-smi, the control of MPS,
// procfs and sysfs.
//
// It knows what a driver installs and where. What GPUs there are is given to it as a
// [Machine]; it knows nothing of NVML and of how a machine changes.
package fakeroot

// MaxGPUs is how many GPUs a machine has at most; their minor numbers are below it.
const MaxGPUs = 16

// Machine is what the files show of a machine.
type Machine struct {
	// Dir is the machine's folder; the driver root is the folder "root" in it.
	Dir string
	// DriverVersion is empty while no driver is installed.
	DriverVersion string
	// GPUs are those in the machine, by PCI address.
	GPUs []GPU
}

// GPU is one GPU of a machine.
type GPU struct {
	// Minor is the GPU's device minor number.
	Minor       int
	UUID        string
	ProductName string
	// PCIBusID is the address as sysfs writes it, PCIRoot the bus of the root complex.
	PCIBusID string
	PCIRoot  uint32
	// PCIDeviceID is the device's number, then the vendor's in the lower 16 bits.
	PCIDeviceID uint32
	NUMANode    int
	MemoryMiB   uint64
	// Lost says that the GPU has fallen off the bus.
	Lost       bool
	MIGCapable bool
	// Instances are the GPU's MIG instances, by where they lie.
	Instances []GPUInstance
}

// GPUInstance is a MIG GPU instance.
type GPUInstance struct {
	ID      int
	Compute []ComputeInstance
}

// ComputeInstance is a MIG compute instance, and the MIG device that it makes.
type ComputeInstance struct {
	ID   int
	UUID string
	// Name is the profile's, as nvidia-smi shows it.
	Name string
	// Index is the MIG device's index on its GPU.
	Index int
}
