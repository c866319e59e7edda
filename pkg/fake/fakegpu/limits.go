package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/fakeroot"
	gpufacts "apportion.dev/apportion/pkg/gpu"
)

// memoryLimitMax is NVML_DEVICE_MEMORY_LIMIT_MAX (nvml.h): no limit.
const memoryLimitMax = ^uint64(0)

// keptLimits is how many limits of one GPU are kept before those of cgroups that are
// gone are dropped.
const keptLimits = 64

// cgroupID tells cgroups apart: the folder of a cgroup has the same device and inode
// under every name that it has in a container or a cgroup namespace.
type cgroupID struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// cgroupAt identifies the cgroup whose folder is seen at a path.
func cgroupAt(path string) (id cgroupID, ok bool) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return cgroupID{}, false
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return cgroupID{}, false
	}
	return cgroupID{Device: uint64(sys.Dev), Inode: sys.Ino}, true
}

// lineage is the cgroup whose folder is seen at a path and those above it, as far as
// they are seen: a limit is of all processes below.
func lineage(path string) ([]cgroupID, error) {
	path = filepath.Clean(path)
	id, ok := cgroupAt(path)
	if !ok {
		return nil, fmt.Errorf("no cgroup is at %s", path)
	}
	ids := []cgroupID{id}
	for path != filepath.Dir(path) {
		path = filepath.Dir(path)
		above, ok := cgroupAt(path)
		if !ok || above.Device != id.Device {
			break
		}
		ids = append(ids, above)
	}
	return ids, nil
}

// memoryLimit is what the processes of a cgroup may use of a GPU's memory, in bytes.
type memoryLimit struct {
	// Cgroup is the path by which the cgroup was named, for people and to find out
	// that it is gone.
	Cgroup string   `json:"cgroup"`
	ID     cgroupID `json:"id"`
	Soft   uint64   `json:"soft"`
	Hard   uint64   `json:"hard"`
}

var limitSymbols = []string{"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"}

// hasSymbol says whether the machine's NVML library has a function.
func (s *state) hasSymbol(symbol string) bool {
	if slices.Contains(s.MissingSymbols, symbol) {
		return false
	}
	branch := fakeroot.Branch(s.DriverVersion)
	switch {
	case slices.Contains(limitSymbols, symbol):
		return branch >= gpufacts.MemoryLimitsSince
	case strings.HasPrefix(symbol, gpmPrefix):
		return branch >= gpmSince
	}
	return true
}

// limitOf returns the limit of a cgroup.
func (g *gpu) limitOf(cgroup cgroupID) (memoryLimit, bool) {
	i := slices.IndexFunc(g.Limits, func(l memoryLimit) bool { return l.ID == cgroup })
	if i < 0 {
		return memoryLimit{}, false
	}
	return g.Limits[i], true
}

// SetMemoryLimits_v1 limits what a cgroup, named by its folder, may use of the GPU's
// memory, in bytes. Soft 0 and hard NVML_DEVICE_MEMORY_LIMIT_MAX end the limit.
// Nothing here uses the soft limit: no fake program is ever asked to give memory back.
func (d device) SetMemoryLimits_v1(cgroup string, soft, hard uint64) nvml.Return {
	return d.change("SetMemoryLimits_v1", func(v view) nvml.Return {
		none := soft == 0 && hard == memoryLimitMax
		if soft > hard || hard > v.product.Memory.TotalMiB*mebibyte && !none {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		id, ok := cgroupAt(cgroup)
		if !ok {
			return nvml.ERROR_OPERATING_SYSTEM
		}
		v.Limits = slices.DeleteFunc(v.Limits, func(l memoryLimit) bool { return l.ID == id })
		if len(v.Limits) >= keptLimits {
			v.Limits = slices.DeleteFunc(v.Limits, memoryLimit.gone)
		}
		if !none {
			v.Limits = append(v.Limits, memoryLimit{Cgroup: cgroup, ID: id, Soft: soft, Hard: hard})
		}
		return nvml.SUCCESS
	})
}

// gone says whether the limit's cgroup no longer exists. A cgroup made again under the
// same name is another.
func (l memoryLimit) gone() bool {
	id, ok := cgroupAt(l.Cgroup)
	return !ok || id != l.ID
}

// GetMemoryLimits_v1 gives the limits of a cgroup and what it uses, in bytes.
func (d device) GetMemoryLimits_v1(cgroup string) (nvml.MemoryLimits_v1, nvml.Return) {
	v, ret := d.read("GetMemoryLimits_v1")
	if ret != nvml.SUCCESS {
		return nvml.MemoryLimits_v1{}, ret
	}
	id, ok := cgroupAt(cgroup)
	if !ok {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_OPERATING_SYSTEM
	}
	limit, ok := v.limitOf(id)
	if !ok {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_NOT_FOUND
	}
	return nvml.MemoryLimits_v1{
		NameSpace: cgroup, SoftLimit: limit.Soft, HardLimit: limit.Hard, CurrentUsed: v.allocatedIn(id),
	}, ret
}
