package gpumetrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// profiled is a reader of one field that GPM gives, and what its library does.
type profiled struct {
	*Reader
	lib     *mock.Interface
	metrics map[nvml.GpmMetricId]float64
}

func newProfiled(t *testing.T) *profiled {
	t.Helper()
	p := &profiled{metrics: map[nvml.GpmMetricId]float64{nvml.GPM_METRIC_SM_UTIL: 50}}
	p.lib = withGPM(newMock(map[string]*mock.Device{uuid0: plainDevice(&fieldNumbers{}), mig0: plainDevice(&fieldNumbers{})}), p.metrics)
	p.Reader = newReader(t, p.lib, "DCGM_FI_PROF_SM_ACTIVE")
	return p
}

func (p *profiled) want(t *testing.T, seconds float64, want float64) {
	t.Helper()
	got := readOne(t, p.Reader, oneGPU(), time.Unix(0, int64(seconds*1e9))).Values[0]
	if got.Present != (want >= 0) || got.Present && got.Number != want {
		t.Errorf("after %v s: %+v, want %v", seconds, got, want)
	}
}

const absent = -1

func TestGPMIsMeasuredBetweenReadings(t *testing.T) {
	p := newProfiled(t)
	p.want(t, 0, absent)
	p.want(t, 1, 0.5)
	// Too soon: NVML's counters would be the same.
	p.metrics[nvml.GPM_METRIC_SM_UTIL] = 0
	p.want(t, 1.09, 0.5)
	p.want(t, 2, 0)
	if samples, compared := len(p.lib.GpmSampleGetCalls()), len(p.lib.GpmMetricsGetCalls()); samples != 3 || compared != 2 {
		t.Errorf("%d samples, compared %d times", samples, compared)
	}
	if asked, buffers := len(p.lib.GpmQueryDeviceSupportCalls()), len(p.lib.GpmSampleAllocCalls()); asked != 1 || buffers != 2 {
		t.Errorf("asked %d times, %d buffers", asked, buffers)
	}
	must(t, p.Close())
	if freed := len(p.lib.GpmSampleFreeCalls()); freed != 2 {
		t.Errorf("%d buffers were freed", freed)
	}
}

func TestItIsKnownSinceWhenAValueWasMeasured(t *testing.T) {
	p := newProfiled(t)
	for _, test := range []struct{ at, since float64 }{{0, -1}, {1, 0}, {1.09, 0}, {3, 1}, {4, 3}} {
		want := time.Time{}
		if test.since >= 0 {
			want = time.Unix(0, int64(test.since*1e9))
		}
		if got := readOne(t, p.Reader, oneGPU(), time.Unix(0, int64(test.at*1e9))).MeasuredSince; !got.Equal(want) {
			t.Errorf("read after %v s, it was measured since %v, want %v", test.at, got, want)
		}
	}
	for _, f := range Fields() {
		if want := strings.HasPrefix(f.Name, "DCGM_FI_PROF_") || f.Name == "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"; f.OverTime != want {
			t.Errorf("%s is measured over a time: %v", f.Name, f.OverTime)
		}
	}
}

func TestASampleThatFailedIsNotCompared(t *testing.T) {
	p := newProfiled(t)
	p.want(t, 0, absent)
	p.lib.GpmSampleGetFunc = func(nvml.Device, nvml.GpmSample) nvml.Return { return nvml.ERROR_UNKNOWN }
	p.want(t, 1, absent)
	p.lib.GpmSampleGetFunc = func(nvml.Device, nvml.GpmSample) nvml.Return { return nvml.SUCCESS }
	p.want(t, 2, absent)
	p.want(t, 3, 0.5)
	p.lib.GpmMetricsGetFunc = func(*nvml.GpmMetricsGetType) nvml.Return { return nvml.ERROR_UNKNOWN }
	p.want(t, 4, absent)
}

func TestAGPUWithoutGPMIsAskedOnce(t *testing.T) {
	p := newProfiled(t)
	p.lib.GpmQueryDeviceSupportFunc = func(nvml.Device) (nvml.GpmSupport, nvml.Return) { return nvml.GpmSupport{}, nvml.ERROR_TIMEOUT }
	p.want(t, 0, absent)
	p.lib.GpmQueryDeviceSupportFunc = func(nvml.Device) (nvml.GpmSupport, nvml.Return) { return nvml.GpmSupport{}, nvml.SUCCESS }
	p.want(t, 1, absent)
	p.want(t, 2, absent)
	if asked, buffers := len(p.lib.GpmQueryDeviceSupportCalls()), len(p.lib.GpmSampleAllocCalls()); asked != 2 || buffers != 0 {
		t.Errorf("asked %d times, %d buffers", asked, buffers)
	}
}

func TestBuffersOfADeviceThatIsGoneAreFreed(t *testing.T) {
	p := newProfiled(t)
	p.want(t, 0, absent)
	p.Read(t.Context(), inventory.Node{}, time.Unix(1, 0))
	if freed := len(p.lib.GpmSampleFreeCalls()); freed != 2 {
		t.Errorf("%d buffers were freed", freed)
	}
	// It comes back as another.
	p.want(t, 2, absent)
	node := oneGPU()
	node.DriverVersion.Raw = "590.44"
	p.Read(t.Context(), node, time.Unix(3, 0))
	if freed := len(p.lib.GpmSampleFreeCalls()); freed != 4 {
		t.Errorf("%d buffers were freed", freed)
	}
	p.lib.GpmSampleFreeFunc = func(nvml.GpmSample) nvml.Return { return nvml.ERROR_INVALID_ARGUMENT }
	if err := p.Close(); !errors.Is(err, nvml.ERROR_INVALID_ARGUMENT) {
		t.Errorf("a buffer that is not freed: %v", err)
	}
}

func TestWithoutMemoryForBuffersThereAreNoMetrics(t *testing.T) {
	p := newProfiled(t)
	first := true
	p.lib.GpmSampleAllocFunc = func() (nvml.GpmSample, nvml.Return) {
		if first = !first; first {
			return nil, nvml.ERROR_MEMORY
		}
		return &mock.GpmSample{}, nvml.SUCCESS
	}
	// One buffer is there, then the other fails, then it is there too.
	p.want(t, 0, absent)
	p.want(t, 1, absent)
	p.want(t, 2, 0.5)
	must(t, p.Close())
	if freed := len(p.lib.GpmSampleFreeCalls()); freed != 2 {
		t.Errorf("%d buffers were freed", freed)
	}
}

// A partition is sampled by its number on the GPU, which older libraries cannot.
func TestPartitionsNeedACallOfTheirOwn(t *testing.T) {
	node := oneGPU(func(g *inventory.GPU) {
		g.MIG.Enabled = ptr(true)
		g.MIG.Profiles = []inventory.MIGProfile{{ID: 19, Name: "1g.10gb"}}
		g.MIG.Instances = []inventory.MIGInstance{{ID: 7, ProfileID: 19, UUID: mig0}, {ID: 8, ProfileID: 19}}
	})
	p := newProfiled(t)
	p.metrics[nvml.GPM_METRIC_GRAPHICS_UTIL] = 75
	p.Read(t.Context(), node, time.Unix(0, 0))
	devices := p.Read(t.Context(), node, time.Unix(1, 0)).Devices
	// The second has no compute instance, and so no MIG device.
	if len(devices) != 2 {
		t.Fatalf("devices %+v", devices)
	}
	if d := devices[1]; d.Kind != Instance || d.Values[0] != (Value{Number: 0.5, Present: true}) || d.SMUtil == nil || *d.SMUtil != 0.75 {
		t.Errorf("partition %+v", d)
	}
	for _, call := range p.lib.GpmMigSampleGetCalls() {
		if call.N != 7 {
			t.Errorf("a sample of instance %d", call.N)
		}
	}
	must(t, p.Close())

	old := newProfiled(t)
	old.lib.ExtensionsFunc = newMock(nil, symbolGPMInstance).ExtensionsFunc
	old.Read(t.Context(), node, time.Unix(0, 0))
	devices = old.Read(t.Context(), node, time.Unix(1, 0)).Devices
	if !devices[0].Values[0].Present || devices[1].Values[0].Present {
		t.Errorf("devices %+v", devices)
	}
	must(t, old.Close())
}
