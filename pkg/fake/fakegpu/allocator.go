package fakegpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"apportion.dev/apportion/pkg/fake/internal/alive"
)

// Allocator allocates memory of a fake GPU, or of one of its MIG devices, as a process
// of a container does, and keeps it busy. It must be closed, which frees everything; so
// does the end of the process.
type Allocator struct {
	machine *Machine
	// uuid is the GPU's, migDevice the MIG device's or empty.
	uuid, migDevice string
	cgroups         []cgroupID
	holder          *alive.Holder
}

// NewAllocator returns an Allocator for a GPU (index, UUID or PCI address) or a MIG
// device (UUID) and a process in the cgroup whose folder it sees at a path.
func (m *Machine) NewAllocator(id, cgroup string) (*Allocator, error) {
	st, err := m.store.read()
	if err != nil {
		return nil, err
	}
	v, migDevice, err := st.findDevice(id)
	if err != nil {
		return nil, err
	}
	a := &Allocator{machine: m, uuid: v.uuid, migDevice: migDevice}
	if a.cgroups, err = lineage(cgroup); err != nil {
		return nil, fmt.Errorf("allocate memory of %s: %w", a.device(), err)
	}
	if a.holder, err = m.newHolder(); err != nil {
		return nil, fmt.Errorf("allocate memory of %s: %w", a.device(), err)
	}
	return a, nil
}

// newHolder makes this process's file among those of the machine's allocations.
func (m *Machine) newHolder() (h *alive.Holder, err error) {
	unlock, err := m.store.lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return alive.New(filepath.Join(m.store.dir, allocationDir))
}

// device names the device for people.
func (a *Allocator) device() string {
	if a.migDevice != "" {
		return "MIG device " + a.migDevice
	}
	return "GPU " + a.uuid
}

// Allocate takes bytes of the device's memory. It is ErrOutOfMemory if that is more
// than the cgroup's limit or the device has left.
func (a *Allocator) Allocate(bytes uint64) error {
	return a.change("allocate memory of", func(v view) error {
		for _, limit := range v.Limits {
			if !slices.Contains(a.cgroups, limit.ID) {
				continue
			}
			if used := v.allocatedIn(limit.ID); used > limit.Hard || bytes > limit.Hard-used {
				return &OutOfMemoryError{Asked: bytes, Used: used, Limit: limit.Hard, Limited: true}
			}
		}
		memory := v.memory()
		if m, ok := v.migDevice(a.migDevice); ok {
			memory = m.memory()
		}
		if bytes > memory.Free {
			return &OutOfMemoryError{Asked: bytes, Used: memory.Used + memory.Reserved, Limit: memory.Total}
		}
		a.add(v, allocation{Bytes: bytes})
		return nil
	})
}

// Work keeps the device busy from now on, for a part of the time in percent, until Close
// or another call. It does so together with other processes: if all want more than the
// whole of it, each gets its part.
func (a *Allocator) Work(percent uint32) error {
	if percent > 100 {
		return inputErrorf("a process keeps a device busy for at most 100 percent of the time, not %d", percent)
	}
	return a.change("keep busy", func(v view) error {
		for i := range v.Allocations {
			if v.Allocations[i].Holder == a.holder.Name() {
				v.Allocations[i].BusyPercent = 0
			}
		}
		a.add(v, allocation{BusyPercent: percent})
		return nil
	})
}

func (a *Allocator) add(v view, what allocation) {
	what.Holder, what.Cgroups, what.PID, what.Name, what.MIGDevice = a.holder.Name(), a.cgroups, uint32(os.Getpid()), processName(), a.migDevice
	v.Allocations = append(v.Allocations, what)
}

// change changes what the process does on its device.
func (a *Allocator) change(doing string, change func(view) error) error {
	err := a.machine.update(func(st *state) error {
		v, ok := st.byUUID(a.uuid)
		if !ok || v.Lost || st.DriverVersion == "" {
			return fmt.Errorf("%s %s: the GPU is lost", doing, a.device())
		}
		if a.migDevice == "" && v.MIGEnabled {
			return fmt.Errorf("%s %s: it is in MIG mode, its memory is its partitions'", doing, a.device())
		}
		if _, exists := v.migDevice(a.migDevice); a.migDevice != "" && !exists {
			return fmt.Errorf("%s %s: it does not exist any more", doing, a.device())
		}
		if err := v.settle(); err != nil {
			return err
		}
		v.Allocations = v.alive()
		return change(v)
	})
	// Looking at the allocations, this process looked at its own.
	return errors.Join(err, a.holder.ShowPID())
}

func processName() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// Close frees all that was allocated, and ends the work.
func (a *Allocator) Close() error {
	err := a.machine.update(func(st *state) error {
		// A GPU that was pulled out took its memory with it.
		v, ok := st.byUUID(a.uuid)
		if !ok {
			return nil
		}
		if err := v.settle(); err != nil {
			return err
		}
		v.Allocations = slices.DeleteFunc(v.Allocations, func(other allocation) bool { return other.Holder == a.holder.Name() })
		return nil
	})
	return errors.Join(err, a.holder.Close())
}
