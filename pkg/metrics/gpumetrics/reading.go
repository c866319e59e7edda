package gpumetrics

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// reading is the reading of one device. What several fields need is called for once.
type reading struct {
	reader *Reader
	logger klog.Logger
	node   *inventory.Node
	gpu    *inventory.GPU
	// instance is nil for a GPU.
	instance *inventory.MIGInstance
	// dev is the handle of the device itself, gpuDev of the GPU that it is or lies on.
	dev, gpuDev nvml.Device
	state       *deviceState
	now         time.Time
	// since is the start of the period over which some values were measured, if any was.
	since time.Time
	// lost is true once a call said that the GPU is lost; no more are made.
	lost bool

	memory      memo[memoryInfo]
	rates       memo[nvml.Utilization]
	energyDrawn memo[uint64]
	bar1        memo[nvml.BAR1Memory]
	rows        memo[remappedRows]
	nvmlFields  memo[[]nvml.FieldValue]
	profiled    memo[[]Value]
}

// memo remembers what a call gave for as long as a reading takes.
type memo[T any] struct {
	done  bool
	value T
	ret   nvml.Return
}

func (m *memo[T]) get(read func() (T, nvml.Return)) (T, nvml.Return) {
	if !m.done {
		m.value, m.ret = read()
		m.done = true
	}
	return m.value, m.ret
}

// ok says whether a value was read.
func (r *reading) ok(what string, ret nvml.Return) bool {
	switch ret {
	case nvml.SUCCESS:
		return true
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NOT_FOUND:
		return false
	case nvml.ERROR_GPU_IS_LOST:
		r.lost = true
	}
	r.logger.V(5).Info("Value cannot be read", "value", what, "gpu", r.gpu.UUID, "reason", ret.Error())
	return false
}

// value reads the field with an index in the reader's list.
func (r *reading) value(i int) Value {
	f := &r.reader.fields[i]
	switch {
	case !r.reader.usable[i] || r.instance != nil && !f.PerInstance || r.lost:
		return Value{}
	case f.fixed && r.state.fixed[i].Present:
		return r.state.fixed[i]
	}
	value := r.read(i, f)
	if f.fixed {
		r.state.fixed[i] = value
	}
	return value
}

func (r *reading) read(i int, f *field) Value {
	switch {
	case f.field != nil:
		return r.fieldValue(i, f)
	case f.metric != nil:
		return r.metric(f)
	case f.text != nil:
		words, ret := f.text(r)
		words = strings.TrimSpace(words)
		return Value{Text: words, Present: r.ok(f.Name, ret) && words != ""}
	}
	number, ret := f.number(r)
	if !r.ok(f.Name, ret) {
		return Value{}
	}
	return Value{Number: number, Present: true}
}

// memoryInfo is a device's memory in bytes. The first version of NVML's call counts
// what the driver keeps for itself as used, and does not say how much that is.
type memoryInfo struct {
	total, used, free uint64
	reserved          *uint64
}

func (m memoryInfo) reservedBytes() (uint64, bool) {
	if m.reserved == nil {
		return 0, false
	}
	return *m.reserved, true
}

func (r *reading) memoryInfo() (memoryInfo, nvml.Return) {
	return r.memory.get(func() (memoryInfo, nvml.Return) {
		if r.reader.has("nvmlDeviceGetMemoryInfo_v2") {
			m, ret := r.dev.GetMemoryInfo_v2()
			if ret != nvml.ERROR_NOT_SUPPORTED && ret != nvml.ERROR_FUNCTION_NOT_FOUND {
				return memoryInfo{total: m.Total, used: m.Used, free: m.Free, reserved: &m.Reserved}, ret
			}
		}
		m, ret := r.dev.GetMemoryInfo()
		return memoryInfo{total: m.Total, used: m.Used, free: m.Free}, ret
	})
}

func (r *reading) utilization() (nvml.Utilization, nvml.Return) {
	return r.rates.get(r.dev.GetUtilizationRates)
}

// energy is in millijoules.
func (r *reading) energy() (uint64, nvml.Return) {
	return r.energyDrawn.get(r.dev.GetTotalEnergyConsumption)
}

type remappedRows struct {
	correctable, uncorrectable int
	pending, failed            bool
}

func (r *reading) remappedRows() (remappedRows, nvml.Return) {
	return r.rows.get(func() (remappedRows, nvml.Return) {
		corrected, uncorrected, pending, failed, ret := r.dev.GetRemappedRows()
		return remappedRows{correctable: corrected, uncorrectable: uncorrected, pending: pending, failed: failed}, ret
	})
}

// fieldValue is the sum of a field's NVML values, or by what it grew.
func (r *reading) fieldValue(i int, f *field) Value {
	values, ret := r.nvmlFields.get(func() ([]nvml.FieldValue, nvml.Return) {
		values := make([]nvml.FieldValue, len(r.reader.fieldIDs))
		for i, id := range r.reader.fieldIDs {
			values[i].FieldId, values[i].ScopeId = id.id, id.scope
		}
		return values, r.dev.GetFieldValues(values)
	})
	if !r.ok("field values", ret) {
		return Value{}
	}
	first, sum, micros := r.reader.firstID[i], 0.0, int64(0)
	for _, value := range values[first : first+len(f.field.ids)] {
		if !r.ok(f.Name, nvml.Return(value.NvmlReturn)) {
			return Value{}
		}
		number, ok := decode(value)
		if !ok {
			return Value{}
		}
		sum += number
		micros = max(micros, value.Timestamp)
	}
	switch {
	case f.field.most > 0 && sum > f.field.most:
		return Value{}
	case !f.field.rate:
		return Value{Number: sum / f.field.divisor, Present: true}
	}
	at := r.now
	if micros > 0 {
		at = time.UnixMicro(micros)
	}
	rate := &r.state.rates[i]
	perSecond, ok := rate.add(sum, at)
	if ok {
		r.measuredSince(rate.since)
	}
	return Value{Number: perSecond / f.field.divisor, Present: ok}
}

// measuredSince notes the start of the period over which a value was measured.
func (r *reading) measuredSince(since time.Time) {
	if r.since.IsZero() || since.Before(r.since) {
		r.since = since
	}
}

// decode reads the union in a field value.
func decode(v nvml.FieldValue) (float64, bool) {
	raw := binary.NativeEndian.Uint64(v.Value[:])
	// A number of 32 bits is at the start of the union.
	short := binary.NativeEndian.Uint32(v.Value[:])
	if v.FieldId == nvml.FI_DEV_MEMORY_TEMP {
		// Some drivers say a wrong type for it.
		return float64(short), true
	}
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		number := math.Float64frombits(raw)
		return number, !math.IsNaN(number) && !math.IsInf(number, 0)
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(short), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(raw), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(raw)), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(short)), true
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(binary.NativeEndian.Uint16(v.Value[:])), true
	}
	return 0, false
}

// lastXID is the last XID that the inventory heard of. Of several that it first has at
// the same time the highest counts.
func (r *reading) lastXID() (float64, nvml.Return) {
	if r.state.reportsXIDs == nil {
		types, ret := r.dev.GetSupportedEventTypes()
		if ret != nvml.SUCCESS {
			return 0, ret
		}
		reports := types&nvml.EventTypeXidCriticalError != 0
		r.state.reportsXIDs = &reports
	}
	if !*r.state.reportsXIDs {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	seen := make(map[inventoryXID]bool, len(r.gpu.XIDs))
	for _, xid := range r.gpu.XIDs {
		key := inventoryXID{code: xid.Code, instance: -1}
		if xid.GPUInstance != nil {
			key.instance = *xid.GPUInstance
		}
		seen[key] = true
		if !r.state.xids[key] {
			r.state.lastXID = xid.Code
		}
	}
	r.state.xids = seen
	return float64(r.state.lastXID), nvml.SUCCESS
}

// inventoryXID is an inventory.XID that can be compared.
type inventoryXID struct{ code, instance int }

// versionNumbers are the first two numbers of a version such as "13.0".
func versionNumbers(version string) (major, minor int, ok bool) {
	before, after, _ := strings.Cut(version, ".")
	after, _, _ = strings.Cut(after, ".")
	major, errMajor := strconv.Atoi(before)
	minor, errMinor := strconv.Atoi(after)
	return major, minor, errMajor == nil && errMinor == nil
}
