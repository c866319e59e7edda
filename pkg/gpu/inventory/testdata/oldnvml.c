/* An NVML library with one GPU, which has only the functions of the oldest
 * drivers: no MIG, NVLink, events or CUDA version. */
#include <string.h>

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } pciInfo;
typedef struct { unsigned long long total, free, used; } memory;

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "Unknown"; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) { strncpy(version, "390.157", length); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return index ? 2 : 0; }
int nvmlDeviceGetUUID(void *d, char *uuid, unsigned length) { strncpy(uuid, "GPU-4f3a1b2c-0000-4000-8000-000000000001", length); return 0; }
int nvmlDeviceGetName(void *d, char *name, unsigned length) { strncpy(name, "Tesla K80", length); return 0; }
int nvmlDeviceGetPciInfo_v2(void *d, pciInfo *info) { strcpy(info->legacy, "0000:07:00.0"); return 0; }
int nvmlDeviceGetMinorNumber(void *d, unsigned *minor) { *minor = 3; return 0; }
int nvmlDeviceGetBrand(void *d, int *brand) { *brand = 2; return 0; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) { *major = 3; *minor = 7; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) { m->total = 11996954624ULL; return 0; }
