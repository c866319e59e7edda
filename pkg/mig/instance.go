package mig

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ensure makes the partition, or completes it.
func (g *gpu) ensure(p Partition) (Instance, error) {
	gi, err := g.find(p)
	if err != nil {
		return Instance{}, err
	}
	made := false
	if gi == nil {
		if gi, err = g.create(p); err != nil {
			return Instance{}, err
		}
		made = true
		// gofail: var migGPUInstanceCreated struct{}
	}
	instance, complete, err := g.complete(gi)
	if err == nil && !complete {
		if err = g.createCompute(gi); err == nil {
			// gofail: var migComputeInstanceCreated struct{}
			instance, complete, err = g.complete(gi)
		}
		if err == nil && !complete {
			err = errors.New("its MIG device did not appear")
		}
	}
	if err != nil && made {
		err = errors.Join(err, g.destroy(gi), g.disableModeIfEmpty())
	}
	return instance, err
}

// create makes the GPU instance at the placement.
func (g *gpu) create(p Partition) (*found, error) {
	profile, err := g.profile(p.Profile)
	if err != nil {
		return nil, err
	}
	placements, ret := g.device.GetGpuInstancePossiblePlacements(&profile)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("read the placements of its profile: %w", ret)
	}
	for _, placement := range placements {
		if int(placement.Start) != p.Start {
			continue
		}
		instance, ret := g.device.CreateGpuInstanceWithPlacement(&profile, &placement)
		if ret != nvml.SUCCESS {
			return nil, g.whyNot(ret)
		}
		info, ret := instance.GetInfo()
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("read the new GPU instance: %w", ret)
		}
		return &found{instance, info}, nil
	}
	return nil, fmt.Errorf("the profile cannot start at memory slice %d", p.Start)
}

// whyNot explains why a GPU instance could not be made.
func (g *gpu) whyNot(ret nvml.Return) error {
	err := fmt.Errorf("create the GPU instance: %w", ret)
	if ret != nvml.ERROR_INSUFFICIENT_RESOURCES {
		return err
	}
	names, listErr := g.instanceNames()
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	return fmt.Errorf("%w: the GPU has %q", err, names)
}

// createCompute makes the compute instance that fills the GPU instance.
func (g *gpu) createCompute(gi *found) error {
	var full *nvml.ComputeInstanceProfileInfo
	for index := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(index, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS {
			continue // The GPU instance has no such profile.
		}
		if full == nil || info.SliceCount > full.SliceCount || info.SliceCount == full.SliceCount && info.MultiprocessorCount > full.MultiprocessorCount {
			full = &info
		}
	}
	if full == nil {
		return errors.New("the GPU instance has no compute instance profile")
	}
	if _, ret := gi.CreateComputeInstance(full); ret != nvml.SUCCESS {
		return fmt.Errorf("create the compute instance: %w", ret)
	}
	return nil
}

// complete returns the MIG device of the GPU instance, if it has one.
func (g *gpu) complete(gi *found) (Instance, bool, error) {
	count, ret := g.device.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return Instance{}, false, fmt.Errorf("read the number of MIG devices: %w", ret)
	}
	for i := range count {
		device, ret := g.device.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue // Indices have gaps.
		}
		if ret != nvml.SUCCESS {
			return Instance{}, false, fmt.Errorf("read MIG device %d: %w", i, ret)
		}
		id, ret := device.GetGpuInstanceId()
		if ret != nvml.SUCCESS {
			return Instance{}, false, fmt.Errorf("read the GPU instance of MIG device %d: %w", i, ret)
		}
		if id != int(gi.info.Id) {
			continue
		}
		compute, ret := device.GetComputeInstanceId()
		if ret != nvml.SUCCESS {
			return Instance{}, false, fmt.Errorf("read the compute instance of MIG device %d: %w", i, ret)
		}
		uuid, ret := device.GetUUID()
		if ret != nvml.SUCCESS {
			return Instance{}, false, fmt.Errorf("read the UUID of MIG device %d: %w", i, ret)
		}
		return Instance{GPUInstance: id, ComputeInstance: compute, UUID: uuid}, true, nil
	}
	return Instance{}, false, nil
}

// destroy removes the GPU instance and all compute instances in it.
func (g *gpu) destroy(gi *found) error {
	for index := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		profile, ret := gi.GetComputeInstanceProfileInfo(index, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if ret != nvml.SUCCESS {
			return fmt.Errorf("read the compute instance profiles: %w", ret)
		}
		instances, ret := gi.GetComputeInstances(&profile)
		if ret != nvml.SUCCESS {
			return fmt.Errorf("list the compute instances: %w", ret)
		}
		for _, instance := range instances {
			if ret := instance.Destroy(); ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
				return inUse("compute instance", ret)
			}
			// gofail: var migComputeInstanceDestroyed struct{}
		}
	}
	if ret := gi.Destroy(); ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_FOUND {
		return inUse("GPU instance", ret)
	}
	// gofail: var migGPUInstanceDestroyed struct{}
	return nil
}

func inUse(what string, ret nvml.Return) error {
	if ret == nvml.ERROR_IN_USE {
		return fmt.Errorf("destroy the %s: %w; processes still run in it", what, ret)
	}
	return fmt.Errorf("destroy the %s: %w", what, ret)
}
