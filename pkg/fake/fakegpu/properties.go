package fakegpu

import (
	"maps"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// properties are what can be made to fail on a GPU, and the NVML calls (methods
// of nvml.Device and of its MIG handles) that then return the error.
var properties = map[string][]string{
	"architecture":       {"GetArchitecture"},
	"attributes":         {"GetAttributes"},
	"brand":              {"GetBrand"},
	"clocks":             {"GetClockInfo", "GetMaxClockInfo"},
	"compute-capability": {"GetCudaComputeCapability"},
	"ecc":                {"GetEccMode", "GetTotalEccErrors"},
	"energy":             {"GetTotalEnergyConsumption"},
	"events":             {"RegisterEvents", "GetSupportedEventTypes"},
	"field-values":       {"GetFieldValues"},
	"index":              {"GetIndex"},
	"memory":             {"GetMemoryInfo", "GetMemoryInfo_v2"},
	"mig-create":         {"CreateGpuInstance", "CreateGpuInstanceWithPlacement", "CreateComputeInstance", "CreateComputeInstanceWithPlacement"},
	"mig-destroy":        {"DestroyGpuInstance", "DestroyComputeInstance"},
	"mig-devices":        {"GetMaxMigDeviceCount", "GetMigDeviceHandleByIndex"},
	"mig-instances":      {"GetGpuInstances", "GetGpuInstanceById"},
	"mig-mode":           {"GetMigMode", "SetMigMode"},
	"mig-profiles":       {"GetGpuInstanceProfileInfo", "GetGpuInstancePossiblePlacements", "GetGpuInstanceRemainingCapacity"},
	"minor":              {"GetMinorNumber"},
	"name":               {"GetName"},
	"nvlink":             {"GetNvLinkState", "GetNvLinkRemotePciInfo", "GetNvLinkRemoteDeviceType", "GetNvLinkVersion"},
	"pci":                {"GetPciInfo", "GetPciInfoExt"},
	"power":              {"GetPowerUsage", "GetPowerManagementLimit", "GetEnforcedPowerLimit"},
	"processes":          {"GetComputeRunningProcesses", "GetGraphicsRunningProcesses", "GetMPSComputeRunningProcesses", "GetProcessUtilization"},
	"profiling":          {"GpmQueryDeviceSupport", "GpmSampleGet", "GpmMigSampleGet"},
	"serial":             {"GetSerial"},
	"temperature":        {"GetTemperature"},
	"utilization":        {"GetUtilizationRates", "GetEncoderUtilization", "GetDecoderUtilization"},
	"uuid":               {"GetUUID"},
}

// propertyOf is the property to which a call belongs.
var propertyOf = func() map[string]string {
	calls := map[string]string{}
	for property, names := range properties {
		for _, name := range names {
			calls[name] = property
		}
	}
	return calls
}()

// failureCodes are the codes a failing property can return, by the name that
// users write.
var failureCodes = map[string]nvml.Return{
	"gpu-is-lost":      nvml.ERROR_GPU_IS_LOST,
	"in-use":           nvml.ERROR_IN_USE,
	"invalid-argument": nvml.ERROR_INVALID_ARGUMENT,
	"no-data":          nvml.ERROR_NO_DATA,
	"no-permission":    nvml.ERROR_NO_PERMISSION,
	"not-found":        nvml.ERROR_NOT_FOUND,
	"not-ready":        nvml.ERROR_NOT_READY,
	"not-supported":    nvml.ERROR_NOT_SUPPORTED,
	"reset-required":   nvml.ERROR_RESET_REQUIRED,
	"timeout":          nvml.ERROR_TIMEOUT,
	"unknown":          nvml.ERROR_UNKNOWN,
}

// DefaultFailure is the code of a property that fails for no stated reason.
const DefaultFailure = "unknown"

// Properties are the properties that can be made to fail.
func Properties() []string { return slices.Sorted(maps.Keys(properties)) }

// FailureCodes are the codes that a failing property can return.
func FailureCodes() []string { return slices.Sorted(maps.Keys(failureCodes)) }

func checkProperty(name string) error {
	if _, ok := properties[name]; !ok {
		return inputErrorf("unknown property %q; known are: %s", name, strings.Join(Properties(), ", "))
	}
	return nil
}

func checkFailureCode(name string) error {
	if _, ok := failureCodes[name]; !ok {
		return inputErrorf("unknown code %q; known are: %s", name, strings.Join(FailureCodes(), ", "))
	}
	return nil
}

// failure is the code that a call returns on the GPU because of a fault.
func (g *gpu) failure(call string) nvml.Return {
	if g.Lost {
		return nvml.ERROR_GPU_IS_LOST
	}
	if name, failing := g.Failures[propertyOf[call]]; failing {
		if code, ok := failureCodes[name]; ok {
			return code
		}
		return nvml.ERROR_UNKNOWN
	}
	return nvml.SUCCESS
}
