/* A libnvidia-ml for measuring memory: 8 H100 that never change. What is not here
 * answers NVML_ERROR_NOT_SUPPORTED; those functions are generated from the header. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

#define GPUS 8

static char gpus[GPUS]; /* A handle is the address of its GPU's byte. */

static int number(nvmlDevice_t device) { return (int)((char *)device.handle - gpus); }

static nvmlReturn_t text(char *to, unsigned int length, const char *from) {
  if (strlen(from) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(to, from);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) { return NVML_SUCCESS; }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { return NVML_SUCCESS; }
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t result) { return result ? "error" : "success"; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *v, unsigned int n) { return text(v, n, "580.95.05"); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *v, unsigned int n) { return text(v, n, "13.580.95.05"); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *v) { *v = 13000; return NVML_SUCCESS; }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n) { *n = GPUS; return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
  if (index >= GPUS) return NVML_ERROR_INVALID_ARGUMENT;
  device->handle = (struct nvmlDevice_st *)&gpus[index];
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
  char buffer[80];
  snprintf(buffer, sizeof buffer, "GPU-%08x-0000-4000-8000-000000000000", 0x10000001 * (number(device) + 1));
  return text(uuid, length, buffer);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  for (int i = 0; i < GPUS; i++) {
    char own[80];
    nvmlDeviceGetHandleByIndex_v2(i, device);
    nvmlDeviceGetUUID(*device, own, sizeof own);
    if (strcmp(own, uuid) == 0) return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) { *index = number(device); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) { *minor = number(device); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int n) { return text(name, n, "NVIDIA H100 80GB HBM3"); }
nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand) { *brand = NVML_BRAND_NVIDIA; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *a) { *a = NVML_DEVICE_ARCH_HOPPER; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) { *major = 9; *minor = 0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) { *is = 0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *n) { *n = 7; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *next) { *now = *next = NVML_DEVICE_MIG_ENABLE; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t s, unsigned int *t) { *t = 40; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *mw) { *mw = 120000; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) { *mhz = 1980; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *u) { u->gpu = 50; u->memory = 20; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) { *types = 0; return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  memory->total = 85520809984ull;
  memory->used = 1ull << 30;
  memory->free = memory->total - memory->used;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  memory->total = 85520809984ull;
  memory->reserved = 600ull << 20;
  memory->used = 1ull << 30;
  memory->free = memory->total - memory->reserved - memory->used;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  memset(pci, 0, sizeof *pci);
  pci->bus = 0x10 + number(device);
  pci->pciDeviceId = 0x233010de;
  snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
  return NVML_SUCCESS;
}

/* MIG profiles of an H100 with 80 GB, as nvidia-smi mig -lgip and -lgipp list them. */
static const struct {
  unsigned int index, id, slices, sms, engines, instances, megabytes, size, places, starts[7];
} profiles[] = {
    {NVML_GPU_INSTANCE_PROFILE_1_SLICE, 19, 1, 16, 1, 7, 9856, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
    {NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1, 20, 1, 16, 1, 1, 9856, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
    {NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2, 15, 1, 26, 1, 4, 19968, 2, 4, {0, 2, 4, 6}},
    {NVML_GPU_INSTANCE_PROFILE_2_SLICE, 14, 2, 32, 2, 3, 19968, 2, 3, {0, 2, 4}},
    {NVML_GPU_INSTANCE_PROFILE_3_SLICE, 9, 3, 60, 3, 2, 40320, 4, 2, {0, 4}},
    {NVML_GPU_INSTANCE_PROFILE_4_SLICE, 5, 4, 64, 4, 1, 40320, 4, 1, {0}},
    {NVML_GPU_INSTANCE_PROFILE_7_SLICE, 0, 7, 132, 8, 1, 81152, 8, 1, {0}},
};
#define PROFILES (sizeof profiles / sizeof profiles[0])

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int index, nvmlGpuInstanceProfileInfo_t *info) {
  for (unsigned int i = 0; i < PROFILES; i++) {
    if (profiles[i].index != index) continue;
    memset(info, 0, sizeof *info);
    info->id = profiles[i].id;
    info->sliceCount = profiles[i].slices;
    info->instanceCount = profiles[i].instances;
    info->multiprocessorCount = profiles[i].sms;
    info->copyEngineCount = info->decoderCount = info->jpegCount = profiles[i].engines;
    info->memorySizeMB = profiles[i].megabytes;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *places, unsigned int *count) {
  for (unsigned int i = 0; i < PROFILES; i++) {
    if (profiles[i].id != id) continue;
    for (unsigned int n = 0; places != NULL && n < profiles[i].places; n++) {
      places[n].start = profiles[i].starts[n];
      places[n].size = profiles[i].size;
    }
    *count = profiles[i].places;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile, nvmlGpuInstance_t *instances, unsigned int *count) {
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) { return NVML_ERROR_NOT_FOUND; }

/* No event ever happens. */
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) { set->handle = (struct nvmlEventSet_st *)gpus; return NVML_SUCCESS; }
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) { return NVML_SUCCESS; }
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int milliseconds) {
  usleep(milliseconds * 1000);
  return NVML_ERROR_TIMEOUT;
}
