package fakegpu

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"apportion.dev/apportion/pkg/fake/internal/alive"
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
	// Holder is the name of the file that the process keeps locked, see [alive.Holder].
	Holder string `json:"holder"`
	// Cgroups are the process's cgroup and those above it.
	Cgroups []cgroupID `json:"cgroups"`
	// PID is as the process sees it.
	PID   uint32 `json:"pid"`
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"`
	// MIGDevice is the UUID of the MIG device that the memory is of, empty for the
	// GPU's own.
	MIGDevice string `json:"migDevice,omitempty"`
	// BusyPercent is the part of the time in which the process keeps the device busy.
	// It is in one of the process's allocations, or in one of no bytes.
	BusyPercent uint32 `json:"busyPercent,omitempty"`
}

// allocationDir is the folder with a file for each process that allocates.
const allocationDir = "allocations"

func (s *state) holderPath(name string) string { return filepath.Join(s.dir, allocationDir, name) }

// alive are the allocations of processes that have not ended. Those of others are
// free, though nobody has taken them off the list yet.
func (v view) alive() []allocation {
	if len(v.Allocations) == 0 {
		return nil
	}
	living := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(v.Allocations), func(a allocation) bool {
		if _, known := living[a.Holder]; !known {
			_, living[a.Holder] = alive.At(v.state.holderPath(a.Holder))
		}
		return !living[a.Holder]
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

// seen are the allocations of processes that have not ended, with the PIDs that this
// process sees them under.
func (v view) seen() []allocation {
	pids := map[string]uint32{}
	allocations := v.alive()
	for i, a := range allocations {
		if _, known := pids[a.Holder]; !known {
			pids[a.Holder], _ = alive.At(v.state.holderPath(a.Holder))
		}
		if pid := pids[a.Holder]; pid != 0 {
			allocations[i].PID = pid
		}
	}
	return allocations
}
