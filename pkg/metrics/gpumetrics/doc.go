// Package gpumetrics reads measurements of GPUs and MIG partitions through NVML, by the
// names, units and types of DCGM's fields.
//
// What NVML does not give is absent, never zero. The package knows NVML and the
// inventory's facts. It does not know who uses a device, nor how values are published.
package gpumetrics
