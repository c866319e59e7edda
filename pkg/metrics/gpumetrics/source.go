package gpumetrics

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// source says where a field's value comes from: one of number, text, field and metric.
type source struct {
	// symbols are the functions of NVML that are called, each as the names that it
	// has at different versions, separated by "|". Without them there is no value.
	symbols []string
	number  func(*reading) (float64, nvml.Return)
	text    func(*reading) (string, nvml.Return)
	// field is one of NVML's field values, metric one of GPM's.
	field  *fieldSource
	metric *metricSource
	// fixed values stay the same for as long as the driver is loaded.
	fixed bool
}

// fieldSource is a field value (nvmlDeviceGetFieldValues).
type fieldSource struct {
	ids []fieldID
	// divisor turns NVML's unit into DCGM's: it divides the sum of the values.
	divisor float64
	// rate is true if the field is what the sum grew by in a second.
	rate bool
	// most is the highest value that can be true, if not 0.
	most float64
}

type fieldID struct{ id, scope uint32 }

// allLinks is the scope of a field value that is summed over all NVLink connections.
const allLinks = ^uint32(0)

// metricSource is a GPM metric (nvmlGpmMetricsGet).
type metricSource struct {
	id nvml.GpmMetricId
	// divisor turns NVML's unit into DCGM's.
	divisor float64
}

const (
	mebibyte = 1 << 20
	// percent turns NVML's percentage into a ratio.
	percent = 100
)

// call is a number that one call on the device's handle gives.
func call[N number](symbol string, read func(nvml.Device) (N, nvml.Return)) source {
	return source{symbols: []string{symbol}, number: func(r *reading) (float64, nvml.Return) {
		value, ret := read(r.dev)
		return float64(value), ret
	}}
}

type number interface {
	~int | ~int32 | ~uint32 | ~uint64
}

// label is a text that one call on the GPU's handle gives.
func label(symbol string, read func(nvml.Device) (string, nvml.Return)) source {
	return source{symbols: []string{symbol}, fixed: true, text: func(r *reading) (string, nvml.Return) { return read(r.gpuDev) }}
}

// known is a text that the inventory or the library as a whole gives.
func known(read func(*reading) (string, nvml.Return)) source { return source{text: read} }

// dividedBy divides a number.
func (s source) dividedBy(divisor float64) source {
	read := s.number
	s.number = func(r *reading) (float64, nvml.Return) {
		value, ret := read(r)
		return value / divisor, ret
	}
	return s
}

// once marks a value that stays the same for as long as the driver is loaded.
func (s source) once() source {
	s.fixed = true
	return s
}

// fieldValue is one of NVML's field values.
func fieldValue(id uint32) source {
	return source{symbols: []string{symbolFieldValues}, field: &fieldSource{ids: []fieldID{{id: id}}, divisor: 1}}
}

const symbolFieldValues = "nvmlDeviceGetFieldValues"

// gpmRatio is a percentage of GPM as a ratio, gpmBytes a rate in MiB/s as one in bytes
// per second.
func gpmRatio(id nvml.GpmMetricId) source {
	return source{symbols: gpmSymbols, metric: &metricSource{id: id, divisor: percent}}
}

func gpmBytes(id nvml.GpmMetricId) source {
	return source{symbols: gpmSymbols, metric: &metricSource{id: id, divisor: 1.0 / mebibyte}}
}

// memory is a part of the device's memory in MiB.
func memory(part func(memoryInfo) (bytes uint64, ok bool)) source {
	return source{symbols: []string{symbolMemory}, number: func(r *reading) (float64, nvml.Return) {
		info, ret := r.memoryInfo()
		if ret != nvml.SUCCESS {
			return 0, ret
		}
		bytes, ok := part(info)
		if !ok {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		return float64(bytes) / mebibyte, ret
	}}
}

const symbolMemory = "nvmlDeviceGetMemoryInfo_v2|nvmlDeviceGetMemoryInfo"
