package mig

import (
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// undo is what takes back what a call did, first things first.
type undo []func() error

func (u *undo) add(f func() error) { *u = append(*u, f) }

// run takes everything back, the last first. What cannot be taken back stops it:
// what came before is still in use then.
func (u *undo) run() error {
	for _, f := range slices.Backward(*u) {
		if err := f(); err != nil {
			return fmt.Errorf("take back what was done: %w", err)
		}
	}
	return nil
}

// ensure makes the partition, or completes it.
func (g *gpu) ensure(p inventory.Partition, done *undo) (Instance, error) {
	if err := g.usable(); err != nil {
		return Instance{}, err
	}
	profile, err := g.profile(p.Profile)
	if err != nil {
		return Instance{}, err
	}
	if err := g.ctx.Err(); err != nil {
		return Instance{}, err
	}
	changed, err := g.enableMode()
	if changed {
		done.add(g.disableModeIfEmpty)
	}
	if err != nil {
		return Instance{}, err
	}
	// gofail: var migModeEnabled struct{}
	gi, err := g.findIn(profile, p.Start)
	if err != nil {
		return Instance{}, err
	}
	if gi == nil {
		if gi, err = g.create(profile, p.Start, done); err != nil {
			return Instance{}, err
		}
		// gofail: var migGPUInstanceCreated struct{}
	}
	full, err := gi.fullProfile()
	if err != nil {
		return Instance{}, err
	}
	id, found, err := gi.compute(full)
	if err != nil {
		return Instance{}, err
	}
	if !found {
		if id, err = gi.createCompute(full, done); err != nil {
			return Instance{}, err
		}
		// gofail: var migComputeInstanceCreated struct{}
	}
	instance, err := g.migDevice(gi, id)
	if err == nil && len(*done) > 0 {
		g.logger.V(2).Info("Made MIG partition", "gpu", p.GPU, "profile", p.Profile, "start", p.Start, "device", instance.UUID)
	}
	return instance, err
}

// create makes the GPU instance at the placement.
func (g *gpu) create(profile inventory.NamedMIGProfile, start int, done *undo) (*gpuInstance, error) {
	placements, ret := g.device.GetGpuInstancePossiblePlacements(&profile.Info)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("read the placements of profile %s: %w", profile.Name, ret)
	}
	i := slices.IndexFunc(placements, func(p nvml.GpuInstancePlacement) bool { return int(p.Start) == start })
	if i < 0 {
		return nil, fmt.Errorf("profile %s cannot start at memory slice %d", profile.Name, start)
	}
	handle, ret := g.device.CreateGpuInstanceWithPlacement(&profile.Info, &placements[i])
	if ret != nvml.SUCCESS {
		return nil, g.whyNot(placements[i], ret)
	}
	gi := &gpuInstance{GpuInstance: handle, profile: profile}
	done.add(gi.destroy)
	if gi.info, ret = handle.GetInfo(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("read the new GPU instance: %w", ret)
	}
	return gi, nil
}

// whyNot explains why a GPU instance could not be made.
func (g *gpu) whyNot(place nvml.GpuInstancePlacement, ret nvml.Return) error {
	err := fmt.Errorf("create the GPU instance: %w", ret)
	if ret != nvml.ERROR_INSUFFICIENT_RESOURCES {
		return err
	}
	instances, listErr := g.instances()
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	overlapping := slices.DeleteFunc(slices.Clone(instances), func(i gpuInstance) bool {
		return !placement(i.info.Placement).Overlaps(placement(place))
	})
	if len(overlapping) > 0 {
		return fmt.Errorf("%w: its place is taken by %s, which somebody else made", err, names(overlapping))
	}
	return fmt.Errorf("%w: too little is left beside %s", err, names(instances))
}

func placement(p nvml.GpuInstancePlacement) inventory.MIGPlacement {
	return inventory.MIGPlacement{Start: int(p.Start), Size: int(p.Size)}
}

// migDevice returns the MIG device of a compute instance.
func (g *gpu) migDevice(gi *gpuInstance, compute int) (Instance, error) {
	count, ret := g.device.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return Instance{}, fmt.Errorf("read the number of MIG devices: %w", ret)
	}
	var failed error
	for i := range count {
		uuid, found, ret := migDeviceAt(g.device, i, int(gi.info.Id), compute)
		switch ret {
		case nvml.SUCCESS:
			if found {
				return Instance{GPUInstance: int(gi.info.Id), ComputeInstance: compute, UUID: uuid}, nil
			}
		case nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT:
			// Indices have gaps.
		default:
			failed = errors.Join(failed, fmt.Errorf("read MIG device %d: %w", i, ret))
		}
	}
	if failed != nil {
		return Instance{}, failed
	}
	return Instance{}, fmt.Errorf("%s has a compute instance, but its MIG device did not appear", gi)
}

// migDeviceAt returns the UUID of the MIG device with an index if it is that of the
// instances.
func migDeviceAt(parent nvml.Device, index, gi, compute int) (uuid string, found bool, ret nvml.Return) {
	device, ret := parent.GetMigDeviceHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return "", false, ret
	}
	if id, ret := device.GetGpuInstanceId(); ret != nvml.SUCCESS || id != gi {
		return "", false, ret
	}
	if id, ret := device.GetComputeInstanceId(); ret != nvml.SUCCESS || id != compute {
		return "", false, ret
	}
	uuid, ret = device.GetUUID()
	return uuid, ret == nvml.SUCCESS, ret
}

// gpuInstance is a GPU instance with its data.
type gpuInstance struct {
	nvml.GpuInstance
	info    nvml.GpuInstanceInfo
	profile inventory.NamedMIGProfile
}

func (gi gpuInstance) String() string {
	return fmt.Sprintf("the %s at %d (GPU instance %d)", gi.profile.Name, gi.info.Placement.Start, gi.info.Id)
}

// computeProfiles are the NVML_COMPUTE_INSTANCE_PROFILE_* constants by the number
// of slices. Other constants of the same size are for special uses.
var computeProfiles = map[uint32]int{
	1: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE,
	2: nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE,
	3: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE,
	4: nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE,
	6: nvml.COMPUTE_INSTANCE_PROFILE_6_SLICE,
	7: nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE,
	8: nvml.COMPUTE_INSTANCE_PROFILE_8_SLICE,
}

// fullProfile returns the profile of a compute instance that fills the GPU
// instance.
func (gi *gpuInstance) fullProfile() (nvml.ComputeInstanceProfileInfo, error) {
	size := gi.profile.Info.SliceCount
	if index, ok := computeProfiles[size]; ok {
		info, found, err := gi.computeProfile(index)
		if err != nil || found && info.SliceCount == size {
			return info, err
		}
	}
	for index := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, found, err := gi.computeProfile(index)
		if err != nil || found && info.SliceCount == size {
			return info, err
		}
	}
	return nvml.ComputeInstanceProfileInfo{}, fmt.Errorf("no compute instance fills %s", gi)
}

func (gi *gpuInstance) computeProfile(index int) (info nvml.ComputeInstanceProfileInfo, found bool, err error) {
	info, ret := gi.GetComputeInstanceProfileInfo(index, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	switch ret {
	case nvml.SUCCESS:
		return info, true, nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT:
		return info, false, nil
	}
	return info, false, fmt.Errorf("read the compute instance profile with the number %d: %w", index, ret)
}

// compute returns the id of the compute instance of a profile.
func (gi *gpuInstance) compute(profile nvml.ComputeInstanceProfileInfo) (id int, found bool, err error) {
	instances, ret := gi.GetComputeInstances(&profile)
	if ret != nvml.SUCCESS {
		return 0, false, fmt.Errorf("list the compute instances of %s: %w", gi, ret)
	}
	if len(instances) == 0 {
		return 0, false, nil
	}
	info, ret := instances[0].GetInfo()
	if ret != nvml.SUCCESS {
		return 0, false, fmt.Errorf("read the compute instance of %s: %w", gi, ret)
	}
	return int(info.Id), true, nil
}

// createCompute makes the compute instance that fills the GPU instance.
func (gi *gpuInstance) createCompute(profile nvml.ComputeInstanceProfileInfo, done *undo) (id int, err error) {
	instance, ret := gi.CreateComputeInstance(&profile)
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		return 0, fmt.Errorf("create the compute instance: %w: somebody divided %s among smaller ones", ret, gi)
	default:
		return 0, fmt.Errorf("create the compute instance: %w", ret)
	}
	done.add(func() error { return destroyed("compute instance", instance.Destroy()) })
	info, ret := instance.GetInfo()
	if ret != nvml.SUCCESS {
		return 0, fmt.Errorf("read the new compute instance: %w", ret)
	}
	return int(info.Id), nil
}

// destroy removes the GPU instance and all compute instances in it.
func (gi *gpuInstance) destroy() error {
	full, err := gi.fullProfile()
	if err != nil {
		return err
	}
	if err := gi.destroyCompute(full); err != nil {
		return err
	}
	ret := gi.Destroy()
	if ret == nvml.ERROR_IN_USE {
		// There may be smaller ones.
		if err := gi.destroyAllCompute(); err != nil {
			return err
		}
		ret = gi.Destroy()
	}
	if err := destroyed(gi.String(), ret); err != nil {
		return err
	}
	// gofail: var migGPUInstanceDestroyed struct{}
	return nil
}

func (gi *gpuInstance) destroyAllCompute() error {
	for index := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		profile, found, err := gi.computeProfile(index)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if err := gi.destroyCompute(profile); err != nil {
			return err
		}
	}
	return nil
}

// destroyCompute removes the compute instances of a profile.
func (gi *gpuInstance) destroyCompute(profile nvml.ComputeInstanceProfileInfo) error {
	instances, ret := gi.GetComputeInstances(&profile)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("list the compute instances of %s: %w", gi, ret)
	}
	for _, instance := range instances {
		if err := destroyed("compute instance of "+gi.String(), instance.Destroy()); err != nil {
			return err
		}
		// gofail: var migComputeInstanceDestroyed struct{}
	}
	return nil
}

// destroyed is the error of a call that destroys something.
func destroyed(what string, ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS, nvml.ERROR_NOT_FOUND:
		return nil
	case nvml.ERROR_IN_USE:
		return fmt.Errorf("destroy the %s: %w: processes still run in it", what, ret)
	}
	return fmt.Errorf("destroy the %s: %w", what, ret)
}
