package mig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// modeSymbol is the function without which no GPU has partitions.
const modeSymbol = "nvmlDeviceGetMigMode"

// symbols are the other functions that this package calls and that not every
// library has. A call of one that is missing would end the process.
var symbols = []string{
	"nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstanceProfileInfo",
	"nvmlDeviceGetGpuInstancePossiblePlacements_v2", "nvmlDeviceGetGpuInstances", "nvmlGpuInstanceGetInfo",
	"nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceDestroy",
	"nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceGetComputeInstances", "nvmlComputeInstanceGetInfo_v2",
	"nvmlGpuInstanceCreateComputeInstance", "nvmlComputeInstanceDestroy", "nvmlDeviceGetMaxMigDeviceCount",
	"nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
}

// gpu is one GPU within one call.
type gpu struct {
	ctx    context.Context
	logger klog.Logger
	lib    nvml.Interface
	uuid   string
	device nvml.Device
}

// open gets the GPU's handle.
func (g *gpu) open() error {
	device, ret := inventory.Handle(g.lib, g.uuid)
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
		// It gives up when it meets another GPU that is lost (nvml.h).
		device, ret = g.search()
	}
	switch ret {
	case nvml.SUCCESS:
		g.device = device
		return nil
	case nvml.ERROR_NOT_FOUND:
		return errGone
	}
	return fmt.Errorf("find the GPU: %w", ret)
}

// search looks at all GPUs. It returns ERROR_NOT_FOUND only if each said which it
// is.
func (g *gpu) search() (nvml.Device, nvml.Return) {
	count, ret := g.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	result := nvml.ERROR_NOT_FOUND
	for i := range count {
		device, ret := g.lib.DeviceGetHandleByIndex(i)
		if ret == nvml.SUCCESS {
			var uuid string
			if uuid, ret = device.GetUUID(); ret == nvml.SUCCESS && uuid == g.uuid {
				return device, nvml.SUCCESS
			}
		}
		if ret != nvml.SUCCESS {
			result = ret
		}
	}
	return nil, result
}

// usable says whether the library has all that it takes to handle partitions.
func (g *gpu) usable() error {
	extensions := g.lib.Extensions()
	missing := slices.DeleteFunc(append([]string{modeSymbol}, symbols...), func(s string) bool { return extensions.LookupSymbol(s) == nil })
	if len(missing) > 0 {
		return fmt.Errorf("the NVIDIA driver is too old for MIG partitions: its library lacks %s", strings.Join(missing, ", "))
	}
	return nil
}

// mode says whether MIG mode is on; it is off on a GPU that has none.
func (g *gpu) mode() (bool, error) {
	if g.lib.Extensions().LookupSymbol(modeSymbol) != nil {
		return false, nil
	}
	current, _, ret := g.device.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return false, nil
	}
	if ret != nvml.SUCCESS {
		return false, fmt.Errorf("read the MIG mode: %w", ret)
	}
	if current != nvml.DEVICE_MIG_ENABLE {
		return false, nil
	}
	return true, g.usable()
}

// enableMode turns MIG mode on, and says whether it was off.
func (g *gpu) enableMode() (changed bool, err error) {
	enabled, err := g.mode()
	if err != nil || enabled {
		return false, err
	}
	reset, err := inventory.ModeNeedsReset(g.lib, g.device)
	if err != nil {
		return false, err
	}
	if reset {
		return false, fmt.Errorf("the GPU's MIG mode is off, and takes a reset to change: nvidia-smi -i %s -mig 1, then nvidia-smi -i %s --gpu-reset", g.uuid, g.uuid)
	}
	return true, g.setMode(nvml.DEVICE_MIG_ENABLE)
}

// setMode changes the mode at once, or leaves it as it is.
func (g *gpu) setMode(mode int) error {
	activation, ret := g.device.SetMigMode(mode)
	if ret == nvml.SUCCESS && activation == nvml.SUCCESS {
		g.logger.V(2).Info("Changed MIG mode", "gpu", g.uuid, "enabled", mode == nvml.DEVICE_MIG_ENABLE)
		// The change may have reset the GPU, and its handle is another.
		return g.open()
	}
	var also error
	if ret == nvml.SUCCESS {
		// It is pending now. Nobody who resets the GPU later expects that.
		ret = activation
		if _, undone := g.device.SetMigMode(1 - mode); undone != nvml.SUCCESS {
			also = fmt.Errorf("take the pending change back: %w", undone)
		}
	}
	err := fmt.Errorf("change the MIG mode: %w", ret)
	if ret == nvml.ERROR_IN_USE {
		err = fmt.Errorf("%w: stop what uses the GPU, such as processes and monitoring", err)
	}
	return errors.Join(err, also)
}

// disableModeIfEmpty turns the mode off where no instance is left and it takes no
// reset. A GPU that something else uses, such as monitoring, keeps the mode until it
// is to be used whole.
func (g *gpu) disableModeIfEmpty() error {
	if enabled, err := g.mode(); err != nil || !enabled {
		return err
	}
	if reset, err := inventory.ModeNeedsReset(g.lib, g.device); err != nil || reset {
		return err
	}
	instances, err := g.instances()
	if err != nil || len(instances) > 0 {
		return err
	}
	err = g.setMode(nvml.DEVICE_MIG_DISABLE)
	if errors.Is(err, nvml.ERROR_IN_USE) {
		g.logger.Info("GPU without partitions stays in MIG mode", "gpu", g.uuid, "reason", err.Error())
		return nil
	}
	return err
}

// profiles lists the GPU's profiles, each once. A profile that cannot be read is an
// error beside the others.
func (g *gpu) profiles() ([]inventory.NamedMIGProfile, error) {
	var profiles []inventory.NamedMIGProfile
	var failed error
	for profile, err := range inventory.MIGProfiles(g.ctx, g.lib, g.device) {
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case !slices.ContainsFunc(profiles, func(p inventory.NamedMIGProfile) bool { return p.Info.Id == profile.Info.Id }):
			profiles = append(profiles, profile)
		}
	}
	return profiles, failed
}

var errNoProfile = errors.New("the GPU has no such MIG profile")

// profile returns the profile of a name. It reads no more profiles than it must.
func (g *gpu) profile(name string) (inventory.NamedMIGProfile, error) {
	var failed error
	var known []string
	for profile, err := range inventory.MIGProfiles(g.ctx, g.lib, g.device) {
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if profile.Name == name {
			return profile, nil
		}
		known = append(known, profile.Name)
	}
	switch {
	case failed != nil:
		return inventory.NamedMIGProfile{}, failed
	case len(known) == 0:
		return inventory.NamedMIGProfile{}, fmt.Errorf("%w: it cannot be partitioned", errNoProfile)
	}
	return inventory.NamedMIGProfile{}, fmt.Errorf("%w: it has %s", errNoProfile, strings.Join(known, ", "))
}

// instances lists all GPU instances.
func (g *gpu) instances() ([]gpuInstance, error) {
	profiles, err := g.profiles()
	if err != nil {
		return nil, err
	}
	var all []gpuInstance
	for _, profile := range profiles {
		some, err := g.instancesOf(profile)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b gpuInstance) int { return int(a.info.Placement.Start) - int(b.info.Placement.Start) })
	return all, nil
}

func (g *gpu) instancesOf(profile inventory.NamedMIGProfile) ([]gpuInstance, error) {
	handles, ret := g.device.GetGpuInstances(&profile.Info)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("list the GPU instances of profile %s: %w", profile.Name, ret)
	}
	var instances []gpuInstance
	for _, handle := range handles {
		info, ret := handle.GetInfo()
		if ret == nvml.ERROR_NOT_FOUND {
			continue // Destroyed just now.
		}
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("read a GPU instance of profile %s: %w", profile.Name, ret)
		}
		instances = append(instances, gpuInstance{GpuInstance: handle, info: info, profile: profile})
	}
	return instances, nil
}

// find returns the GPU instance of the partition, nil if there is none.
func (g *gpu) find(p inventory.Partition) (*gpuInstance, error) {
	profile, err := g.profile(p.Profile)
	if err != nil {
		return nil, err
	}
	return g.findIn(profile, p.Start)
}

func (g *gpu) findIn(profile inventory.NamedMIGProfile, start int) (*gpuInstance, error) {
	instances, err := g.instancesOf(profile)
	if err != nil {
		return nil, err
	}
	for i := range instances {
		if int(instances[i].info.Placement.Start) == start {
			return &instances[i], nil
		}
	}
	return nil, nil
}

// names lists instances in the words of nvidia-smi.
func names(instances []gpuInstance) string {
	var list []string
	for _, i := range instances {
		list = append(list, i.String())
	}
	return strings.Join(list, ", ")
}
