package fakegpu

import (
	"errors"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/internal/notsupported"
	"apportion.dev/apportion/pkg/fake/migrules"
)

// gpuInstanceHandle is the handle of a GPU instance.
type gpuInstanceHandle struct {
	nvml.GpuInstance
	device device
	id     int
}

func (d device) gpuInstance(id int) gpuInstanceHandle {
	return gpuInstanceHandle{GpuInstance: notsupported.GPUInstance, device: d, id: id}
}

// computeInstanceHandle is the handle of a compute instance.
type computeInstanceHandle struct {
	nvml.ComputeInstance
	gi gpuInstanceHandle
	id int
}

func (h gpuInstanceHandle) computeInstance(id int) computeInstanceHandle {
	return computeInstanceHandle{ComputeInstance: notsupported.ComputeInstance, gi: h, id: id}
}

// returnOf is the code that stands for the error of a change.
func returnOf(err error) nvml.Return {
	var code errReturn
	switch {
	case err == nil:
		return nvml.SUCCESS
	case errors.As(err, &code):
		return code.code
	}
	return nvml.ERROR_UNKNOWN
}

// read gives the instance as it is now, with its profile.
func (h gpuInstanceHandle) read(call string) (*migrules.Instance, *Profile, nvml.Return) {
	v, ret := h.device.read(call)
	if ret != nvml.SUCCESS {
		return nil, nil, ret
	}
	return v.instanceAndProfile(h.id)
}

func (v view) instanceAndProfile(id int) (*migrules.Instance, *Profile, nvml.Return) {
	gi, ok := v.instance(id)
	if !ok {
		return nil, nil, nvml.ERROR_NOT_FOUND
	}
	p, ok := v.product.ProfileByID(gi.Profile)
	if !ok {
		return nil, nil, nvml.ERROR_UNKNOWN
	}
	return gi, p, nvml.SUCCESS
}

func (h gpuInstanceHandle) GetInfo() (nvml.GpuInstanceInfo, nvml.Return) {
	gi, _, ret := h.read("GetGpuInstanceInfo")
	if ret != nvml.SUCCESS {
		return nvml.GpuInstanceInfo{}, ret
	}
	return nvml.GpuInstanceInfo{
		Device: h.device, Id: uint32(gi.ID), ProfileId: uint32(gi.Profile),
		Placement: nvml.GpuInstancePlacement{Start: uint32(gi.Placement.Start), Size: uint32(gi.Placement.Size)},
	}, ret
}

// Destroy removes the instance. It returns ERROR_IN_USE while it has compute
// instances.
func (h gpuInstanceHandle) Destroy() nvml.Return {
	return h.device.change("DestroyGpuInstance", func(v view) nvml.Return { return v.removeInstance(h.id) })
}

func (v view) removeInstance(id int) nvml.Return {
	gi, ok := v.instance(id)
	switch {
	case !ok:
		return nvml.ERROR_NOT_FOUND
	case len(gi.Compute) > 0:
		return nvml.ERROR_IN_USE
	}
	v.Instances = slices.DeleteFunc(v.Instances, func(gi migrules.Instance) bool { return gi.ID == id })
	v.state.addMIGEvent(v.uuid)
	return nvml.SUCCESS
}

// GetComputeInstanceProfileInfo takes an NVML_COMPUTE_INSTANCE_PROFILE_*
// constant. Engines are those of the GPU instance, which its compute instances
// share.
func (h gpuInstanceHandle) GetComputeInstanceProfileInfo(index, engine int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
	_, p, ret := h.read("GetComputeInstanceProfileInfo")
	switch {
	case ret != nvml.SUCCESS:
		return nvml.ComputeInstanceProfileInfo{}, ret
	case index < 0 || index >= nvml.COMPUTE_INSTANCE_PROFILE_COUNT:
		return nvml.ComputeInstanceProfileInfo{}, nvml.ERROR_INVALID_ARGUMENT
	case engine != nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED:
		return nvml.ComputeInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	c, ok := migrules.FindComputeProfile(p, index)
	if !ok {
		return nvml.ComputeInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.ComputeInstanceProfileInfo{
		Id: uint32(c.ID), SliceCount: uint32(c.Slices), InstanceCount: uint32(len(c.Starts)),
		MultiprocessorCount: uint32(c.Multiprocessors), SharedCopyEngineCount: uint32(p.Engines.Copy),
		SharedDecoderCount: uint32(p.Engines.Decoder), SharedEncoderCount: uint32(p.Engines.Encoder),
		SharedJpegCount: uint32(p.Engines.JPEG), SharedOfaCount: uint32(p.Engines.OFA),
	}, ret
}

// namedComputeProfile is the profile that the caller's structure names.
func namedComputeProfile(p *Profile, info *nvml.ComputeInstanceProfileInfo) (migrules.ComputeProfile, nvml.Return) {
	if info == nil {
		return migrules.ComputeProfile{}, nvml.ERROR_INVALID_ARGUMENT
	}
	c, ok := migrules.FindComputeProfile(p, int(info.Id))
	if !ok {
		return migrules.ComputeProfile{}, nvml.ERROR_NOT_SUPPORTED
	}
	return c, nvml.SUCCESS
}

func (h gpuInstanceHandle) readComputeProfile(call string, info *nvml.ComputeInstanceProfileInfo) (*migrules.Instance, migrules.ComputeProfile, nvml.Return) {
	gi, p, ret := h.read(call)
	if ret != nvml.SUCCESS {
		return nil, migrules.ComputeProfile{}, ret
	}
	c, ret := namedComputeProfile(p, info)
	return gi, c, ret
}

func (h gpuInstanceHandle) GetComputeInstancePossiblePlacements(info *nvml.ComputeInstanceProfileInfo) ([]nvml.ComputeInstancePlacement, nvml.Return) {
	_, c, ret := h.readComputeProfile("GetComputeInstancePossiblePlacements", info)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	var places []nvml.ComputeInstancePlacement
	for _, start := range c.Starts {
		places = append(places, nvml.ComputeInstancePlacement{Start: uint32(start), Size: uint32(c.Slices)})
	}
	return places, ret
}

func (h gpuInstanceHandle) GetComputeInstanceRemainingCapacity(info *nvml.ComputeInstanceProfileInfo) (int, nvml.Return) {
	gi, c, ret := h.readComputeProfile("GetComputeInstanceRemainingCapacity", info)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return len(c.FreePlacements(gi.Compute)), ret
}

// CreateComputeInstance makes an instance at the first place where one fits.
func (h gpuInstanceHandle) CreateComputeInstance(info *nvml.ComputeInstanceProfileInfo) (nvml.ComputeInstance, nvml.Return) {
	return h.createCompute("CreateComputeInstance", info, nil)
}

// CreateComputeInstanceWithPlacement makes an instance at a place, or returns
// ERROR_INSUFFICIENT_RESOURCES where it does not fit.
func (h gpuInstanceHandle) CreateComputeInstanceWithPlacement(info *nvml.ComputeInstanceProfileInfo, place *nvml.ComputeInstancePlacement) (nvml.ComputeInstance, nvml.Return) {
	if place == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return h.createCompute("CreateComputeInstanceWithPlacement", info, &migrules.Placement{Start: int(place.Start), Size: int(place.Size)})
}

func (h gpuInstanceHandle) createCompute(call string, info *nvml.ComputeInstanceProfileInfo, place *migrules.Placement) (nvml.ComputeInstance, nvml.Return) {
	var id int
	ret := h.device.change(call, func(v view) nvml.Return {
		gi, p, ret := v.instanceAndProfile(h.id)
		if ret != nvml.SUCCESS {
			return ret
		}
		c, ret := namedComputeProfile(p, info)
		if ret != nvml.SUCCESS {
			return ret
		}
		id, ret = v.addCompute(gi, c, place)
		return ret
	})
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return h.computeInstance(id), ret
}

// addCompute makes a compute instance, at the first free place if none is given.
func (v view) addCompute(gi *migrules.Instance, c migrules.ComputeProfile, place *migrules.Placement) (int, nvml.Return) {
	free := c.FreePlacements(gi.Compute)
	switch {
	case place == nil && len(free) == 0:
		return 0, nvml.ERROR_INSUFFICIENT_RESOURCES
	case place == nil:
		place = &free[0]
	case place.Size != c.Slices || !slices.Contains(c.Starts, place.Start):
		return 0, nvml.ERROR_INVALID_ARGUMENT
	case !slices.Contains(free, *place):
		return 0, nvml.ERROR_INSUFFICIENT_RESOURCES
	}
	id := 0
	for {
		if _, taken := gi.ComputeInstance(id); !taken {
			break
		}
		id++
	}
	gi.Compute = append(gi.Compute, migrules.ComputeInstance{ID: id, Profile: c.ID, Placement: *place})
	v.state.addMIGEvent(v.uuid)
	return id, nvml.SUCCESS
}

func (h gpuInstanceHandle) GetComputeInstances(info *nvml.ComputeInstanceProfileInfo) ([]nvml.ComputeInstance, nvml.Return) {
	gi, c, ret := h.readComputeProfile("GetComputeInstances", info)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	instances := []nvml.ComputeInstance{}
	for _, ci := range gi.Compute {
		if ci.Profile == c.ID {
			instances = append(instances, h.computeInstance(ci.ID))
		}
	}
	return instances, ret
}

func (h gpuInstanceHandle) GetComputeInstanceById(id int) (nvml.ComputeInstance, nvml.Return) {
	gi, _, ret := h.read("GetComputeInstanceById")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	if _, ok := gi.ComputeInstance(id); !ok {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return h.computeInstance(id), ret
}

func (h computeInstanceHandle) GetInfo() (nvml.ComputeInstanceInfo, nvml.Return) {
	gi, _, ret := h.gi.read("GetComputeInstanceInfo")
	if ret != nvml.SUCCESS {
		return nvml.ComputeInstanceInfo{}, ret
	}
	ci, ok := gi.ComputeInstance(h.id)
	if !ok {
		return nvml.ComputeInstanceInfo{}, nvml.ERROR_NOT_FOUND
	}
	return nvml.ComputeInstanceInfo{
		Device: h.gi.device, GpuInstance: h.gi, Id: uint32(ci.ID), ProfileId: uint32(ci.Profile),
		Placement: nvml.ComputeInstancePlacement{Start: uint32(ci.Placement.Start), Size: uint32(ci.Placement.Size)},
	}, ret
}

// Destroy removes the instance. It returns ERROR_IN_USE while processes run on
// its MIG device.
func (h computeInstanceHandle) Destroy() nvml.Return {
	return h.gi.device.change("DestroyComputeInstance", func(v view) nvml.Return {
		return v.removeCompute(h.gi.id, h.id)
	})
}

func (v view) removeCompute(giID, id int) nvml.Return {
	gi, ok := v.instance(giID)
	if !ok {
		return nvml.ERROR_NOT_FOUND
	}
	ci, ok := gi.ComputeInstance(id)
	if !ok {
		return nvml.ERROR_NOT_FOUND
	}
	uuid := migUUID(v.uuid, *gi, *ci)
	if slices.ContainsFunc(v.running(), func(p Process) bool { return p.MIGDevice == uuid }) {
		return nvml.ERROR_IN_USE
	}
	gi.Compute = slices.DeleteFunc(gi.Compute, func(ci migrules.ComputeInstance) bool { return ci.ID == id })
	v.state.addMIGEvent(v.uuid)
	return nvml.SUCCESS
}
