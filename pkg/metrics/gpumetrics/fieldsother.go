package gpumetrics

import (
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func errorFields() []field {
	ecc := func(kind nvml.MemoryErrorType, since nvml.EccCounterType) source {
		return call("nvmlDeviceGetTotalEccErrors", func(d nvml.Device) (uint64, nvml.Return) { return d.GetTotalEccErrors(kind, since) })
	}
	rows := func(pick func(remappedRows) float64) source {
		return source{symbols: []string{"nvmlDeviceGetRemappedRows"}, number: func(r *reading) (float64, nvml.Return) {
			remapped, ret := r.remappedRows()
			return pick(remapped), ret
		}}
	}
	const corrected, uncorrected = nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.MEMORY_ERROR_TYPE_UNCORRECTED
	return []field{
		gauge("DCGM_FI_DEV_XID_ERRORS", "Number of the last critical error (XID) that was not an application's own, 0 if there was none.", lastXID()).standardField(),
		counter("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Memory errors that were corrected, since the driver was loaded.", ecc(corrected, nvml.VOLATILE_ECC)),
		counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Memory errors that were not corrected, since the driver was loaded.", ecc(uncorrected, nvml.VOLATILE_ECC)),
		counter("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "Memory errors that were corrected, over the GPU's life.", ecc(corrected, nvml.AGGREGATE_ECC)),
		counter("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "Memory errors that were not corrected, over the GPU's life.", ecc(uncorrected, nvml.AGGREGATE_ECC)),
		counter("DCGM_FI_DEV_RETIRED_SBE", "Memory pages retired because of errors that were corrected.", fieldValue(nvml.FI_DEV_RETIRED_SBE)),
		counter("DCGM_FI_DEV_RETIRED_DBE", "Memory pages retired because of errors that were not corrected.", fieldValue(nvml.FI_DEV_RETIRED_DBE)),
		gauge("DCGM_FI_DEV_RETIRED_PENDING", "1 if memory pages wait for a reboot to be retired, else 0.", fieldValue(nvml.FI_DEV_RETIRED_PENDING)),
		counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Memory rows remapped because of errors that were not corrected.", rows(func(r remappedRows) float64 { return float64(r.uncorrectable) })).standardField(),
		counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Memory rows remapped because of errors that were corrected.", rows(func(r remappedRows) float64 { return float64(r.correctable) })).standardField(),
		gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "1 if a memory row could not be remapped, else 0.", rows(func(r remappedRows) float64 { return truth(r.failed) })).standardField(),
		gauge("DCGM_FI_DEV_ROW_REMAP_PENDING", "1 if memory rows wait for a reset to be remapped, else 0.", rows(func(r remappedRows) float64 { return truth(r.pending) })),
	}
}

func truth(value bool) float64 {
	if value {
		return 1
	}
	return 0
}

// lastXID needs the functions by which the inventory hears of errors.
func lastXID() source {
	return source{
		symbols: []string{"nvmlEventSetCreate", "nvmlEventSetWait_v2|nvmlEventSetWait", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes"},
		number:  (*reading).lastXID,
	}
}

func linkFields() []field {
	link := func(id uint32) source {
		s := fieldValue(id)
		s.field.ids[0].scope = allLinks
		return s
	}
	bandwidth := link(nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX)
	bandwidth.field.ids = append(bandwidth.field.ids, fieldID{id: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scope: allLinks})
	// NVML counts KiB.
	bandwidth.field.rate, bandwidth.field.divisor = true, 1e6/1024
	pcie := func(symbol string, read func(nvml.Device) (int, nvml.Return)) source { return call(symbol, read) }
	return []field{
		// DCGM's own list calls this one a counter, but what DCGM gives is a rate.
		gauge("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Data sent and received over all NVLink connections since the last sample, in MB (1000000 bytes) per second.", bandwidth).standardField(),
		counter("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "Checksum errors of flow control on all NVLink connections.", fieldValue(nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL)),
		counter("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "Checksum errors of data on all NVLink connections.", fieldValue(nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL)),
		counter("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "Packets sent again on all NVLink connections.", fieldValue(nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL)),
		counter("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "Recoveries of NVLink connections.", fieldValue(nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL)),
		counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Packets sent again on the PCIe link.", pcie("nvmlDeviceGetPcieReplayCounter", nvml.Device.GetPcieReplayCounter)).standardField(),
		gauge("DCGM_FI_DEV_PCIE_LINK_GEN", "Generation at which the PCIe link runs.", pcie("nvmlDeviceGetCurrPcieLinkGeneration", nvml.Device.GetCurrPcieLinkGeneration)),
		gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH", "Lanes on which the PCIe link runs.", pcie("nvmlDeviceGetCurrPcieLinkWidth", nvml.Device.GetCurrPcieLinkWidth)),
		gauge("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "Highest generation that the PCIe link can run at.", pcie("nvmlDeviceGetMaxPcieLinkGeneration", nvml.Device.GetMaxPcieLinkGeneration).once()),
		gauge("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "Most lanes that the PCIe link can run on.", pcie("nvmlDeviceGetMaxPcieLinkWidth", nvml.Device.GetMaxPcieLinkWidth).once()),
	}
}

// profilingFields are those that NVML measures by GPM, on Hopper and newer.
func profilingFields() []field {
	ratio := func(name, help string, id nvml.GpmMetricId) field {
		return gauge("DCGM_FI_PROF_"+name, "Ratio (0 to 1) of "+help, gpmRatio(id)).perInstance()
	}
	bytes := func(name, help string, id nvml.GpmMetricId) field {
		return gauge("DCGM_FI_PROF_"+name, help+", in bytes per second.", gpmBytes(id))
	}
	return []field{
		ratio("GR_ENGINE_ACTIVE", "the time in which any compute or graphics work was done.", nvml.GPM_METRIC_GRAPHICS_UTIL).standardField(),
		ratio("SM_ACTIVE", "the multiprocessors that were busy, on average over the time.", nvml.GPM_METRIC_SM_UTIL),
		ratio("SM_OCCUPANCY", "the warps that were active to those that could be.", nvml.GPM_METRIC_SM_OCCUPANCY),
		ratio("PIPE_TENSOR_ACTIVE", "the time in which the tensor cores were busy.", nvml.GPM_METRIC_ANY_TENSOR_UTIL).standardField(),
		ratio("PIPE_FP64_ACTIVE", "the time in which the FP64 units were busy.", nvml.GPM_METRIC_FP64_UTIL),
		ratio("PIPE_FP32_ACTIVE", "the time in which the FP32 units were busy.", nvml.GPM_METRIC_FP32_UTIL),
		ratio("PIPE_FP16_ACTIVE", "the time in which the FP16 units were busy.", nvml.GPM_METRIC_FP16_UTIL),
		ratio("DRAM_ACTIVE", "the memory bandwidth that was used to the highest.", nvml.GPM_METRIC_DRAM_BW_UTIL).standardField(),
		bytes("PCIE_TX_BYTES", "Data sent over PCIe, headers included", nvml.GPM_METRIC_PCIE_TX_PER_SEC).standardField(),
		bytes("PCIE_RX_BYTES", "Data received over PCIe, headers included", nvml.GPM_METRIC_PCIE_RX_PER_SEC).standardField(),
		bytes("NVLINK_TX_BYTES", "Data sent over NVLink", nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC),
		bytes("NVLINK_RX_BYTES", "Data received over NVLink", nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC),
	}
}

func identityFields() []field {
	driver := known(func(r *reading) (string, nvml.Return) { return r.node.DriverVersion.Raw, nvml.SUCCESS })
	brand := known(func(r *reading) (string, nvml.Return) { return r.gpu.Brand, nvml.SUCCESS })
	name := known(func(r *reading) (string, nvml.Return) { return r.gpu.ProductName, nvml.SUCCESS })
	library := known(func(r *reading) (string, nvml.Return) { return r.reader.lib.SystemGetNVMLVersion() })
	library.fixed = true
	return []field{
		text("DCGM_FI_DRIVER_VERSION", "Version of the NVIDIA driver.", driver).standardField(),
		text("DCGM_FI_NVML_VERSION", "Version of the NVML library.", library),
		text("DCGM_FI_CUDA_DRIVER_VERSION", "Highest version of CUDA that the driver supports.", known(cudaVersion)),
		text("DCGM_FI_DEV_NAME", "Name of the GPU's product.", name),
		text("DCGM_FI_DEV_BRAND", "Brand of the GPU's product.", brand),
		text("DCGM_FI_DEV_SERIAL", "Serial number of the GPU's board.", label("nvmlDeviceGetSerial", nvml.Device.GetSerial)),
		text("DCGM_FI_DEV_VBIOS_VERSION", "Version of the GPU's VBIOS.", label("nvmlDeviceGetVbiosVersion", nvml.Device.GetVbiosVersion)),
		text("DCGM_FI_DEV_INFOROM_IMAGE_VER", "Version of the GPU's InfoROM image.", label("nvmlDeviceGetInforomImageVersion", nvml.Device.GetInforomImageVersion)),
		gauge("DCGM_FI_DEV_MIG_MODE", "1 if the GPU is in MIG mode, else 0.", migMode()),
		gauge("DCGM_FI_DEV_ECC_CURRENT", "1 if ECC is on, else 0.", call("nvmlDeviceGetEccMode", func(d nvml.Device) (nvml.EnableState, nvml.Return) {
			current, _, ret := d.GetEccMode()
			return current, ret
		})),
		gauge("DCGM_FI_DEV_PERSISTENCE_MODE", "1 if the driver stays loaded while nobody uses the GPU, else 0.", call("nvmlDeviceGetPersistenceMode", nvml.Device.GetPersistenceMode)),
		gauge("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "1 if the GPU has a license for vGPU, else 0.", licenseStatus()).standardField(),
	}
}

// cudaVersion is DCGM's number: major in the thousands, minor in the tens.
func cudaVersion(r *reading) (string, nvml.Return) {
	major, minor, ok := versionNumbers(r.node.CUDADriverVersion.Raw)
	if !ok {
		return "", nvml.ERROR_NO_DATA
	}
	return strconv.Itoa(1000*major + 10*minor), nvml.SUCCESS
}

func migMode() source {
	return source{number: func(r *reading) (float64, nvml.Return) {
		if r.gpu.MIG.Enabled == nil {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		return truth(*r.gpu.MIG.Enabled), nvml.SUCCESS
	}}
}

func licenseStatus() source {
	return source{
		symbols: []string{"nvmlDeviceGetGridLicensableFeatures_v4|nvmlDeviceGetGridLicensableFeatures_v3|nvmlDeviceGetGridLicensableFeatures_v2|nvmlDeviceGetGridLicensableFeatures"},
		number: func(r *reading) (float64, nvml.Return) {
			features, ret := r.dev.GetGridLicensableFeatures()
			if ret != nvml.SUCCESS || features.IsGridLicenseSupported == 0 {
				return 0, ret
			}
			count := min(int(features.LicensableFeaturesCount), len(features.GridLicensableFeatures))
			for _, f := range features.GridLicensableFeatures[:count] {
				if nvml.GridLicenseFeatureCode(f.FeatureCode) == nvml.GRID_LICENSE_FEATURE_CODE_VGPU {
					return truth(f.FeatureState > 0), ret
				}
			}
			return 0, nvml.ERROR_NO_DATA
		},
	}
}
