package memlimit

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Limit is what a container may use of one GPU's memory, in bytes.
type Limit struct {
	// Soft is guaranteed; above it allocations may fail when the GPU runs short.
	Soft uint64
	// Hard is the most that can be allocated.
	Hard uint64
}

// Validate says what is wrong with the limit.
func (l Limit) Validate() error {
	switch {
	case l.Hard == 0:
		return errors.New("the hard limit is 0: give the bytes that the container may use")
	case l.Soft == 0 || l.Soft > l.Hard:
		return fmt.Errorf("the soft limit %d is not between 1 and the hard limit %d", l.Soft, l.Hard)
	}
	return nil
}

// Apply limits the GPU memory of a cgroup and makes sure that the limit holds. A
// container that has several shares of one GPU gets their sum: each share's hook adds
// to what those before it set, which works because a container's cgroup is new.
func Apply(lib nvml.Interface, uuid, cgroup string, limit Limit) (err error) {
	if err := limit.Validate(); err != nil {
		return err
	}
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("initialize NVML: %w", ret)
	}
	defer func() {
		if ret := lib.Shutdown(); ret != nvml.SUCCESS {
			err = errors.Join(err, fmt.Errorf("shut NVML down: %w", ret))
		}
	}()
	for _, symbol := range []string{"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"} {
		if err := lib.Extensions().LookupSymbol(symbol); err != nil {
			return fmt.Errorf("this NVIDIA driver cannot limit memory, it takes 615 or newer: %w", err)
		}
	}
	device, ret := lib.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("find GPU %s: %w", uuid, ret)
	}
	before, ret := device.GetMemoryLimits_v1(cgroup)
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
		return fmt.Errorf("read the memory limit of %s on GPU %s: %w", cgroup, uuid, ret)
	}
	// No limit is soft 0, hard NVML_DEVICE_MEMORY_LIMIT_MAX (nvml.h).
	if ret == nvml.SUCCESS && before.SoftLimit != 0 {
		limit.Soft, limit.Hard = limit.Soft+before.SoftLimit, limit.Hard+before.HardLimit
	}
	if ret := device.SetMemoryLimits_v1(cgroup, limit.Soft, limit.Hard); ret != nvml.SUCCESS {
		return fmt.Errorf("limit the memory of %s on GPU %s to %d bytes: %w", cgroup, uuid, limit.Hard, ret)
	}
	after, ret := device.GetMemoryLimits_v1(cgroup)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("read the memory limit of %s on GPU %s back: %w", cgroup, uuid, ret)
	}
	if after.SoftLimit != limit.Soft || after.HardLimit != limit.Hard {
		return fmt.Errorf("the memory limit of %s on GPU %s is %d bytes (soft %d) after it was set to %d (soft %d)", cgroup, uuid, after.HardLimit, after.SoftLimit, limit.Hard, limit.Soft)
	}
	return nil
}
