package inventory

import (
	"errors"
	"io/fs"
	"path"
	"slices"
)

// recall completes what was just read with what was known before, and remembers
// it. A GPU that answers keeps only its UUID from before, where that cannot be
// read now. A GPU that is lost answers nothing, often not even its address; what
// was known of it stays known, with the problem.
func (n *NVML) recall(named, unnamed []GPU) []GPU {
	present := map[string]bool{}
	for _, gpu := range named {
		present[gpu.PCIBusID] = true
	}
	var missing []GPU
	for address, gpu := range n.known {
		if present[address] {
			continue
		}
		if n.gone(address) {
			delete(n.known, address)
			continue
		}
		missing = append(missing, gpu)
	}
	slices.SortFunc(missing, compareGPUs)

	gpus := make([]GPU, 0, len(named)+len(unnamed))
	for _, gpu := range named {
		before, ok := n.known[gpu.PCIBusID]
		if gpu.UUID == "" && ok {
			gpu.UUID = before.UUID
			if gpu.Problem == problemLost {
				gpu = withProblem(before, gpu)
			}
		}
		gpus = append(gpus, gpu)
	}
	// NVML's indices follow the PCI addresses, so GPUs without an address are the
	// missing ones in order, unless some of those are gone altogether.
	for i, gpu := range unnamed {
		if len(unnamed) == len(missing) {
			gpu = withProblem(missing[i], gpu)
		}
		gpus = append(gpus, gpu)
	}
	for _, gpu := range gpus {
		if gpu.PCIBusID != "" && gpu.UUID != "" {
			n.known[gpu.PCIBusID] = gpu
		}
	}
	return gpus
}

// withProblem is a GPU as it was known before, which now has the problem of what
// was read.
func withProblem(before, now GPU) GPU {
	before.Index = now.Index
	before.Problem = now.Problem
	return before
}

// gone says whether sysfs shows that there is no PCI device at an address.
func (n *NVML) gone(address string) bool {
	if n.sysfs == nil {
		return false
	}
	if _, err := fs.Stat(n.sysfs, pciDevices); err != nil {
		return false
	}
	_, err := n.sysfs.Lstat(path.Join(pciDevices, address))
	return errors.Is(err, fs.ErrNotExist)
}

const (
	pciDevices = "bus/pci/devices"
	pciDriver  = "bus/pci/drivers/nvidia"
)

// boundAddresses returns the PCI addresses of the devices at the NVIDIA kernel
// driver, sorted; none where sysfs does not say.
func (n *NVML) boundAddresses() []string {
	if n.sysfs == nil {
		return nil
	}
	// ReadDir sorts. A folder that cannot be read is the same as none: then the
	// set never changes.
	entries, err := fs.ReadDir(n.sysfs, pciDriver)
	if err != nil {
		return nil
	}
	var addresses []string
	for _, entry := range entries {
		if address, err := NormalizePCIBusID(entry.Name()); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
}
