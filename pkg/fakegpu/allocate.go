package fakegpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrOutOfMemory says that a GPU, or the limit of a cgroup on it, has no room for an
// allocation.
var ErrOutOfMemory = errors.New("out of memory")

// allocationDir is the folder with a locked file for each process that allocates.
const allocationDir = "allocations"

// allocation is memory that a process has, as CUDA's would be.
type allocation struct {
	// Holder names the file that the process keeps locked for as long as it lives.
	Holder string `json:"holder"`
	// Cgroup is the limit's that it counts against, or the process's own.
	Cgroup string `json:"cgroup"`
	PID    uint32 `json:"pid"`
	Bytes  uint64 `json:"bytes"`
}

// allocatedBy is what a cgroup has of the GPU's memory in bytes.
func (g *gpu) allocatedBy(cgroup string) uint64 {
	var sum uint64
	for _, a := range g.Allocations {
		if a.Cgroup == cgroup {
			sum += a.Bytes
		}
	}
	return sum
}

// CheckDeviceNode fails if this process does not see the device node of a GPU, without
// which no CUDA program can use it.
func (m *Machine) CheckDeviceNode(gpu string) error {
	st, err := m.store.read()
	if err != nil {
		return err
	}
	v, err := st.find(gpu)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/dev/nvidia%d", v.slot.number)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("no device: GPU %s is %s, which is not here: %w", v.uuid, path, err)
	}
	return nil
}

// Allocator allocates memory of a fake GPU as a process of a container does. It must
// be closed, which frees everything; so does the end of the process.
type Allocator struct {
	machine *Machine
	gpu     string
	cgroup  string
	inode   uint64
	holder  *os.File
}

// NewAllocator returns an Allocator for a GPU (index, UUID or PCI address) and the
// cgroup of the process: its name below where its hierarchy is mounted, "/" in a
// cgroup namespace of its own.
func (m *Machine) NewAllocator(gpu, cgroup string) (*Allocator, error) {
	dir := filepath.Join(m.store.dir, allocationDir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("allocate: %w", err)
	}
	holder, err := os.CreateTemp(dir, "process-*")
	if err != nil {
		return nil, fmt.Errorf("allocate: %w", err)
	}
	if err := unix.Flock(int(holder.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("allocate: %w", err), holder.Close())
	}
	return &Allocator{machine: m, gpu: gpu, cgroup: cgroup, inode: ownInode(cgroup), holder: holder}, nil
}

// ownInode identifies the cgroup of a process that does not know its cgroup's name: the
// root of what it sees.
func ownInode(cgroup string) uint64 {
	if cgroup != "/" {
		return 0
	}
	return inodeOf("/sys/fs/cgroup")
}

// Allocate takes bytes of the GPU's memory. It is ErrOutOfMemory if that is more than
// the cgroup's limit or the GPU has left.
func (a *Allocator) Allocate(bytes uint64) error {
	return a.machine.changeGPU(a.gpu, func(v view) error {
		v.dropDead(filepath.Join(a.machine.store.dir, allocationDir))
		key := a.cgroup
		if limit, ok := v.limitOf(a.cgroup, a.inode); ok {
			key = limit.Cgroup
			if used := v.allocatedBy(key); used+bytes > limit.Hard {
				return fmt.Errorf("%w: %d bytes more than the %d in use, the limit is %d", ErrOutOfMemory, bytes, used, limit.Hard)
			}
		}
		if free := v.memory().Free; bytes > free {
			return fmt.Errorf("%w: %d bytes, the GPU has %d left", ErrOutOfMemory, bytes, free)
		}
		v.Allocations = append(v.Allocations, allocation{
			Holder: filepath.Base(a.holder.Name()), Cgroup: key, PID: uint32(os.Getpid()), Bytes: bytes,
		})
		return nil
	})
}

// Close frees all that was allocated.
func (a *Allocator) Close() error {
	name := filepath.Base(a.holder.Name())
	err := a.machine.changeGPU(a.gpu, func(v view) error {
		v.Allocations = slices.DeleteFunc(v.Allocations, func(other allocation) bool { return other.Holder == name })
		return nil
	})
	return errors.Join(err, os.Remove(a.holder.Name()), a.holder.Close())
}

// dropDead frees what processes had that have ended: nobody holds their file.
func (v view) dropDead(dir string) {
	v.Allocations = slices.DeleteFunc(v.Allocations, func(a allocation) bool {
		path := filepath.Join(dir, a.Holder)
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return true
		}
		if err != nil {
			return false
		}
		defer file.Close()
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return false
		}
		return os.Remove(path) == nil
	})
}
