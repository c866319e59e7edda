// A program that knows only NVML's documentation: it loads the library by its path and
// says what is not as documented. The machine has two GPUs, an H100 and a T4.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;

static void *library;
static int failures;

static void *function(const char *name)
{
	void *f = dlsym(library, name);
	if (!f) {
		printf("%s is not exported\n", name);
		exit(1);
	}
	return f;
}

static void number(const char *what, long long got, long long want)
{
	if (got != want) {
		printf("%s: got %lld, want %lld\n", what, got, want);
		failures++;
	}
}

static void text(const char *what, const char *got, const char *want)
{
	if (strcmp(got, want)) {
		printf("%s: got \"%s\", want \"%s\"\n", what, got, want);
		failures++;
	}
}

// The arguments of each call have the types of the documentation's.
#define CALL(name, types, ...) (((int (*) types)function(#name)) (__VA_ARGS__))
#define EXPECT(want, name, types, ...) number(#name " (" #__VA_ARGS__ ")", CALL(name, types, __VA_ARGS__), want)

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED = 9, TIMEOUT, GPU_IS_LOST = 15, IN_USE = 19, VERSION_MISMATCH = 25 };

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct event { handle device; unsigned long long type, data; unsigned gi, ci; };
struct instance { handle device; unsigned id, profile, start, size; };

static handle gpu(unsigned index)
{
	handle device = 0;
	EXPECT(SUCCESS, nvmlDeviceGetHandleByIndex_v2, (unsigned, handle *), index, &device);
	return device;
}

static void facts(void)
{
	unsigned n = 0, major = 0, minor = 0;
	char buffer[96];
	handle h100 = gpu(0), device = 0;
	EXPECT(SUCCESS, nvmlDeviceGetCount_v2, (unsigned *), &n);
	number("GPUs", n, 2);
	EXPECT(INVALID_ARGUMENT, nvmlDeviceGetCount_v2, (unsigned *), 0);
	EXPECT(INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2, (unsigned, handle *), 2, &device);
	number("the same handle again", h100 == gpu(0), 1);
	EXPECT(SUCCESS, nvmlDeviceGetName, (handle, char *, unsigned), h100, buffer, sizeof buffer);
	text("name", buffer, "NVIDIA H100 80GB HBM3");
	// 21 characters and the zero that ends them.
	EXPECT(INSUFFICIENT_SIZE, nvmlDeviceGetName, (handle, char *, unsigned), h100, buffer, 21);
	EXPECT(SUCCESS, nvmlDeviceGetName, (handle, char *, unsigned), h100, buffer, 22);
	EXPECT(INVALID_ARGUMENT, nvmlDeviceGetName, (handle, char *, unsigned), 0, buffer, sizeof buffer);
	EXPECT(INVALID_ARGUMENT, nvmlDeviceGetName, (handle, char *, unsigned), buffer, buffer, sizeof buffer);
	EXPECT(INVALID_ARGUMENT, nvmlDeviceGetName, (handle, char *, unsigned), h100, 0, sizeof buffer);
	EXPECT(SUCCESS, nvmlDeviceGetCudaComputeCapability, (handle, unsigned *, unsigned *), h100, &major, &minor);
	number("major", major, 9);
	number("minor", minor, 0);
	EXPECT(SUCCESS, nvmlSystemGetDriverVersion, (char *, unsigned), buffer, sizeof buffer);
	text("driver", buffer, "615.10.02");
	EXPECT(NOT_FOUND, nvmlDeviceGetHandleByUUID, (const char *, handle *), "GPU-nobody", &device);
	EXPECT(NOT_SUPPORTED, nvmlDeviceGetFanSpeedRPM, (handle, void *), h100, buffer);
	text("words", ((const char *(*)(int))function("nvmlErrorString"))(NOT_SUPPORTED), "Not Supported");
}

static void structures(void)
{
	handle h100 = gpu(0);
	struct memory_v2 memory = {.version = sizeof memory | 2 << 24};
	// The third version of the structure is longer than the second by a long address.
	char old[68], new[68];
	EXPECT(SUCCESS, nvmlDeviceGetMemoryInfo_v2, (handle, void *), h100, &memory);
	number("memory", memory.total, 81559LL << 20);
	number("memory's version afterwards", memory.version, sizeof memory | 2 << 24);
	memory.version = sizeof memory | 1 << 24;
	EXPECT(VERSION_MISMATCH, nvmlDeviceGetMemoryInfo_v2, (handle, void *), h100, &memory);
	memset(old, 'x', sizeof old);
	EXPECT(SUCCESS, nvmlDeviceGetPciInfo_v2, (handle, void *), h100, old);
	EXPECT(SUCCESS, nvmlDeviceGetPciInfo_v3, (handle, void *), h100, new);
	text("address", new + 36, "00000000:1B:00.0");
	number("the same beginning", memcmp(old, new, 36), 0);
	number("nothing behind the old structure", old[36], 'x');
}

static void partitions(void)
{
	handle h100 = gpu(0), gi = 0, ci = 0, mig = 0, parent = 0, list[8];
	unsigned current = 9, pending = 9, is = 9, count = 0, places[16];
	int activation = -1;
	char buffer[96];
	struct instance info;
	EXPECT(NOT_SUPPORTED, nvmlDeviceGetMigMode, (handle, unsigned *, unsigned *), gpu(1), &current, &pending);
	EXPECT(SUCCESS, nvmlDeviceSetMigMode, (handle, unsigned, int *), h100, 1, &activation);
	EXPECT(SUCCESS, nvmlDeviceGetMigMode, (handle, unsigned *, unsigned *), h100, &current, &pending);
	number("MIG mode", current, 1);
	// 19 is 1g.10gb, which fits seven times.
	EXPECT(SUCCESS, nvmlDeviceGetGpuInstancePossiblePlacements_v2, (handle, unsigned, void *, unsigned *), h100, 19, 0, &count);
	number("placements", count, 7);
	EXPECT(SUCCESS, nvmlDeviceGetGpuInstancePossiblePlacements_v2, (handle, unsigned, void *, unsigned *), h100, 19, places, &count);
	number("the last start", places[12], 6);
	EXPECT(SUCCESS, nvmlDeviceCreateGpuInstance, (handle, unsigned, handle *), h100, 19, &gi);
	EXPECT(SUCCESS, nvmlGpuInstanceGetInfo, (handle, void *), gi, &info);
	number("the instance's GPU", info.device == h100, 1);
	number("the instance's profile", info.profile, 19);
	number("the instance's start", info.start, 6);
	EXPECT(SUCCESS, nvmlGpuInstanceCreateComputeInstance, (handle, unsigned, handle *), gi, 0, &ci);
	EXPECT(IN_USE, nvmlGpuInstanceDestroy, (handle), gi);
	EXPECT(SUCCESS, nvmlDeviceGetGpuInstances, (handle, unsigned, handle *, unsigned *), h100, 19, list, &count);
	number("instances", count, 1);
	number("the same instance", list[0] == gi, 1);
	EXPECT(SUCCESS, nvmlDeviceGetMigDeviceHandleByIndex, (handle, unsigned, handle *), h100, 0, &mig);
	EXPECT(NOT_FOUND, nvmlDeviceGetMigDeviceHandleByIndex, (handle, unsigned, handle *), h100, 1, &parent);
	EXPECT(SUCCESS, nvmlDeviceIsMigDeviceHandle, (handle, unsigned *), mig, &is);
	number("a MIG device", is, 1);
	EXPECT(SUCCESS, nvmlDeviceGetName, (handle, char *, unsigned), mig, buffer, sizeof buffer);
	text("the MIG device's name", buffer, "NVIDIA H100 80GB HBM3 MIG 1g.10gb");
	EXPECT(SUCCESS, nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (handle, handle *), mig, &parent);
	number("its GPU", parent == h100, 1);
	EXPECT(SUCCESS, nvmlComputeInstanceDestroy, (handle), ci);
	EXPECT(SUCCESS, nvmlGpuInstanceDestroy, (handle), gi);
	EXPECT(NOT_FOUND, nvmlGpuInstanceDestroy, (handle), gi);
	EXPECT(INVALID_ARGUMENT, nvmlGpuInstanceDestroy, (handle), h100);
}

static void processes(void)
{
	// Two processes with 1 GiB each were put on the T4; 24 bytes each since version 2.
	handle t4 = gpu(1);
	unsigned count = 0;
	unsigned long long infos[6] = {0}, olds[4] = {0};
	EXPECT(INSUFFICIENT_SIZE, nvmlDeviceGetComputeRunningProcesses_v3, (handle, unsigned *, void *), t4, &count, 0);
	number("processes", count, 2);
	count = 1;
	EXPECT(INSUFFICIENT_SIZE, nvmlDeviceGetComputeRunningProcesses_v3, (handle, unsigned *, void *), t4, &count, infos);
	EXPECT(SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3, (handle, unsigned *, void *), t4, &count, infos);
	number("the second one's PID", (unsigned)infos[3], 4002);
	number("the second one's memory", infos[4], 1 << 30);
	number("of no instance", infos[5], -1);
	EXPECT(SUCCESS, nvmlDeviceGetComputeRunningProcesses, (handle, unsigned *, void *), t4, &count, olds);
	number("the old structure's PID", (unsigned)olds[2], 4002);
	EXPECT(SUCCESS, nvmlDeviceGetGraphicsRunningProcesses_v3, (handle, unsigned *, void *), t4, &count, 0);
	number("graphics processes", count, 0);
}

// events waits for the XIDs that another process raises once it reads "ready": 48 of the
// T4, then 79, with which the H100 is lost.
static void events(void)
{
	handle set = 0, h100 = gpu(0), t4 = gpu(1);
	struct event e;
	char uuid[96];
	unsigned minor;
	EXPECT(SUCCESS, nvmlDeviceGetUUID, (handle, char *, unsigned), t4, uuid, sizeof uuid);
	EXPECT(SUCCESS, nvmlEventSetCreate, (handle *), &set);
	EXPECT(SUCCESS, nvmlDeviceRegisterEvents, (handle, unsigned long long, handle), t4, 8, set);
	EXPECT(SUCCESS, nvmlDeviceRegisterEvents, (handle, unsigned long long, handle), h100, 8, set);
	EXPECT(TIMEOUT, nvmlEventSetWait_v2, (handle, void *, unsigned), set, &e, 1);
	puts("ready");
	fflush(stdout);
	EXPECT(SUCCESS, nvmlEventSetWait_v2, (handle, void *, unsigned), set, &e, 60000);
	number("the event's GPU", e.device == t4, 1);
	number("the event's type", e.type, 8);
	number("the XID", e.data, 48);
	number("the event's instance", e.gi, 0xffffffffLL);
	EXPECT(SUCCESS, nvmlEventSetWait_v2, (handle, void *, unsigned), set, &e, 60000);
	number("the XID of a GPU that is lost", e.data, 79);
	EXPECT(SUCCESS, nvmlEventSetFree, (handle), set);
	EXPECT(INVALID_ARGUMENT, nvmlEventSetWait_v2, (handle, void *, unsigned), set, &e, 1);
	EXPECT(GPU_IS_LOST, nvmlDeviceGetMinorNumber, (handle, unsigned *), h100, &minor);
	EXPECT(GPU_IS_LOST, nvmlDeviceGetHandleByUUID, (const char *, handle *), uuid, &set);
	EXPECT(SUCCESS, nvmlDeviceGetMinorNumber, (handle, unsigned *), t4, &minor);
}

int main(int argc, char **argv)
{
	unsigned n;
	library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : 0;
	if (!library) {
		printf("usage: stranger LIBRARY: %s\n", argc == 2 ? dlerror() : "no library");
		return 1;
	}
	EXPECT(UNINITIALIZED, nvmlShutdown, (void));
	EXPECT(UNINITIALIZED, nvmlDeviceGetCount_v2, (unsigned *), &n);
	EXPECT(UNINITIALIZED, nvmlUnitGetLedState, (handle, void *), 0, 0);
	if (getenv("NO_MACHINE")) {
		EXPECT(DRIVER_NOT_LOADED, nvmlInit_v2, (void));
		return failures;
	}
	EXPECT(SUCCESS, nvmlInit_v2, (void));
	EXPECT(SUCCESS, nvmlInit, (void));
	EXPECT(SUCCESS, nvmlShutdown, (void));
	facts();
	structures();
	partitions();
	processes();
	events();
	EXPECT(SUCCESS, nvmlShutdown, (void));
	EXPECT(UNINITIALIZED, nvmlDeviceGetCount_v2, (unsigned *), &n);
	return failures;
}
