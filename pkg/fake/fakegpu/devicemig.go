package fakegpu

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/uuid"

	"apportion.dev/apportion/pkg/fake/internal/chassis"
	"apportion.dev/apportion/pkg/fake/migrules"
)

// migDevices are the MIG devices of a GPU: one for each compute instance, by
// where they lie.
func (v view) migDevices() []migView {
	instances := slices.SortedFunc(slices.Values(v.Instances), func(a, b migrules.Instance) int {
		return a.Placement.Start - b.Placement.Start
	})
	var devices []migView
	for _, gi := range instances {
		profile, ok := v.product.ProfileByID(gi.Profile)
		if !ok {
			continue
		}
		compute := slices.SortedFunc(slices.Values(gi.Compute), func(a, b migrules.ComputeInstance) int {
			return a.Placement.Start - b.Placement.Start
		})
		for _, ci := range compute {
			c, ok := migrules.FindComputeProfile(profile, ci.Profile)
			if !ok {
				continue
			}
			devices = append(devices, migView{
				view: v, gi: gi, ci: ci, profile: profile, compute: c, uuid: migUUID(v.uuid, gi, ci), index: len(devices),
			})
		}
	}
	return devices
}

func (d device) GetMigMode() (int, int, nvml.Return) {
	v, ret := d.read("GetMigMode")
	switch {
	case ret != nvml.SUCCESS:
		return 0, 0, ret
	case v.product.MIG == nil:
		return 0, 0, nvml.ERROR_NOT_SUPPORTED
	}
	return migMode(v.MIGEnabled), migMode(v.MIGPending), ret
}

func migMode(enabled bool) int {
	if enabled {
		return nvml.DEVICE_MIG_ENABLE
	}
	return nvml.DEVICE_MIG_DISABLE
}

// SetMigMode changes the mode. The first result is the activation status: on a
// product that must be reset for it, processes on the GPU leave the new mode
// pending and the status is ERROR_IN_USE. Other products refuse while they are in
// use, and all refuse to leave the mode while instances exist.
func (d device) SetMigMode(mode int) (activation, ret nvml.Return) {
	if mode != nvml.DEVICE_MIG_ENABLE && mode != nvml.DEVICE_MIG_DISABLE {
		return nvml.ERROR_UNKNOWN, nvml.ERROR_INVALID_ARGUMENT
	}
	activation = nvml.SUCCESS
	ret = d.change("SetMigMode", func(v view) nvml.Return {
		var ret nvml.Return
		activation, ret = v.setMIGMode(mode == nvml.DEVICE_MIG_ENABLE)
		return ret
	})
	return activation, ret
}

func (v view) setMIGMode(enable bool) (activation, ret nvml.Return) {
	switch {
	case v.product.MIG == nil:
		return nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_SUPPORTED
	case !enable && len(v.Instances) > 0:
		return nvml.ERROR_IN_USE, nvml.ERROR_IN_USE
	case v.busy() && !v.product.MIG.ModeNeedsReset && enable != v.MIGEnabled:
		return nvml.ERROR_IN_USE, nvml.ERROR_IN_USE
	}
	v.MIGPending = enable
	if v.MIGEnabled == enable {
		return nvml.SUCCESS, nvml.SUCCESS
	}
	if v.busy() {
		return nvml.ERROR_IN_USE, nvml.SUCCESS
	}
	v.MIGEnabled = enable
	v.state.addMIGEvent(v.uuid)
	return nvml.SUCCESS, nvml.SUCCESS
}

// errReturn carries a code out of a change of the machine.
type errReturn struct{ code nvml.Return }

func (e errReturn) Error() string { return e.code.Error() }

// change makes a call that changes the GPU. The change is dropped unless the
// function returns SUCCESS.
func (d device) change(call string, f func(view) nvml.Return) nvml.Return {
	if _, ret := d.read(call); ret != nvml.SUCCESS {
		return ret
	}
	err := d.lib.machine.update(func(st *state) error {
		v, ok := st.byUUID(d.uuid)
		if !ok {
			return errReturn{nvml.ERROR_GPU_IS_LOST}
		}
		if ret := v.failure(call); ret != nvml.SUCCESS {
			return errReturn{ret}
		}
		if ret := f(v); ret != nvml.SUCCESS {
			return errReturn{ret}
		}
		return nil
	})
	return returnOf(err)
}

func (d device) GetMaxMigDeviceCount() (int, nvml.Return) {
	return get(d, "GetMaxMigDeviceCount", func(v view) int {
		if !v.MIGEnabled {
			return 0
		}
		return v.product.MIG.MaxDevices
	})
}

func (d device) GetMigDeviceHandleByIndex(index int) (nvml.Device, nvml.Return) {
	v, ret := d.read("GetMigDeviceHandleByIndex")
	switch {
	case ret != nvml.SUCCESS:
		return nil, ret
	case !v.MIGEnabled:
		return nil, nvml.ERROR_NOT_FOUND
	case index < 0 || index >= v.product.MIG.MaxDevices:
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	devices := v.migDevices()
	if index >= len(devices) {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return d.lib.migDevice(d.uuid, devices[index].uuid), ret
}

// GetGpuInstanceProfileInfo takes an NVML_GPU_INSTANCE_PROFILE_* constant.
func (d device) GetGpuInstanceProfileInfo(index int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	v, ret := d.read("GetGpuInstanceProfileInfo")
	switch {
	case ret != nvml.SUCCESS:
		return nvml.GpuInstanceProfileInfo{}, ret
	case index < 0 || index >= nvml.GPU_INSTANCE_PROFILE_COUNT:
		return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_INVALID_ARGUMENT
	}
	p, ok := v.product.Profile(func(p *Profile) bool { return p.Index == index })
	if !ok {
		return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.GpuInstanceProfileInfo{
		Id: uint32(p.ID), SliceCount: uint32(p.Slices), InstanceCount: uint32(p.MaxInstances),
		MultiprocessorCount: uint32(p.Multiprocessors), CopyEngineCount: uint32(p.Engines.Copy),
		DecoderCount: uint32(p.Engines.Decoder), EncoderCount: uint32(p.Engines.Encoder),
		JpegCount: uint32(p.Engines.JPEG), OfaCount: uint32(p.Engines.OFA), MemorySizeMB: p.MemoryMiB,
	}, ret
}

// readProfile is read with the profile that the caller's structure names.
func (d device) readProfile(call string, info *nvml.GpuInstanceProfileInfo) (view, *Profile, nvml.Return) {
	v, ret := d.read(call)
	if ret != nvml.SUCCESS {
		return view{}, nil, ret
	}
	p, ret := v.namedProfile(info)
	return v, p, ret
}

func (v view) namedProfile(info *nvml.GpuInstanceProfileInfo) (*Profile, nvml.Return) {
	if info == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	p, ok := v.product.ProfileByID(int(info.Id))
	if !ok {
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	return p, nvml.SUCCESS
}

func (d device) GetGpuInstancePossiblePlacements(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstancePlacement, nvml.Return) {
	_, p, ret := d.readProfile("GetGpuInstancePossiblePlacements", info)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	var places []nvml.GpuInstancePlacement
	for _, start := range p.Placements.Starts {
		places = append(places, nvml.GpuInstancePlacement{Start: uint32(start), Size: uint32(p.Placements.Size)})
	}
	return places, ret
}

func (d device) GetGpuInstanceRemainingCapacity(info *nvml.GpuInstanceProfileInfo) (int, nvml.Return) {
	v, p, ret := d.readProfile("GetGpuInstanceRemainingCapacity", info)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return migrules.Remaining(v.product, v.Instances, p), ret
}

// CreateGpuInstance makes an instance at the last place where one fits.
func (d device) CreateGpuInstance(info *nvml.GpuInstanceProfileInfo) (nvml.GpuInstance, nvml.Return) {
	return d.createGPUInstance("CreateGpuInstance", info, nil)
}

// CreateGpuInstanceWithPlacement makes an instance at a place, or returns
// ERROR_INSUFFICIENT_RESOURCES where it does not fit.
func (d device) CreateGpuInstanceWithPlacement(info *nvml.GpuInstanceProfileInfo, place *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
	if place == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return d.createGPUInstance("CreateGpuInstanceWithPlacement", info, &migrules.Placement{Start: int(place.Start), Size: int(place.Size)})
}

func (d device) createGPUInstance(call string, info *nvml.GpuInstanceProfileInfo, place *migrules.Placement) (nvml.GpuInstance, nvml.Return) {
	var id int
	ret := d.change(call, func(v view) nvml.Return {
		p, ret := v.namedProfile(info)
		if ret != nvml.SUCCESS {
			return ret
		}
		id, ret = v.addInstance(p, place)
		return ret
	})
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return d.gpuInstance(id), ret
}

// addInstance makes a GPU instance, at the last free place if none is given.
func (v view) addInstance(p *Profile, place *migrules.Placement) (int, nvml.Return) {
	if !v.MIGEnabled {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	if place == nil {
		free := migrules.FreePlacements(v.product, v.Instances, p)
		if len(free) == 0 {
			return 0, nvml.ERROR_INSUFFICIENT_RESOURCES
		}
		place = &free[len(free)-1]
	}
	if !migrules.Allows(p, *place) {
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
	if !migrules.Fits(v.product, v.Instances, p, *place) {
		return 0, nvml.ERROR_INSUFFICIENT_RESOURCES
	}
	gi := migrules.Instance{ID: migrules.InstanceID(v.product.MIG, *place), Profile: p.ID, Placement: *place}
	v.Instances = append(v.Instances, gi)
	slices.SortFunc(v.Instances, func(a, b migrules.Instance) int { return a.Placement.Start - b.Placement.Start })
	v.state.addMIGEvent(v.uuid)
	return gi.ID, nvml.SUCCESS
}

func (d device) GetGpuInstances(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstance, nvml.Return) {
	v, p, ret := d.readProfile("GetGpuInstances", info)
	switch {
	case ret != nvml.SUCCESS:
		return nil, ret
	case !v.MIGEnabled:
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	instances := []nvml.GpuInstance{}
	for _, gi := range v.Instances {
		if gi.Profile == p.ID {
			instances = append(instances, d.gpuInstance(gi.ID))
		}
	}
	return instances, ret
}

func (d device) GetGpuInstanceById(id int) (nvml.GpuInstance, nvml.Return) {
	v, ret := d.read("GetGpuInstanceById")
	switch {
	case ret != nvml.SUCCESS:
		return nil, ret
	case !v.MIGEnabled:
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	if _, ok := v.instance(id); !ok {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return d.gpuInstance(id), ret
}

// migUUID is the UUID of the MIG device of a compute instance. As with the real
// driver, the same partition made again has the same UUID.
func migUUID(gpu string, gi migrules.Instance, ci migrules.ComputeInstance) string {
	name := fmt.Appendf(nil, "mig/%s/%d/%d/%d/%d/%d", gpu, gi.ID, gi.Profile, gi.Placement.Start, ci.ID, ci.Profile)
	return "MIG-" + uuid.NewSHA1(chassis.Identities, name).String()
}
