package inventory

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// Handle finds a GPU or a MIG device by its UUID. While any GPU is lost NVML finds none
// by UUID (nvmlDeviceGetHandleByUUID), so the GPUs that answer are asked for theirs.
// A GPU that is lost itself is ERROR_GPU_IS_LOST.
func Handle(lib nvml.Interface, uuid string) (nvml.Device, nvml.Return) {
	device, lost := lib.DeviceGetHandleByUUID(uuid)
	if lost != nvml.ERROR_GPU_IS_LOST {
		return device, lost
	}
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	for i := range count {
		gpu, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		if own, ret := gpu.GetUUID(); ret == nvml.SUCCESS && own == uuid {
			return gpu, ret
		}
		partitions, ret := gpu.GetMaxMigDeviceCount()
		if ret != nvml.SUCCESS {
			continue
		}
		for j := range partitions {
			partition, ret := gpu.GetMigDeviceHandleByIndex(j)
			if ret != nvml.SUCCESS {
				continue
			}
			if own, ret := partition.GetUUID(); ret == nvml.SUCCESS && own == uuid {
				return partition, ret
			}
		}
	}
	return nil, lost
}
