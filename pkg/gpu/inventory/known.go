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
// was known of it stays known, with the problem. Unnamed are GPUs whose address
// could not be read.
func (n *NVML) recall(named, unnamed []GPU) []GPU {
	gpus := make([]GPU, 0, len(named)+len(unnamed))
	for _, gpu := range named {
		if before, ok := n.known[gpu.PCIBusID]; ok {
			if gpu.Problem == problemLost {
				gpu = withProblem(before, gpu)
			}
			if gpu.UUID == "" {
				gpu.UUID = before.UUID
			}
		}
		gpus = append(gpus, gpu)
	}
	var silent []GPU
	for _, gpu := range unnamed {
		if gpu.UUID == "" {
			silent = append(silent, gpu)
		} else {
			gpus = append(gpus, gpu)
		}
	}
	// NVML's indices follow the PCI addresses, so the silent GPUs are the missing
	// ones in order, unless their numbers differ: then nobody knows which is which.
	missing := n.missing(gpus)
	for i, gpu := range silent {
		if len(silent) == len(missing) {
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

// missing returns the GPUs known from before that are not among those present, by
// PCI address. It forgets those that are not in the machine any more.
func (n *NVML) missing(present []GPU) []GPU {
	var missing []GPU
	for address, gpu := range n.known {
		isPresent := slices.ContainsFunc(present, func(p GPU) bool {
			return p.PCIBusID == address || p.UUID == gpu.UUID
		})
		switch {
		case isPresent:
		case n.gone(address):
			delete(n.known, address)
		default:
			missing = append(missing, gpu)
		}
	}
	slices.SortFunc(missing, CompareGPUs)
	return missing
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
