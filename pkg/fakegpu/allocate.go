package fakegpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// ErrOutOfMemory says that a GPU, or the limit of a cgroup on it, has no room for an
// allocation. The error is an [OutOfMemoryError].
var ErrOutOfMemory = errors.New("out of memory")

// OutOfMemoryError says what an allocation lacked, in bytes.
type OutOfMemoryError struct {
	// Asked is the size of the allocation, Used what was taken before.
	Asked, Used uint64
	// Limit is the cgroup's if Limited, else the memory that the GPU has.
	Limit   uint64
	Limited bool
}

func (e *OutOfMemoryError) Error() string {
	return e.Text(func(bytes uint64) string { return fmt.Sprintf("%d bytes", bytes) })
}

// Text is the error with sizes in the caller's way of writing them.
func (e *OutOfMemoryError) Text(size func(bytes uint64) string) string {
	what := "the " + size(e.Limit) + " of the GPU"
	if e.Limited {
		what = "the limit of " + size(e.Limit)
	}
	return fmt.Sprintf("%v: %s with the %s in use are more than %s", ErrOutOfMemory, size(e.Asked), size(e.Used), what)
}

func (e *OutOfMemoryError) Unwrap() error { return ErrOutOfMemory }

// allocation is memory that a process has, as CUDA's would be.
type allocation struct {
	// Holder is the name of the file that the process keeps locked, see holder.
	Holder string `json:"holder"`
	// Cgroups are the process's cgroup and those above it.
	Cgroups []cgroupID `json:"cgroups"`
	// PID is as the process sees it.
	PID   uint32 `json:"pid"`
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"`
}

// alive are the allocations of processes that have not ended. Those of others are
// free, though nobody has taken them off the list yet.
func (v view) alive() []allocation {
	if len(v.Allocations) == 0 {
		return nil
	}
	alive := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(v.Allocations), func(a allocation) bool {
		if _, known := alive[a.Holder]; !known {
			_, alive[a.Holder] = holderAt(v.state.holderPath(a.Holder))
		}
		return !alive[a.Holder]
	})
}

// allocated is the memory of all allocations in bytes.
func (v view) allocated() uint64 {
	var sum uint64
	for _, a := range v.alive() {
		sum += a.Bytes
	}
	return sum
}

// allocatedIn is what the processes of a cgroup have of the GPU's memory in bytes.
func (v view) allocatedIn(cgroup cgroupID) uint64 {
	var sum uint64
	for _, a := range v.alive() {
		if slices.Contains(a.Cgroups, cgroup) {
			sum += a.Bytes
		}
	}
	return sum
}

// running are the processes on the GPU: those of its load, and those with
// allocations, which have the PID that this process sees.
func (v view) running() []Process {
	processes := slices.Clone(v.Load.Processes)
	index := map[string]int{}
	for _, a := range v.alive() {
		i, known := index[a.Holder]
		if !known {
			i = len(processes)
			index[a.Holder] = i
			processes = append(processes, Process{PID: a.PID, Name: a.Name})
			if pid, _ := holderAt(v.state.holderPath(a.Holder)); pid != 0 {
				processes[i].PID = pid
			}
		}
		processes[i].MemoryBytes += a.Bytes
	}
	return processes
}

// CheckDeviceNode fails if the device node of a GPU (index, UUID or PCI address) is
// not in a folder, /dev, without which no CUDA program can use the GPU.
func (m *Machine) CheckDeviceNode(dev, gpu string) error {
	st, err := m.store.read()
	if err != nil {
		return err
	}
	v, err := st.find(gpu)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dev, fmt.Sprintf("nvidia%d", v.slot.number))); err != nil {
		return fmt.Errorf("no device: the node of GPU %s is not here: %w", v.uuid, err)
	}
	return nil
}

// Allocator allocates memory of a fake GPU as a process of a container does. It must
// be closed, which frees everything; so does the end of the process.
type Allocator struct {
	machine *Machine
	uuid    string
	cgroups []cgroupID
	holder  *holder
}

// NewAllocator returns an Allocator for a GPU (index, UUID or PCI address) and a
// process in the cgroup whose folder it sees at a path.
func (m *Machine) NewAllocator(gpu, cgroup string) (*Allocator, error) {
	st, err := m.store.read()
	if err != nil {
		return nil, err
	}
	v, err := st.find(gpu)
	if err != nil {
		return nil, err
	}
	a := &Allocator{machine: m, uuid: v.uuid}
	if a.cgroups, err = lineage(cgroup); err != nil {
		return nil, fmt.Errorf("allocate memory of GPU %s: %w", v.uuid, err)
	}
	if a.holder, err = m.newHolder(); err != nil {
		return nil, fmt.Errorf("allocate memory of GPU %s: %w", v.uuid, err)
	}
	return a, nil
}

// Allocate takes bytes of the GPU's memory. It is ErrOutOfMemory if that is more than
// the cgroup's limit or the GPU has left.
func (a *Allocator) Allocate(bytes uint64) error {
	err := a.machine.update(func(st *state) error {
		v, ok := st.byUUID(a.uuid)
		if !ok || v.Lost || st.DriverVersion == "" {
			return fmt.Errorf("allocate memory of GPU %s: the GPU is lost", a.uuid)
		}
		if v.MIGEnabled {
			return fmt.Errorf("allocate memory of GPU %s: it is in MIG mode, its memory is its partitions'", a.uuid)
		}
		v.Allocations = v.alive()
		for _, limit := range v.Limits {
			if !slices.Contains(a.cgroups, limit.ID) {
				continue
			}
			if used := v.allocatedIn(limit.ID); used > limit.Hard || bytes > limit.Hard-used {
				return &OutOfMemoryError{Asked: bytes, Used: used, Limit: limit.Hard, Limited: true}
			}
		}
		if memory := v.memory(); bytes > memory.Free {
			return &OutOfMemoryError{Asked: bytes, Used: memory.Used + memory.Reserved, Limit: memory.Total}
		}
		v.Allocations = append(v.Allocations, allocation{
			Holder: a.holder.name(), Cgroups: a.cgroups, PID: uint32(os.Getpid()), Name: processName(), Bytes: bytes,
		})
		return nil
	})
	// Looking at the allocations, this process looked at its own.
	return errors.Join(err, a.holder.showPID())
}

func processName() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// Close frees all that was allocated.
func (a *Allocator) Close() error {
	err := a.machine.update(func(st *state) error {
		// A GPU that was pulled out took its memory with it.
		if v, ok := st.byUUID(a.uuid); ok {
			v.Allocations = slices.DeleteFunc(v.Allocations, func(other allocation) bool { return other.Holder == a.holder.name() })
		}
		return nil
	})
	return errors.Join(err, a.holder.close())
}
