package devicemodel

import (
	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// wholeGPU makes the device that is one physical GPU. limits says whether the node
// has a share's memory limited by NVML where the GPU can.
func wholeGPU(name Name, gpu inventory.GPU, facts nodeFacts, sharing SharingPolicy, limits bool) Device {
	d := Device{
		Name:     name,
		GPUUUID:  gpu.UUID,
		PCIBusID: gpu.PCIBusID,
		Minor:    gpu.Minor,
		Enforced: limits && gpu.MemoryLimits != nil && *gpu.MemoryLimits,
	}
	d.API = resourceapi.Device{Name: name.String(), Attributes: gpuAttributes(gpu, facts, d.Enforced)}
	d.setMemory(publishedMemory(gpu.MemoryBytes, sharing.ReservedMemory), sharing)
	d.setCapacity(map[resourceapi.QualifiedName]int64{CapacityComputePercent: 100})
	return d
}

func gpuAttributes(gpu inventory.GPU, facts nodeFacts, enforced bool) attributes {
	a := commonAttributes(gpu, facts)
	a.text(AttributeType, TypeGPU)
	a.text(AttributeUUID, gpu.UUID)
	a.text(AttributeNVLinkDomain, facts.nvlinkDomain)
	a.boolean(AttributeMIGCapable, gpu.MIG.Capable)
	enforcement := MemoryEnforcementNone
	if enforced {
		enforcement = MemoryEnforcementNVML
	}
	a.text(AttributeMemoryEnforcement, enforcement)
	return a
}
