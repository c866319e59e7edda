package fakegpu

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// limitsSince is the driver branch that brought memory limits.
const limitsSince = 615

// memoryLimitMax is NVML_DEVICE_MEMORY_LIMIT_MAX (nvml.h): no limit.
const memoryLimitMax = ^uint64(0)

// keptLimits is how many limits of one GPU are kept before those of cgroups that are
// gone are dropped.
const keptLimits = 64

// memoryLimit is what the processes of a cgroup may use of a GPU's memory, in bytes.
type memoryLimit struct {
	Cgroup string `json:"cgroup"`
	// Inode identifies the cgroup's folder also where it has another path: in a
	// cgroup namespace.
	Inode uint64 `json:"inode,omitempty"`
	Soft  uint64 `json:"soft"`
	Hard  uint64 `json:"hard"`
}

// hasLimits says whether the driver knows memory limits.
func (s *state) hasLimits() bool {
	branch, err := strconv.Atoi(strings.SplitN(s.DriverVersion, ".", 2)[0])
	return err == nil && branch >= limitsSince
}

var limitSymbols = []string{"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"}

// inodeOf is that of a folder, 0 if it cannot be seen.
func inodeOf(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return sys.Ino
	}
	return 0
}

// limitOf returns the limit of a cgroup: by its folder, by the inode of that, or by its
// name below where its hierarchy is mounted, which is all that a container knows.
func (g *gpu) limitOf(cgroup string, inode uint64) (memoryLimit, bool) {
	i := slices.IndexFunc(g.Limits, func(l memoryLimit) bool {
		return l.Cgroup == cgroup || inode != 0 && l.Inode == inode || len(cgroup) > 1 && strings.HasSuffix(l.Cgroup, cgroup)
	})
	if i < 0 {
		return memoryLimit{}, false
	}
	return g.Limits[i], true
}

// SetMemoryLimits_v1 limits what a cgroup may use of the GPU's memory, in bytes. On
// a real machine the cgroup's folder has to exist; here its name is enough.
func (d device) SetMemoryLimits_v1(cgroup string, soft, hard uint64) nvml.Return {
	return d.change("SetMemoryLimits_v1", func(v view) nvml.Return {
		total := v.product.Memory.TotalMiB * mebibyte
		switch {
		case !v.state.hasLimits():
			return nvml.ERROR_NOT_SUPPORTED
		case cgroup == "" || hard != memoryLimitMax && (soft > hard || hard > total):
			return nvml.ERROR_INVALID_ARGUMENT
		}
		limit := memoryLimit{Cgroup: cgroup, Inode: inodeOf(cgroup), Soft: soft, Hard: hard}
		if len(v.Limits) >= keptLimits {
			v.Limits = slices.DeleteFunc(v.Limits, func(l memoryLimit) bool { return l.Inode != 0 && inodeOf(l.Cgroup) != l.Inode })
		}
		v.Limits = slices.DeleteFunc(v.Limits, func(l memoryLimit) bool {
			return l.Cgroup == cgroup || l.Inode != 0 && l.Inode == limit.Inode
		})
		if hard != memoryLimitMax {
			v.Limits = append(v.Limits, limit)
		}
		return nvml.SUCCESS
	})
}

// GetMemoryLimits_v1 gives the limits of a cgroup and what it uses, in bytes.
func (d device) GetMemoryLimits_v1(cgroup string) (nvml.MemoryLimits_v1, nvml.Return) {
	v, ret := d.read("GetMemoryLimits_v1")
	if ret != nvml.SUCCESS {
		return nvml.MemoryLimits_v1{}, ret
	}
	if !v.state.hasLimits() {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_NOT_SUPPORTED
	}
	limit, ok := v.limitOf(cgroup, inodeOf(cgroup))
	if !ok {
		return nvml.MemoryLimits_v1{}, nvml.ERROR_NOT_FOUND
	}
	return nvml.MemoryLimits_v1{
		NameSpace: cgroup, SoftLimit: limit.Soft, HardLimit: limit.Hard, CurrentUsed: v.allocatedBy(limit.Cgroup),
	}, ret
}
