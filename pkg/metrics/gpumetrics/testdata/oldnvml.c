/* An NVML library with one GPU, which has only the functions of the oldest drivers. */
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory;

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "Unknown"; }
int nvmlSystemGetNVMLVersion(char *version, unsigned length) { strncpy(version, "9.390.157", length); return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { *device = (void *)1; return strncmp(uuid, "GPU-", 4) ? 6 : 0; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *celsius) { *celsius = 41; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) { m->total = 11441ULL << 20; m->used = 441ULL << 20; m->free = 11000ULL << 20; return 0; }
