// Code generated from NVML's header. DO NOT EDIT.

#include "library.h"

EXPORTED int nvmlInit_v2(void)
{
	union argument a[] = {{0}};
	return fakeNVML(0, a);
}

EXPORTED int nvmlInitWithFlags(unsigned int a0)
{
	union argument a[] = {{.number = a0}};
	return fakeNVML(1, a);
}

EXPORTED int nvmlShutdown(void)
{
	union argument a[] = {{0}};
	return fakeNVML(2, a);
}

EXPORTED int nvmlSystemGetDriverVersion(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(3, a);
}

EXPORTED int nvmlSystemGetNVMLVersion(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(4, a);
}

EXPORTED int nvmlSystemGetCudaDriverVersion(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(5, a);
}

EXPORTED int nvmlSystemGetCudaDriverVersion_v2(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(6, a);
}

EXPORTED int nvmlSystemGetProcessName(unsigned int a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(7, a);
}

EXPORTED int nvmlSystemGetHicVersion(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(8, a);
}

EXPORTED int nvmlSystemGetTopologyGpuSet(unsigned int a0, void *a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(9, a);
}

EXPORTED int nvmlSystemGetDriverBranch(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(10, a);
}

EXPORTED int nvmlSystemGetCPER_v1(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(11, a);
}

EXPORTED int nvmlUnitGetCount(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(12, a);
}

EXPORTED int nvmlUnitGetHandleByIndex(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(13, a);
}

EXPORTED int nvmlUnitGetUnitInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(14, a);
}

EXPORTED int nvmlUnitGetLedState(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(15, a);
}

EXPORTED int nvmlUnitGetPsuInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(16, a);
}

EXPORTED int nvmlUnitGetTemperature(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(17, a);
}

EXPORTED int nvmlUnitGetFanSpeedInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(18, a);
}

EXPORTED int nvmlUnitGetDevices(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(19, a);
}

EXPORTED int nvmlDeviceGetCount_v2(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(20, a);
}

EXPORTED int nvmlDeviceGetAttributes_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(21, a);
}

EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(22, a);
}

EXPORTED int nvmlDeviceGetHandleBySerial(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(23, a);
}

EXPORTED int nvmlDeviceGetHandleByUUID(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(24, a);
}

EXPORTED int nvmlDeviceGetHandleByUUIDV(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(25, a);
}

EXPORTED int nvmlDeviceGetHandleByPciBusId_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(26, a);
}

EXPORTED int nvmlDeviceGetName(void *a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(27, a);
}

EXPORTED int nvmlDeviceGetBrand(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(28, a);
}

EXPORTED int nvmlDeviceGetIndex(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(29, a);
}

EXPORTED int nvmlDeviceGetSerial(void *a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(30, a);
}

EXPORTED int nvmlDeviceGetModuleId(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(31, a);
}

EXPORTED int nvmlDeviceGetC2cModeInfoV(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(32, a);
}

EXPORTED int nvmlDeviceGetMemoryAffinity(void *a0, unsigned int a1, void *a2, unsigned int a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.number = a3}};
	return fakeNVML(33, a);
}

EXPORTED int nvmlDeviceGetCpuAffinityWithinScope(void *a0, unsigned int a1, void *a2, unsigned int a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.number = a3}};
	return fakeNVML(34, a);
}

EXPORTED int nvmlDeviceGetCpuAffinity(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(35, a);
}

EXPORTED int nvmlDeviceSetCpuAffinity(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(36, a);
}

EXPORTED int nvmlDeviceClearCpuAffinity(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(37, a);
}

EXPORTED int nvmlDeviceGetNumaNodeId(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(38, a);
}

EXPORTED int nvmlDeviceGetAddressingMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(39, a);
}

EXPORTED int nvmlDeviceGetRepairStatus(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(40, a);
}

EXPORTED int nvmlDeviceGetUnrepairableMemoryFlag_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(41, a);
}

EXPORTED int nvmlDeviceGetTopologyCommonAncestor(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(42, a);
}

EXPORTED int nvmlDeviceGetTopologyNearestGpus(void *a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(43, a);
}

EXPORTED int nvmlDeviceGetP2PStatus(void *a0, void *a1, unsigned int a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.number = a2}, {.pointer = a3}};
	return fakeNVML(44, a);
}

EXPORTED int nvmlDeviceGetUUID(void *a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(45, a);
}

EXPORTED int nvmlDeviceGetMinorNumber(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(46, a);
}

EXPORTED int nvmlDeviceGetBoardPartNumber(void *a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(47, a);
}

EXPORTED int nvmlDeviceGetInforomVersion(void *a0, unsigned int a1, void *a2, unsigned int a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.number = a3}};
	return fakeNVML(48, a);
}

EXPORTED int nvmlDeviceGetInforomImageVersion(void *a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(49, a);
}

EXPORTED int nvmlDeviceGetInforomConfigurationChecksum(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(50, a);
}

EXPORTED int nvmlDeviceValidateInforom(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(51, a);
}

EXPORTED int nvmlDeviceGetLastBBXFlushTime(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(52, a);
}

EXPORTED int nvmlDeviceGetBBXTimeData_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(53, a);
}

EXPORTED int nvmlDeviceGetDisplayMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(54, a);
}

EXPORTED int nvmlDeviceGetDisplayActive(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(55, a);
}

EXPORTED int nvmlDeviceGetPersistenceMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(56, a);
}

EXPORTED int nvmlDeviceGetPciInfoExt(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(57, a);
}

EXPORTED int nvmlDeviceGetPciInfo_v3(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(58, a);
}

EXPORTED int nvmlDeviceGetMaxPcieLinkGeneration(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(59, a);
}

EXPORTED int nvmlDeviceGetGpuMaxPcieLinkGeneration(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(60, a);
}

EXPORTED int nvmlDeviceGetMaxPcieLinkWidth(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(61, a);
}

EXPORTED int nvmlDeviceGetCurrPcieLinkGeneration(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(62, a);
}

EXPORTED int nvmlDeviceGetCurrPcieLinkWidth(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(63, a);
}

EXPORTED int nvmlDeviceGetPcieThroughput(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(64, a);
}

EXPORTED int nvmlDeviceGetPcieReplayCounter(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(65, a);
}

EXPORTED int nvmlDeviceGetClockInfo(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(66, a);
}

EXPORTED int nvmlDeviceGetMaxClockInfo(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(67, a);
}

EXPORTED int nvmlDeviceGetGpcClkVfOffset(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(68, a);
}

EXPORTED int nvmlDeviceGetApplicationsClock(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(69, a);
}

EXPORTED int nvmlDeviceGetDefaultApplicationsClock(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(70, a);
}

EXPORTED int nvmlDeviceGetClock(void *a0, unsigned int a1, unsigned int a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}};
	return fakeNVML(71, a);
}

EXPORTED int nvmlDeviceGetMaxCustomerBoostClock(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(72, a);
}

EXPORTED int nvmlDeviceGetSupportedMemoryClocks(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(73, a);
}

EXPORTED int nvmlDeviceGetSupportedGraphicsClocks(void *a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(74, a);
}

EXPORTED int nvmlDeviceGetAutoBoostedClocksEnabled(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(75, a);
}

EXPORTED int nvmlDeviceGetFanSpeed(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(76, a);
}

EXPORTED int nvmlDeviceGetFanSpeed_v2(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(77, a);
}

EXPORTED int nvmlDeviceGetFanSpeedRPM(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(78, a);
}

EXPORTED int nvmlDeviceGetTargetFanSpeed(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(79, a);
}

EXPORTED int nvmlDeviceGetMinMaxFanSpeed(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(80, a);
}

EXPORTED int nvmlDeviceGetFanControlPolicy_v2(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(81, a);
}

EXPORTED int nvmlDeviceGetNumFans(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(82, a);
}

EXPORTED int nvmlDeviceGetTemperature(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(83, a);
}

EXPORTED int nvmlDeviceGetCoolerInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(84, a);
}

EXPORTED int nvmlDeviceGetTemperatureV(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(85, a);
}

EXPORTED int nvmlDeviceGetTemperatureThreshold(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(86, a);
}

EXPORTED int nvmlDeviceGetMarginTemperature(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(87, a);
}

EXPORTED int nvmlDeviceGetThermalSettings(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(88, a);
}

EXPORTED int nvmlDeviceGetPerformanceState(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(89, a);
}

EXPORTED int nvmlDeviceGetCurrentClocksEventReasons(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(90, a);
}

EXPORTED int nvmlDeviceGetCurrentClocksThrottleReasons(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(91, a);
}

EXPORTED int nvmlDeviceGetSupportedClocksEventReasons(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(92, a);
}

EXPORTED int nvmlDeviceGetSupportedClocksThrottleReasons(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(93, a);
}

EXPORTED int nvmlDeviceGetPowerState(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(94, a);
}

EXPORTED int nvmlDeviceGetDynamicPstatesInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(95, a);
}

EXPORTED int nvmlDeviceGetMemClkVfOffset(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(96, a);
}

EXPORTED int nvmlDeviceGetMinMaxClockOfPState(void *a0, unsigned int a1, unsigned int a2, void *a3, void *a4)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}, {.pointer = a4}};
	return fakeNVML(97, a);
}

EXPORTED int nvmlDeviceGetSupportedPerformanceStates(void *a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(98, a);
}

EXPORTED int nvmlDeviceGetGpcClkMinMaxVfOffset(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(99, a);
}

EXPORTED int nvmlDeviceGetMemClkMinMaxVfOffset(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(100, a);
}

EXPORTED int nvmlDeviceGetClockOffsets(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(101, a);
}

EXPORTED int nvmlDeviceSetClockOffsets(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(102, a);
}

EXPORTED int nvmlDeviceGetPerformanceModes(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(103, a);
}

EXPORTED int nvmlDeviceGetCurrentClockFreqs(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(104, a);
}

EXPORTED int nvmlDeviceGetPowerManagementMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(105, a);
}

EXPORTED int nvmlDeviceGetPowerManagementLimit(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(106, a);
}

EXPORTED int nvmlDeviceGetPowerManagementLimitConstraints(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(107, a);
}

EXPORTED int nvmlDeviceGetPowerManagementDefaultLimit(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(108, a);
}

EXPORTED int nvmlDeviceGetPowerUsage(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(109, a);
}

EXPORTED int nvmlDeviceGetPowerMizerMode_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(110, a);
}

EXPORTED int nvmlDeviceSetPowerMizerMode_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(111, a);
}

EXPORTED int nvmlDeviceGetTotalEnergyConsumption(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(112, a);
}

EXPORTED int nvmlDeviceGetEnforcedPowerLimit(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(113, a);
}

EXPORTED int nvmlDeviceSetAdaptiveTgpMode_v1(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(114, a);
}

EXPORTED int nvmlDeviceGetAdaptiveTgpModeInfo_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(115, a);
}

EXPORTED int nvmlDeviceGetGpuOperationMode(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(116, a);
}

EXPORTED int nvmlDeviceGetMemoryInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(117, a);
}

EXPORTED int nvmlDeviceGetMemoryInfo_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(118, a);
}

EXPORTED int nvmlDeviceSetMemoryLimits_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(119, a);
}

EXPORTED int nvmlDeviceGetMemoryLimits_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(120, a);
}

EXPORTED int nvmlDeviceGetComputeMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(121, a);
}

EXPORTED int nvmlDeviceGetCudaComputeCapability(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(122, a);
}

EXPORTED int nvmlDeviceGetDramEncryptionMode(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(123, a);
}

EXPORTED int nvmlDeviceSetDramEncryptionMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(124, a);
}

EXPORTED int nvmlDeviceGetEccMode(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(125, a);
}

EXPORTED int nvmlDeviceGetDefaultEccMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(126, a);
}

EXPORTED int nvmlDeviceGetBoardId(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(127, a);
}

EXPORTED int nvmlDeviceGetMultiGpuBoard(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(128, a);
}

EXPORTED int nvmlDeviceGetTotalEccErrors(void *a0, unsigned int a1, unsigned int a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}};
	return fakeNVML(129, a);
}

EXPORTED int nvmlDeviceGetDetailedEccErrors(void *a0, unsigned int a1, unsigned int a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}};
	return fakeNVML(130, a);
}

EXPORTED int nvmlDeviceGetMemoryErrorCounter(void *a0, unsigned int a1, unsigned int a2, unsigned int a3, void *a4)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.number = a3}, {.pointer = a4}};
	return fakeNVML(131, a);
}

EXPORTED int nvmlDeviceGetUtilizationRates(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(132, a);
}

EXPORTED int nvmlDeviceGetEncoderUtilization(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(133, a);
}

EXPORTED int nvmlDeviceGetEncoderCapacity(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(134, a);
}

EXPORTED int nvmlDeviceGetEncoderStats(void *a0, void *a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(135, a);
}

EXPORTED int nvmlDeviceGetEncoderSessions(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(136, a);
}

EXPORTED int nvmlDeviceGetDecoderUtilization(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(137, a);
}

EXPORTED int nvmlDeviceGetJpgUtilization(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(138, a);
}

EXPORTED int nvmlDeviceGetOfaUtilization(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(139, a);
}

EXPORTED int nvmlDeviceGetFBCStats(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(140, a);
}

EXPORTED int nvmlDeviceGetFBCSessions(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(141, a);
}

EXPORTED int nvmlDeviceGetDriverModel_v2(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(142, a);
}

EXPORTED int nvmlDeviceGetVbiosVersion(void *a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(143, a);
}

EXPORTED int nvmlDeviceGetBridgeChipInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(144, a);
}

EXPORTED int nvmlDeviceGetComputeRunningProcesses_v3(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(145, a);
}

EXPORTED int nvmlDeviceGetGraphicsRunningProcesses_v3(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(146, a);
}

EXPORTED int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(147, a);
}

EXPORTED int nvmlDeviceGetRunningProcessDetailList(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(148, a);
}

EXPORTED int nvmlDeviceOnSameBoard(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(149, a);
}

EXPORTED int nvmlDeviceGetAPIRestriction(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(150, a);
}

EXPORTED int nvmlDeviceGetSamples(void *a0, unsigned int a1, unsigned long long a2, void *a3, void *a4, void *a5)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}, {.pointer = a4}, {.pointer = a5}};
	return fakeNVML(151, a);
}

EXPORTED int nvmlDeviceGetBAR1MemoryInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(152, a);
}

EXPORTED int nvmlDeviceGetViolationStatus(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(153, a);
}

EXPORTED int nvmlDeviceGetIrqNum(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(154, a);
}

EXPORTED int nvmlDeviceGetNumGpuCores(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(155, a);
}

EXPORTED int nvmlDeviceGetPowerSource(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(156, a);
}

EXPORTED int nvmlDeviceGetMemoryBusWidth(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(157, a);
}

EXPORTED int nvmlDeviceGetPcieLinkMaxSpeed(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(158, a);
}

EXPORTED int nvmlDeviceGetPcieSpeed(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(159, a);
}

EXPORTED int nvmlDeviceGetAdaptiveClockInfoStatus(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(160, a);
}

EXPORTED int nvmlDeviceGetBusType(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(161, a);
}

EXPORTED int nvmlDeviceGetGpuFabricInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(162, a);
}

EXPORTED int nvmlDeviceGetGpuFabricInfoV(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(163, a);
}

EXPORTED int nvmlDeviceGetGpuFabricInfo_v4(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(164, a);
}

EXPORTED int nvmlSystemGetConfComputeCapabilities(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(165, a);
}

EXPORTED int nvmlSystemGetConfComputeState(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(166, a);
}

EXPORTED int nvmlDeviceGetConfComputeMemSizeInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(167, a);
}

EXPORTED int nvmlSystemGetConfComputeGpusReadyState(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(168, a);
}

EXPORTED int nvmlDeviceGetConfComputeProtectedMemoryUsage(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(169, a);
}

EXPORTED int nvmlDeviceGetConfComputeGpuCertificate(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(170, a);
}

EXPORTED int nvmlDeviceGetConfComputeGpuAttestationReport(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(171, a);
}

EXPORTED int nvmlSystemGetConfComputeKeyRotationThresholdInfo(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(172, a);
}

EXPORTED int nvmlDeviceSetConfComputeUnprotectedMemSize(void *a0, unsigned long long a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(173, a);
}

EXPORTED int nvmlSystemSetConfComputeGpusReadyState(unsigned int a0)
{
	union argument a[] = {{.number = a0}};
	return fakeNVML(174, a);
}

EXPORTED int nvmlSystemSetConfComputeKeyRotationThresholdInfo(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(175, a);
}

EXPORTED int nvmlSystemGetConfComputeSettings(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(176, a);
}

EXPORTED int nvmlDeviceGetGspFirmwareVersion(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(177, a);
}

EXPORTED int nvmlDeviceGetGspFirmwareMode(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(178, a);
}

EXPORTED int nvmlDeviceGetSramEccErrorStatus(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(179, a);
}

EXPORTED int nvmlDeviceSetPowerManagementLimit_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(180, a);
}

EXPORTED int nvmlDeviceGetAccountingMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(181, a);
}

EXPORTED int nvmlDeviceGetAccountingStats(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(182, a);
}

EXPORTED int nvmlDeviceGetAccountingPids(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(183, a);
}

EXPORTED int nvmlDeviceGetAccountingBufferSize(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(184, a);
}

EXPORTED int nvmlDeviceGetAccountingStats_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(185, a);
}

EXPORTED int nvmlDeviceGetRetiredPages(void *a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(186, a);
}

EXPORTED int nvmlDeviceGetRetiredPages_v2(void *a0, unsigned int a1, void *a2, void *a3, void *a4)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}, {.pointer = a4}};
	return fakeNVML(187, a);
}

EXPORTED int nvmlDeviceGetRetiredPagesPendingStatus(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(188, a);
}

EXPORTED int nvmlDeviceGetRemappedRows(void *a0, void *a1, void *a2, void *a3, void *a4)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}, {.pointer = a3}, {.pointer = a4}};
	return fakeNVML(189, a);
}

EXPORTED int nvmlDeviceGetRowRemapperHistogram(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(190, a);
}

EXPORTED int nvmlDeviceGetArchitecture(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(191, a);
}

EXPORTED int nvmlDeviceGetClkMonStatus(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(192, a);
}

EXPORTED int nvmlDeviceGetProcessUtilization(void *a0, void *a1, void *a2, unsigned long long a3)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}, {.number = a3}};
	return fakeNVML(193, a);
}

EXPORTED int nvmlDeviceGetProcessesUtilizationInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(194, a);
}

EXPORTED int nvmlDeviceGetPlatformInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(195, a);
}

EXPORTED int nvmlDeviceGetPdi(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(196, a);
}

EXPORTED int nvmlDeviceSetHostname_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(197, a);
}

EXPORTED int nvmlDeviceGetHostname_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(198, a);
}

EXPORTED int nvmlDevicePerfMetricsGetSamples_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(199, a);
}

EXPORTED int nvmlUnitSetLedState(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(200, a);
}

EXPORTED int nvmlDeviceSetPersistenceMode(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(201, a);
}

EXPORTED int nvmlDeviceSetComputeMode(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(202, a);
}

EXPORTED int nvmlDeviceSetEccMode(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(203, a);
}

EXPORTED int nvmlDeviceClearEccErrorCounts(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(204, a);
}

EXPORTED int nvmlDeviceSetDriverModel(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(205, a);
}

EXPORTED int nvmlDeviceSetGpuLockedClocks(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(206, a);
}

EXPORTED int nvmlDeviceResetGpuLockedClocks(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(207, a);
}

EXPORTED int nvmlDeviceSetMemoryLockedClocks(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(208, a);
}

EXPORTED int nvmlDeviceResetMemoryLockedClocks(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(209, a);
}

EXPORTED int nvmlDeviceSetApplicationsClocks(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(210, a);
}

EXPORTED int nvmlDeviceResetApplicationsClocks(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(211, a);
}

EXPORTED int nvmlDeviceSetAutoBoostedClocksEnabled(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(212, a);
}

EXPORTED int nvmlDeviceSetDefaultAutoBoostedClocksEnabled(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(213, a);
}

EXPORTED int nvmlDeviceSetDefaultFanSpeed_v2(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(214, a);
}

EXPORTED int nvmlDeviceSetFanControlPolicy(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(215, a);
}

EXPORTED int nvmlDeviceSetTemperatureThreshold(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(216, a);
}

EXPORTED int nvmlDeviceSetPowerManagementLimit(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(217, a);
}

EXPORTED int nvmlDeviceSetGpuOperationMode(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(218, a);
}

EXPORTED int nvmlDeviceSetAPIRestriction(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(219, a);
}

EXPORTED int nvmlDeviceSetFanSpeed_v2(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(220, a);
}

EXPORTED int nvmlDeviceSetGpcClkVfOffset(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(221, a);
}

EXPORTED int nvmlDeviceSetMemClkVfOffset(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(222, a);
}

EXPORTED int nvmlDeviceSetAccountingMode(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(223, a);
}

EXPORTED int nvmlDeviceClearAccountingPids(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(224, a);
}

EXPORTED int nvmlDeviceGetNvLinkState(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(225, a);
}

EXPORTED int nvmlDeviceGetNvLinkVersion(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(226, a);
}

EXPORTED int nvmlDeviceGetNvLinkCapability(void *a0, unsigned int a1, unsigned int a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}};
	return fakeNVML(227, a);
}

EXPORTED int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(228, a);
}

EXPORTED int nvmlDeviceGetNvLinkErrorCounter(void *a0, unsigned int a1, unsigned int a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}};
	return fakeNVML(229, a);
}

EXPORTED int nvmlDeviceResetNvLinkErrorCounters(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(230, a);
}

EXPORTED int nvmlDeviceSetNvLinkUtilizationControl(void *a0, unsigned int a1, unsigned int a2, void *a3, unsigned int a4)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}, {.number = a4}};
	return fakeNVML(231, a);
}

EXPORTED int nvmlDeviceGetNvLinkUtilizationControl(void *a0, unsigned int a1, unsigned int a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}};
	return fakeNVML(232, a);
}

EXPORTED int nvmlDeviceGetNvLinkUtilizationCounter(void *a0, unsigned int a1, unsigned int a2, void *a3, void *a4)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}, {.pointer = a4}};
	return fakeNVML(233, a);
}

EXPORTED int nvmlDeviceFreezeNvLinkUtilizationCounter(void *a0, unsigned int a1, unsigned int a2, unsigned int a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.number = a3}};
	return fakeNVML(234, a);
}

EXPORTED int nvmlDeviceResetNvLinkUtilizationCounter(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(235, a);
}

EXPORTED int nvmlDeviceGetNvLinkRemoteDeviceType(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(236, a);
}

EXPORTED int nvmlDeviceSetNvLinkDeviceLowPowerThreshold(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(237, a);
}

EXPORTED int nvmlSystemSetNvlinkBwMode(unsigned int a0)
{
	union argument a[] = {{.number = a0}};
	return fakeNVML(238, a);
}

EXPORTED int nvmlSystemGetNvlinkBwMode(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(239, a);
}

EXPORTED int nvmlDeviceGetNvlinkSupportedBwModes(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(240, a);
}

EXPORTED int nvmlDeviceGetNvlinkBwMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(241, a);
}

EXPORTED int nvmlDeviceSetNvlinkBwMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(242, a);
}

EXPORTED int nvmlDeviceSetNvlinkBwModeAsync_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(243, a);
}

EXPORTED int nvmlDeviceGetNvLinkInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(244, a);
}

EXPORTED int nvmlDeviceGetNvLinkTelemetrySamples_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(245, a);
}

EXPORTED int nvmlEventSetCreate(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(246, a);
}

EXPORTED int nvmlDeviceRegisterEvents(void *a0, unsigned long long a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(247, a);
}

EXPORTED int nvmlDeviceGetSupportedEventTypes(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(248, a);
}

EXPORTED int nvmlEventSetWait_v2(void *a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(249, a);
}

EXPORTED int nvmlEventSetRegisterGpuOperationalEvents_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(250, a);
}

EXPORTED int nvmlEventSetWait_v3(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(251, a);
}

EXPORTED int nvmlEventSetGetContextCount_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(252, a);
}

EXPORTED int nvmlEventSetGetContextInfo_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(253, a);
}

EXPORTED int nvmlEventSetGetContextData_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(254, a);
}

EXPORTED int nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(255, a);
}

EXPORTED int nvmlEventSetFree(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(256, a);
}

EXPORTED int nvmlSystemEventSetCreate(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(257, a);
}

EXPORTED int nvmlSystemEventSetFree(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(258, a);
}

EXPORTED int nvmlSystemRegisterEvents(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(259, a);
}

EXPORTED int nvmlSystemEventSetWait(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(260, a);
}

EXPORTED int nvmlDeviceModifyDrainState(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(261, a);
}

EXPORTED int nvmlDeviceQueryDrainState(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(262, a);
}

EXPORTED int nvmlDeviceRemoveGpu_v2(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(263, a);
}

EXPORTED int nvmlDeviceDiscoverGpus(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(264, a);
}

EXPORTED int nvmlDeviceGetFieldValues(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(265, a);
}

EXPORTED int nvmlDeviceClearFieldValues(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(266, a);
}

EXPORTED int nvmlDeviceGetVirtualizationMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(267, a);
}

EXPORTED int nvmlDeviceGetHostVgpuMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(268, a);
}

EXPORTED int nvmlDeviceSetVirtualizationMode(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(269, a);
}

EXPORTED int nvmlDeviceGetVgpuHeterogeneousMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(270, a);
}

EXPORTED int nvmlDeviceSetVgpuHeterogeneousMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(271, a);
}

EXPORTED int nvmlVgpuInstanceGetPlacementId(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(272, a);
}

EXPORTED int nvmlDeviceGetVgpuTypeSupportedPlacements(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(273, a);
}

EXPORTED int nvmlDeviceGetVgpuTypeCreatablePlacements(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(274, a);
}

EXPORTED int nvmlVgpuTypeGetGspHeapSize(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(275, a);
}

EXPORTED int nvmlVgpuTypeGetFbReservation(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(276, a);
}

EXPORTED int nvmlVgpuInstanceGetRuntimeStateSize(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(277, a);
}

EXPORTED int nvmlDeviceSetVgpuCapabilities(void *a0, unsigned int a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}};
	return fakeNVML(278, a);
}

EXPORTED int nvmlDeviceVgpuForceGspUnload(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(279, a);
}

EXPORTED int nvmlDeviceGetGridLicensableFeatures_v4(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(280, a);
}

EXPORTED int nvmlGetVgpuDriverCapabilities(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(281, a);
}

EXPORTED int nvmlDeviceGetVgpuCapabilities(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(282, a);
}

EXPORTED int nvmlDeviceGetSupportedVgpus(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(283, a);
}

EXPORTED int nvmlDeviceGetCreatableVgpus(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(284, a);
}

EXPORTED int nvmlVgpuTypeGetClass(unsigned int a0, void *a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(285, a);
}

EXPORTED int nvmlVgpuTypeGetName(unsigned int a0, void *a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(286, a);
}

EXPORTED int nvmlVgpuTypeGetGpuInstanceProfileId(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(287, a);
}

EXPORTED int nvmlVgpuTypeGetDeviceID(unsigned int a0, void *a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(288, a);
}

EXPORTED int nvmlVgpuTypeGetFramebufferSize(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(289, a);
}

EXPORTED int nvmlVgpuTypeGetNumDisplayHeads(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(290, a);
}

EXPORTED int nvmlVgpuTypeGetResolution(unsigned int a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.number = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(291, a);
}

EXPORTED int nvmlVgpuTypeGetLicense(unsigned int a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(292, a);
}

EXPORTED int nvmlVgpuTypeGetFrameRateLimit(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(293, a);
}

EXPORTED int nvmlVgpuTypeGetMaxInstances(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(294, a);
}

EXPORTED int nvmlVgpuTypeGetMaxInstancesPerVm(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(295, a);
}

EXPORTED int nvmlVgpuTypeGetBAR1Info(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(296, a);
}

EXPORTED int nvmlDeviceGetActiveVgpus(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(297, a);
}

EXPORTED int nvmlVgpuInstanceGetVmID(unsigned int a0, void *a1, unsigned int a2, void *a3)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.number = a2}, {.pointer = a3}};
	return fakeNVML(298, a);
}

EXPORTED int nvmlVgpuInstanceGetUUID(unsigned int a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(299, a);
}

EXPORTED int nvmlVgpuInstanceGetVmDriverVersion(unsigned int a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(300, a);
}

EXPORTED int nvmlVgpuInstanceGetFbUsage(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(301, a);
}

EXPORTED int nvmlVgpuInstanceGetLicenseStatus(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(302, a);
}

EXPORTED int nvmlVgpuInstanceGetType(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(303, a);
}

EXPORTED int nvmlVgpuInstanceGetFrameRateLimit(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(304, a);
}

EXPORTED int nvmlVgpuInstanceGetEccMode(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(305, a);
}

EXPORTED int nvmlVgpuInstanceGetEncoderCapacity(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(306, a);
}

EXPORTED int nvmlVgpuInstanceSetEncoderCapacity(unsigned int a0, unsigned int a1)
{
	union argument a[] = {{.number = a0}, {.number = a1}};
	return fakeNVML(307, a);
}

EXPORTED int nvmlVgpuInstanceGetEncoderStats(unsigned int a0, void *a1, void *a2, void *a3)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(308, a);
}

EXPORTED int nvmlVgpuInstanceGetEncoderSessions(unsigned int a0, void *a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(309, a);
}

EXPORTED int nvmlVgpuInstanceGetFBCStats(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(310, a);
}

EXPORTED int nvmlVgpuInstanceGetFBCSessions(unsigned int a0, void *a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(311, a);
}

EXPORTED int nvmlVgpuInstanceGetGpuInstanceId(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(312, a);
}

EXPORTED int nvmlVgpuInstanceGetGpuPciId(unsigned int a0, void *a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(313, a);
}

EXPORTED int nvmlVgpuTypeGetCapabilities(unsigned int a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(314, a);
}

EXPORTED int nvmlVgpuInstanceGetMdevUUID(unsigned int a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(315, a);
}

EXPORTED int nvmlGpuInstanceGetCreatableVgpus(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(316, a);
}

EXPORTED int nvmlVgpuTypeGetMaxInstancesPerGpuInstance(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(317, a);
}

EXPORTED int nvmlGpuInstanceGetActiveVgpus(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(318, a);
}

EXPORTED int nvmlGpuInstanceSetVgpuSchedulerState(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(319, a);
}

EXPORTED int nvmlGpuInstanceGetVgpuSchedulerState(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(320, a);
}

EXPORTED int nvmlGpuInstanceGetVgpuSchedulerLog(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(321, a);
}

EXPORTED int nvmlGpuInstanceGetVgpuTypeCreatablePlacements(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(322, a);
}

EXPORTED int nvmlGpuInstanceGetVgpuHeterogeneousMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(323, a);
}

EXPORTED int nvmlGpuInstanceSetVgpuHeterogeneousMode(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(324, a);
}

EXPORTED int nvmlDeviceGetVgpuSchedulerState_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(325, a);
}

EXPORTED int nvmlGpuInstanceGetVgpuSchedulerState_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(326, a);
}

EXPORTED int nvmlDeviceGetVgpuSchedulerLog_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(327, a);
}

EXPORTED int nvmlGpuInstanceGetVgpuSchedulerLog_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(328, a);
}

EXPORTED int nvmlDeviceSetVgpuSchedulerState_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(329, a);
}

EXPORTED int nvmlGpuInstanceSetVgpuSchedulerState_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(330, a);
}

EXPORTED int nvmlVgpuInstanceGetMetadata(unsigned int a0, void *a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(331, a);
}

EXPORTED int nvmlDeviceGetVgpuMetadata(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(332, a);
}

EXPORTED int nvmlGetVgpuCompatibility(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(333, a);
}

EXPORTED int nvmlDeviceGetPgpuMetadataString(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(334, a);
}

EXPORTED int nvmlDeviceGetVgpuSchedulerLog(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(335, a);
}

EXPORTED int nvmlDeviceGetVgpuSchedulerState(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(336, a);
}

EXPORTED int nvmlDeviceSetVgpuSchedulerState(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(337, a);
}

EXPORTED int nvmlDeviceGetVgpuSchedulerCapabilities(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(338, a);
}

EXPORTED int nvmlGetVgpuVersion(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(339, a);
}

EXPORTED int nvmlSetVgpuVersion(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(340, a);
}

EXPORTED int nvmlDeviceGetVgpuUtilization(void *a0, unsigned long long a1, void *a2, void *a3, void *a4)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}, {.pointer = a4}};
	return fakeNVML(341, a);
}

EXPORTED int nvmlDeviceGetVgpuInstancesUtilizationInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(342, a);
}

EXPORTED int nvmlDeviceGetVgpuProcessUtilization(void *a0, unsigned long long a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(343, a);
}

EXPORTED int nvmlDeviceGetVgpuProcessesUtilizationInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(344, a);
}

EXPORTED int nvmlVgpuInstanceGetAccountingMode(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(345, a);
}

EXPORTED int nvmlVgpuInstanceGetAccountingPids(unsigned int a0, void *a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(346, a);
}

EXPORTED int nvmlVgpuInstanceGetAccountingStats(unsigned int a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.number = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(347, a);
}

EXPORTED int nvmlVgpuInstanceClearAccountingPids(unsigned int a0)
{
	union argument a[] = {{.number = a0}};
	return fakeNVML(348, a);
}

EXPORTED int nvmlVgpuInstanceGetLicenseInfo_v2(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(349, a);
}

EXPORTED int nvmlGetExcludedDeviceCount(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(350, a);
}

EXPORTED int nvmlGetExcludedDeviceInfoByIndex(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(351, a);
}

EXPORTED int nvmlDeviceReadWritePRM_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(352, a);
}

EXPORTED int nvmlDeviceReadPRMCounters_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(353, a);
}

EXPORTED int nvmlDeviceSetMigMode(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(354, a);
}

EXPORTED int nvmlDeviceGetMigMode(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(355, a);
}

EXPORTED int nvmlDeviceGetGpuInstanceProfileInfo(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(356, a);
}

EXPORTED int nvmlDeviceGetGpuInstanceProfileInfoV(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(357, a);
}

EXPORTED int nvmlDeviceGetGpuInstanceProfileInfoByIdV(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(358, a);
}

EXPORTED int nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(359, a);
}

EXPORTED int nvmlDeviceGetGpuInstanceRemainingCapacity(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(360, a);
}

EXPORTED int nvmlDeviceCreateGpuInstance(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(361, a);
}

EXPORTED int nvmlDeviceCreateGpuInstanceWithPlacement(void *a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(362, a);
}

EXPORTED int nvmlGpuInstanceDestroy(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(363, a);
}

EXPORTED int nvmlDeviceGetGpuInstances(void *a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(364, a);
}

EXPORTED int nvmlDeviceGetGpuInstanceById(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(365, a);
}

EXPORTED int nvmlGpuInstanceGetInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(366, a);
}

EXPORTED int nvmlGpuInstanceGetComputeInstanceProfileInfo(void *a0, unsigned int a1, unsigned int a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}};
	return fakeNVML(367, a);
}

EXPORTED int nvmlGpuInstanceGetComputeInstanceProfileInfoV(void *a0, unsigned int a1, unsigned int a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.number = a2}, {.pointer = a3}};
	return fakeNVML(368, a);
}

EXPORTED int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(369, a);
}

EXPORTED int nvmlGpuInstanceGetComputeInstancePossiblePlacements(void *a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(370, a);
}

EXPORTED int nvmlGpuInstanceCreateComputeInstance(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(371, a);
}

EXPORTED int nvmlGpuInstanceCreateComputeInstanceWithPlacement(void *a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(372, a);
}

EXPORTED int nvmlComputeInstanceDestroy(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(373, a);
}

EXPORTED int nvmlGpuInstanceGetComputeInstances(void *a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(374, a);
}

EXPORTED int nvmlGpuInstanceGetComputeInstanceById(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(375, a);
}

EXPORTED int nvmlComputeInstanceGetInfo_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(376, a);
}

EXPORTED int nvmlDeviceIsMigDeviceHandle(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(377, a);
}

EXPORTED int nvmlDeviceGetGpuInstanceId(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(378, a);
}

EXPORTED int nvmlDeviceGetComputeInstanceId(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(379, a);
}

EXPORTED int nvmlDeviceGetMaxMigDeviceCount(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(380, a);
}

EXPORTED int nvmlDeviceGetMigDeviceHandleByIndex(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(381, a);
}

EXPORTED int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(382, a);
}

EXPORTED int nvmlGpmMetricsGet(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(383, a);
}

EXPORTED int nvmlGpmSampleFree(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(384, a);
}

EXPORTED int nvmlGpmSampleAlloc(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(385, a);
}

EXPORTED int nvmlGpmSampleGet(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(386, a);
}

EXPORTED int nvmlGpmMigSampleGet(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(387, a);
}

EXPORTED int nvmlGpmQueryDeviceSupport(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(388, a);
}

EXPORTED int nvmlGpmQueryIfStreamingEnabled(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(389, a);
}

EXPORTED int nvmlGpmSetStreamingEnabled(void *a0, unsigned int a1)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}};
	return fakeNVML(390, a);
}

EXPORTED int nvmlDeviceGetCapabilities(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(391, a);
}

EXPORTED int nvmlDeviceWorkloadPowerProfileGetProfilesInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(392, a);
}

EXPORTED int nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(393, a);
}

EXPORTED int nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(394, a);
}

EXPORTED int nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(395, a);
}

EXPORTED int nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(396, a);
}

EXPORTED int nvmlDevicePowerSmoothingActivatePresetProfile(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(397, a);
}

EXPORTED int nvmlDevicePowerSmoothingUpdatePresetProfileParam(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(398, a);
}

EXPORTED int nvmlDevicePowerSmoothingSetState(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(399, a);
}

EXPORTED int nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(400, a);
}

EXPORTED int nvmlDeviceGetRemappedRows_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(401, a);
}

EXPORTED int nvmlDeviceSetRusdSettings_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(402, a);
}

EXPORTED int nvmlDeviceGetBankRemapperStatus_v1(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(403, a);
}

EXPORTED int nvmlInit(void)
{
	union argument a[] = {{0}};
	return fakeNVML(404, a);
}

EXPORTED int nvmlDeviceGetCount(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(405, a);
}

EXPORTED int nvmlDeviceGetHandleByIndex(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(406, a);
}

EXPORTED int nvmlDeviceGetHandleByPciBusId(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(407, a);
}

EXPORTED int nvmlDeviceGetPciInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(408, a);
}

EXPORTED int nvmlDeviceGetPciInfo_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(409, a);
}

EXPORTED int nvmlDeviceGetNvLinkRemotePciInfo(void *a0, unsigned int a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}};
	return fakeNVML(410, a);
}

EXPORTED int nvmlDeviceGetGridLicensableFeatures(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(411, a);
}

EXPORTED int nvmlDeviceGetGridLicensableFeatures_v2(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(412, a);
}

EXPORTED int nvmlDeviceGetGridLicensableFeatures_v3(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(413, a);
}

EXPORTED int nvmlDeviceRemoveGpu(void *a0)
{
	union argument a[] = {{.pointer = a0}};
	return fakeNVML(414, a);
}

EXPORTED int nvmlEventSetWait(void *a0, void *a1, unsigned int a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.number = a2}};
	return fakeNVML(415, a);
}

EXPORTED int nvmlDeviceGetAttributes(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(416, a);
}

EXPORTED int nvmlComputeInstanceGetInfo(void *a0, void *a1)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}};
	return fakeNVML(417, a);
}

EXPORTED int nvmlDeviceGetComputeRunningProcesses(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(418, a);
}

EXPORTED int nvmlDeviceGetComputeRunningProcesses_v2(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(419, a);
}

EXPORTED int nvmlDeviceGetGraphicsRunningProcesses(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(420, a);
}

EXPORTED int nvmlDeviceGetGraphicsRunningProcesses_v2(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(421, a);
}

EXPORTED int nvmlDeviceGetMPSComputeRunningProcesses(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(422, a);
}

EXPORTED int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(423, a);
}

EXPORTED int nvmlDeviceGetGpuInstancePossiblePlacements(void *a0, unsigned int a1, void *a2, void *a3)
{
	union argument a[] = {{.pointer = a0}, {.number = a1}, {.pointer = a2}, {.pointer = a3}};
	return fakeNVML(424, a);
}

EXPORTED int nvmlVgpuInstanceGetLicenseInfo(unsigned int a0, void *a1)
{
	union argument a[] = {{.number = a0}, {.pointer = a1}};
	return fakeNVML(425, a);
}

EXPORTED int nvmlDeviceGetDriverModel(void *a0, void *a1, void *a2)
{
	union argument a[] = {{.pointer = a0}, {.pointer = a1}, {.pointer = a2}};
	return fakeNVML(426, a);
}
