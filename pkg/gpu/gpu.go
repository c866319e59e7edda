// Package gpu has what all who deal with GPUs must know alike. It imports nothing.
package gpu

// MemoryLimitsSince is the branch of NVIDIA's driver that brought limits on the
// memory of a cgroup (nvmlDeviceSetMemoryLimits_v1).
const MemoryLimitsSince = 615
