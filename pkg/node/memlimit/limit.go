package memlimit

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	gpufacts "apportion.dev/apportion/pkg/gpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// Limit is what a container may use of one GPU's memory, in bytes.
type Limit struct {
	// Soft is guaranteed; above it allocations may fail when the GPU runs short.
	Soft uint64
	// Hard is the most that can be allocated.
	Hard uint64
}

// none is how NVML says that a cgroup has no limit (nvml.h,
// NVML_DEVICE_MEMORY_LIMIT_MAX).
var none = Limit{Soft: 0, Hard: math.MaxUint64}

// needsDriver says which drivers have the functions for limits.
var needsDriver = fmt.Sprintf("this NVIDIA driver cannot limit memory, it takes %d or newer", gpufacts.MemoryLimitsSince)

// Validate says what is wrong with the limit.
func (l Limit) Validate() error {
	switch {
	case l.Hard == 0:
		return errors.New("the hard limit is 0: give the bytes that the container may use")
	case l.Hard == none.Hard:
		return fmt.Errorf("the hard limit %d means no limit to NVML", l.Hard)
	case l.Soft == 0 || l.Soft > l.Hard:
		return fmt.Errorf("the soft limit %d is not between 1 and the hard limit %d", l.Soft, l.Hard)
	}
	return nil
}

func (l Limit) String() string { return fmt.Sprintf("%d bytes (soft %d)", l.Hard, l.Soft) }

// plus is the limit of two shares.
func (l Limit) plus(other Limit) (Limit, error) {
	sum := Limit{Soft: l.Soft + other.Soft, Hard: l.Hard + other.Hard}
	if sum.Soft < l.Soft || sum.Hard < l.Hard || sum.Hard == none.Hard {
		return Limit{}, fmt.Errorf("%v and %v are together more than can be counted", l, other)
	}
	return sum, nil
}

// Apply limits the GPU memory of a cgroup, given by the full path of its folder, and
// makes sure that the limit holds.
//
// A container that has several shares of one GPU gets their sum: each share's hook adds
// to what those before it set. That is what hooks of this start set, because a
// container's cgroup is new, and NVML forgets the limits of a cgroup that is removed.
// Where memory is in use already nothing is added, and the folder is locked between the
// question what is set and the answer.
func Apply(lib nvml.Interface, uuid, cgroup string, limit Limit) (err error) {
	if err := limit.Validate(); err != nil {
		return err
	}
	unlock, err := lock(cgroup)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return initError(lib, ret)
	}
	defer func() {
		if ret := lib.Shutdown(); ret != nvml.SUCCESS {
			err = errors.Join(err, fmt.Errorf("shut NVML down: %w", ret))
		}
	}()
	// go-nvml must not be asked for a function that the library lacks.
	for _, symbol := range []string{"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"} {
		if err := lib.Extensions().LookupSymbol(symbol); err != nil {
			return fmt.Errorf("%s: %w", needsDriver, err)
		}
	}
	device, ret := inventory.Handle(lib, uuid)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("find GPU %s: %w", uuid, ret)
	}
	if err := add(device, cgroup, limit); err != nil {
		return fmt.Errorf("limit the memory of cgroup %s on GPU %s: %w", cgroup, uuid, err)
	}
	return nil
}

// add sets the limit, together with the one that is set, and reads it back.
func add(device nvml.Device, cgroup string, limit Limit) error {
	before, used, err := read(device, cgroup)
	switch {
	case err != nil:
		return fmt.Errorf("read the present limit: %w", err)
	case before == none:
	case used > 0:
		return fmt.Errorf("it has a limit of %v and uses %d bytes already: it is not the cgroup of a container that starts", before, used)
	case before.Validate() != nil:
		return fmt.Errorf("somebody else set a limit of %v", before)
	default:
		if limit, err = limit.plus(before); err != nil {
			return err
		}
	}
	if ret := device.SetMemoryLimits_v1(cgroup, limit.Soft, limit.Hard); ret != nvml.SUCCESS {
		return fmt.Errorf("set it to %v: %w", limit, ret)
	}
	after, _, err := read(device, cgroup)
	if err != nil {
		return fmt.Errorf("read the limit back: %w", err)
	}
	if after != limit {
		return fmt.Errorf("the limit is %v after it was set to %v", after, limit)
	}
	return nil
}

// read returns the limit that a cgroup has, or none, and how many bytes it uses.
func read(device nvml.Device, cgroup string) (limit Limit, used uint64, err error) {
	limits, ret := device.GetMemoryLimits_v1(cgroup)
	switch ret {
	case nvml.SUCCESS:
		return Limit{Soft: limits.SoftLimit, Hard: limits.HardLimit}, limits.CurrentUsed, nil
	case nvml.ERROR_NOT_FOUND:
		return none, 0, nil
	case nvml.ERROR_NOT_SUPPORTED:
		return Limit{}, 0, fmt.Errorf("the GPU cannot limit memory: %w", ret)
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return Limit{}, 0, fmt.Errorf("%s: %w", needsDriver, ret)
	case nvml.ERROR_OPERATING_SYSTEM, nvml.ERROR_INVALID_ARGUMENT:
		return Limit{}, 0, fmt.Errorf("%w (%s)", ret, wantsV2)
	}
	return Limit{}, 0, ret
}

// lock keeps other hooks of the container out until the returned function is called,
// which closes the folder and so gives the lock up.
func lock(cgroup string) (unlock func() error, err error) {
	folder, err := os.Open(cgroup)
	if err != nil {
		return nil, fmt.Errorf("lock the container's cgroup: %w", err)
	}
	for {
		err = unix.Flock(int(folder.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the container's cgroup %s: %w", cgroup, err), folder.Close())
	}
	return folder.Close, nil
}

// initError says more than NVML's code where the library was searched for in vain.
func initError(lib nvml.Interface, ret nvml.Return) error {
	if l, ok := lib.(interface{ LoadError() error }); ok && l.LoadError() != nil {
		return fmt.Errorf("load NVML: %w", l.LoadError())
	}
	return fmt.Errorf("initialize NVML: %w", ret)
}
