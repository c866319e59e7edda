package fakegpu

import (
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// GPM measures what a GPU, or a GPU instance, does between two samples. Here all of it
// follows from how busy it was.

const (
	// gpmPrefix begins the names of GPM's functions, gpmSince is the driver branch that
	// brought them.
	gpmPrefix = "nvmlGpm"
	gpmSince  = 520
)

// gpmArchitectures are those whose GPUs have GPM.
var gpmArchitectures = []string{"Hopper", "Blackwell"}

func (v view) hasGPM() bool { return slices.Contains(gpmArchitectures, v.product.Architecture) }

// gpmSample is a sample buffer.
type gpmSample struct {
	lib *library

	mu    sync.Mutex
	freed bool
	// filled is what it holds, if anything.
	filled *gpmReading
}

// gpmReading is what a sample holds: which device it is of, how long that was busy
// (utilization, of which whole is all, times microseconds) until a time, and whether
// it has links of its own.
type gpmReading struct {
	device string
	at     int64
	busy   uint64
	pcie   bool
	nvlink bool
}

// GpmQueryDeviceSupport says whether a GPU has GPM.
func (l *library) GpmQueryDeviceSupport(d nvml.Device) (nvml.GpmSupport, nvml.Return) {
	if d == nil {
		return nvml.GpmSupport{}, nvml.ERROR_INVALID_ARGUMENT
	}
	return d.GpmQueryDeviceSupport()
}

func (d device) GpmQueryDeviceSupport() (nvml.GpmSupport, nvml.Return) {
	v, ret := d.readGPM("GpmQueryDeviceSupport")
	support := nvml.GpmSupport{Version: nvml.GPM_SUPPORT_VERSION}
	if ret == nvml.SUCCESS && v.hasGPM() {
		support.IsSupportedDevice = 1
	}
	return support, ret
}

func (m migDevice) GpmQueryDeviceSupport() (nvml.GpmSupport, nvml.Return) {
	return m.parent.GpmQueryDeviceSupport()
}

// readGPM is read for a function whose name has no "Device".
func (d device) readGPM(call string) (view, nvml.Return) {
	if _, ret := d.lib.read("nvml" + call); ret != nvml.SUCCESS {
		return view{}, ret
	}
	return d.read(call)
}

// GpmSampleAlloc makes a sample buffer, which must be freed. Like its sample it does not
// depend on the library's initialisation.
func (l *library) GpmSampleAlloc() (nvml.GpmSample, nvml.Return) {
	return &gpmSample{lib: l}, nvml.SUCCESS
}

// GpmSampleFree frees a sample buffer.
func (l *library) GpmSampleFree(s nvml.GpmSample) nvml.Return {
	if s == nil {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return s.Free()
}

// GpmSampleGet takes a sample of a GPU or a MIG device.
func (l *library) GpmSampleGet(d nvml.Device, s nvml.GpmSample) nvml.Return {
	if s == nil {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return s.Get(d)
}

// GpmMigSampleGet takes a sample of a GPU instance.
func (l *library) GpmMigSampleGet(d nvml.Device, instance int, s nvml.GpmSample) nvml.Return {
	if s == nil {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return s.MigGet(d, instance)
}

func (d device) GpmSampleGet(s nvml.GpmSample) nvml.Return { return d.lib.GpmSampleGet(d, s) }

func (d device) GpmMigSampleGet(instance int, s nvml.GpmSample) nvml.Return {
	return d.lib.GpmMigSampleGet(d, instance, s)
}

func (m migDevice) GpmSampleGet(s nvml.GpmSample) nvml.Return { return m.parent.lib.GpmSampleGet(m, s) }

// Free frees the buffer.
func (s *gpmSample) Free() nvml.Return {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	s.freed, s.filled = true, nil
	return nvml.SUCCESS
}

// Get takes a sample of a GPU or a MIG device.
func (s *gpmSample) Get(d nvml.Device) nvml.Return {
	switch d := d.(type) {
	case device:
		return s.fill(d, "GpmSampleGet", func(v view, m meter) (gpmReading, nvml.Return) {
			return gpmReading{device: v.uuid, busy: m.Busy, pcie: true, nvlink: v.linked()}, nvml.SUCCESS
		})
	case migDevice:
		v, ret := d.read("GpmSampleGet")
		if ret != nvml.SUCCESS {
			return ret
		}
		return s.MigGet(d.parent, v.gi.ID)
	}
	return nvml.ERROR_INVALID_ARGUMENT
}

// MigGet takes a sample of a GPU instance. Without compute instances it has none.
func (s *gpmSample) MigGet(of nvml.Device, instance int) nvml.Return {
	d, ok := of.(device)
	if !ok {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return s.fill(d, "GpmMigSampleGet", func(v view, m meter) (gpmReading, nvml.Return) {
		var busy, multiprocessors uint64
		for _, on := range v.migDevices() {
			if on.gi.ID == instance {
				busy += m.MIGDevices[on.uuid] * uint64(on.compute.Multiprocessors)
				multiprocessors += uint64(on.compute.Multiprocessors)
			}
		}
		if multiprocessors == 0 {
			return gpmReading{}, nvml.ERROR_NOT_FOUND
		}
		gi, _ := v.instance(instance)
		return gpmReading{device: migUUID(v.uuid, *gi, gi.Compute[0]), busy: busy / multiprocessors}, nvml.SUCCESS
	})
}

// fill takes a sample.
func (s *gpmSample) fill(d device, call string, take func(view, meter) (gpmReading, nvml.Return)) nvml.Return {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	if v, ret := d.readGPM(call); ret != nvml.SUCCESS || !v.hasGPM() {
		return firstFailure(ret, nvml.ERROR_NOT_SUPPORTED)
	}
	v, m, ret := d.readMeter(call)
	if ret != nvml.SUCCESS {
		return ret
	}
	reading, ret := take(v, m)
	if ret != nvml.SUCCESS {
		return ret
	}
	reading.at = time.Now().UnixMicro()
	s.filled = &reading
	return ret
}

// firstFailure is the first code that is not SUCCESS.
func firstFailure(codes ...nvml.Return) nvml.Return {
	for _, code := range codes {
		if code != nvml.SUCCESS {
			return code
		}
	}
	return nvml.SUCCESS
}

// GpmMetricsGet compares two samples.
func (l *library) GpmMetricsGet(get *nvml.GpmMetricsGetType) nvml.Return {
	if get == nil || int(get.NumMetrics) > len(get.Metrics) {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	before, ok1 := readingOf(get.Sample1)
	after, ok2 := readingOf(get.Sample2)
	if !ok1 || !ok2 || before.device != after.device {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	for i := range get.Metrics[:get.NumMetrics] {
		m := &get.Metrics[i]
		value, ret := after.since(before, nvml.GpmMetricId(m.MetricId))
		m.Value, m.NvmlReturn = value, uint32(ret)
	}
	return nvml.SUCCESS
}

func readingOf(of nvml.GpmSample) (gpmReading, bool) {
	s, ok := of.(*gpmSample)
	if !ok {
		return gpmReading{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed || s.filled == nil {
		return gpmReading{}, false
	}
	return *s.filled, true
}

// MiB per second that a GPU moves while it is busy all the time.
const (
	pcieSentRate     = 10_000
	pcieReceivedRate = 5_000
	// nvlinkRate is for each direction.
	nvlinkRate = 100_000
)

// since is a metric between two samples.
func (r gpmReading) since(before gpmReading, metric nvml.GpmMetricId) (float64, nvml.Return) {
	elapsed := r.at - before.at
	if elapsed <= 0 || r.busy < before.busy {
		return 0, nvml.ERROR_NO_DATA
	}
	busy := float64(r.busy-before.busy) / float64(elapsed) / whole
	switch metric {
	case nvml.GPM_METRIC_GRAPHICS_UTIL, nvml.GPM_METRIC_SM_UTIL:
		return 100 * busy, nvml.SUCCESS
	case nvml.GPM_METRIC_SM_OCCUPANCY, nvml.GPM_METRIC_ANY_TENSOR_UTIL, nvml.GPM_METRIC_DRAM_BW_UTIL:
		return 50 * busy, nvml.SUCCESS
	case nvml.GPM_METRIC_FP16_UTIL, nvml.GPM_METRIC_FP32_UTIL, nvml.GPM_METRIC_INTEGER_UTIL:
		return 25 * busy, nvml.SUCCESS
	case nvml.GPM_METRIC_FP64_UTIL:
		return 0, nvml.SUCCESS
	}
	switch {
	case r.pcie && metric == nvml.GPM_METRIC_PCIE_TX_PER_SEC:
		return pcieSentRate * busy, nvml.SUCCESS
	case r.pcie && metric == nvml.GPM_METRIC_PCIE_RX_PER_SEC:
		return pcieReceivedRate * busy, nvml.SUCCESS
	case r.nvlink && (metric == nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC || metric == nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC):
		return nvlinkRate * busy, nvml.SUCCESS
	}
	return 0, nvml.ERROR_NOT_SUPPORTED
}
