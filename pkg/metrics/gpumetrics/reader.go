package gpumetrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// Reader reads the values of a list of fields. Its methods may be called concurrently;
// readings are made one after the other.
//
// The library is initialised for the length of a reading alone: as long as somebody
// holds it, NVML does not look for GPUs that were plugged in (see inventory.NVML). That
// costs little while somebody else keeps it.
type Reader struct {
	lib    nvml.Interface
	fields []field
	// fieldIDs are the NVML field values that are needed, and firstID for each field
	// where its own begin.
	fieldIDs []fieldID
	firstID  []int
	// metricIDs are the GPM metrics that are needed, metricIndex where each is.
	metricIDs   []nvml.GpmMetricId
	metricIndex map[nvml.GpmMetricId]int

	// mu is held while the hardware is read.
	mu sync.Mutex
	// symbols remembers for a reading which functions the library has, usable which
	// fields these allow, gpmUsable whether they allow GPM.
	symbols   map[string]bool
	usable    []bool
	gpmUsable bool
	// devices are the states by UUID.
	devices map[string]*deviceState
	// metricsGet is large, and used again and again.
	metricsGet nvml.GpmMetricsGetType
	// problem is why NVML could not be used at the last reading.
	problem nvml.Return
	closed  bool
}

// NewReader returns a Reader of fields, by their names and in that order. It calls
// nothing of the library yet. The error names fields that are not known.
func NewReader(lib nvml.Interface, fields []string) (*Reader, error) {
	r := &Reader{
		lib: lib, symbols: map[string]bool{}, devices: map[string]*deviceState{},
		metricIndex: map[nvml.GpmMetricId]int{},
	}
	var unknown []string
	for _, name := range fields {
		f, ok := lookup(name)
		if !ok {
			unknown = append(unknown, name)
			continue
		}
		r.firstID = append(r.firstID, len(r.fieldIDs))
		if f.field != nil {
			r.fieldIDs = append(r.fieldIDs, f.field.ids...)
		}
		if f.metric != nil {
			r.needMetric(f.metric.id)
		}
		r.fields = append(r.fields, f)
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("unknown fields: %s", strings.Join(unknown, ", "))
	}
	// It says how busy a partition is.
	r.needMetric(nvml.GPM_METRIC_GRAPHICS_UTIL)
	r.usable = make([]bool, len(r.fields))
	return r, nil
}

func (r *Reader) needMetric(id nvml.GpmMetricId) {
	if _, known := r.metricIndex[id]; !known {
		r.metricIndex[id] = len(r.metricIDs)
		r.metricIDs = append(r.metricIDs, id)
	}
}

// Fields are those given to NewReader, in the order of [Device.Values].
func (r *Reader) Fields() []Field {
	fields := make([]Field, 0, len(r.fields))
	for _, f := range r.fields {
		fields = append(fields, f.Field)
	}
	return fields
}

// Read reads all devices of the node, which are as the inventory has them. A field that
// cannot be read is absent from this Sample alone. Values that are measured between two
// readings are absent from a device's first. The times of a Reader's readings must not
// go back.
func (r *Reader) Read(ctx context.Context, node inventory.Node, now time.Time) Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	sample := Sample{Time: now}
	logger := klog.FromContext(ctx)
	if r.closed || node.Problem != "" || !r.start(logger) {
		return sample
	}
	defer r.stop(logger)
	for i := range node.GPUs {
		if ctx.Err() != nil {
			return sample
		}
		if node.GPUs[i].UUID != "" {
			sample.Devices = r.readGPU(logger, sample.Devices, &node, &node.GPUs[i], now)
		}
	}
	r.forget(logger)
	return sample
}

// start initialises NVML and finds out what it can do.
func (r *Reader) start(logger klog.Logger) bool {
	ret := r.lib.Init()
	if ret == nvml.ERROR_ALREADY_INITIALIZED {
		ret = nvml.SUCCESS
	}
	if ret != r.problem {
		logger.V(2).Info("NVML was initialized to read metrics", "result", ret.Error(), "before", r.problem.Error())
		r.problem = ret
	}
	if ret != nvml.SUCCESS {
		return false
	}
	clear(r.symbols)
	for i := range r.fields {
		r.usable[i] = r.hasAll(r.fields[i].symbols)
	}
	r.gpmUsable = r.hasAll(gpmSymbols)
	for _, s := range r.devices {
		s.used = false
	}
	return true
}

func (r *Reader) stop(logger klog.Logger) {
	if ret := r.lib.Shutdown(); ret != nvml.SUCCESS && ret != nvml.ERROR_UNINITIALIZED {
		logger.V(2).Info("NVML did not shut down", "reason", ret.Error())
	}
}

// hasAll says whether the library has all of some functions, each of which may have
// several names, separated by "|".
func (r *Reader) hasAll(symbols []string) bool {
	for _, names := range symbols {
		if !r.has(names) {
			return false
		}
	}
	return true
}

// has says whether the library has a function by one of its names, separated by "|".
// Calling one that is missing would end the process, as the dynamic linker looks for it
// only then.
func (r *Reader) has(names string) bool {
	for name := range strings.SplitSeq(names, "|") {
		found, seen := r.symbols[name]
		if !seen {
			found = r.lib.Extensions().LookupSymbol(name) == nil
			r.symbols[name] = found
		}
		if found {
			return true
		}
	}
	return false
}

// device is the state of a device, which starts afresh with another driver.
func (r *Reader) device(logger klog.Logger, uuid, driver string) *deviceState {
	s := r.devices[uuid]
	if s != nil && s.driver != driver {
		r.drop(logger, uuid)
		s = nil
	}
	if s == nil {
		s = &deviceState{driver: driver, fixed: make([]Value, len(r.fields)), rates: make([]rate, len(r.fields))}
		r.devices[uuid] = s
	}
	s.used = true
	return s
}

// forget drops devices that are no longer there.
func (r *Reader) forget(logger klog.Logger) {
	for uuid, s := range r.devices {
		if !s.used {
			r.drop(logger, uuid)
		}
	}
}

func (r *Reader) drop(logger klog.Logger, uuid string) {
	if err := r.devices[uuid].sampler.free(r.lib); err != nil {
		logger.Error(err, "Memory of NVML was not freed", "device", uuid)
	}
	delete(r.devices, uuid)
}

// Close frees what the Reader holds of the library. Afterwards Samples are empty.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for uuid, s := range r.devices {
		errs = append(errs, s.sampler.free(r.lib))
		delete(r.devices, uuid)
	}
	return errors.Join(errs...)
}
