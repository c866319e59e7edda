package gpumetrics

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

// rig is a fake machine, and a reader of it.
type rig struct {
	t testing.TB
	*fakegpu.Machine
	source *inventory.NVML
	reader *Reader
	// library counts what the reader takes of it.
	library *countingLibrary
}

func newRig(t testing.TB, gpus []string, fields ...string) *rig {
	t.Helper()
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", GPUs: gpus})
	must(t, err)
	r := &rig{t: t, Machine: m, library: &countingLibrary{Interface: m.NVML()}}
	r.source = inventory.NewNVML(inventory.Options{Library: m.NVML(), SysFS: m.SysFS()})
	r.reader, err = NewReader(r.library, fields)
	must(t, err)
	t.Cleanup(func() {
		must(t, r.reader.Close())
		must(t, r.source.Close())
		if inits, samples := r.library.held(); inits != 0 || samples != 0 {
			t.Errorf("the reader still holds %d Inits and %d sample buffers", inits, samples)
		}
	})
	return r
}

func (r *rig) node() inventory.Node {
	r.t.Helper()
	node, err := r.source.Snapshot(r.t.Context())
	must(r.t, err)
	return node
}

// read reads all devices as they are now.
func (r *rig) read() []Device {
	r.t.Helper()
	return r.readOf(r.node())
}

func (r *rig) readOf(node inventory.Node) []Device {
	r.t.Helper()
	return r.reader.Read(r.t.Context(), node, time.Now()).Devices
}

// countingLibrary is a library that counts what is taken and not given back.
type countingLibrary struct {
	nvml.Interface

	mu             sync.Mutex
	inits, samples int
}

func (l *countingLibrary) count(ret nvml.Return, counter *int, by int) nvml.Return {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ret == nvml.SUCCESS {
		*counter += by
	}
	return ret
}

func (l *countingLibrary) held() (inits, samples int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inits, l.samples
}

func (l *countingLibrary) Init() nvml.Return { return l.count(l.Interface.Init(), &l.inits, 1) }

func (l *countingLibrary) Shutdown() nvml.Return {
	return l.count(l.Interface.Shutdown(), &l.inits, -1)
}

func (l *countingLibrary) GpmSampleAlloc() (nvml.GpmSample, nvml.Return) {
	sample, ret := l.Interface.GpmSampleAlloc()
	return sample, l.count(ret, &l.samples, 1)
}

func (l *countingLibrary) GpmSampleFree(s nvml.GpmSample) nvml.Return {
	return l.count(l.Interface.GpmSampleFree(s), &l.samples, -1)
}

const (
	uuid0 = "GPU-4f3a1b2c-0000-4000-8000-000000000001"
	mig0  = "MIG-4f3a1b2c-0000-4000-8000-0000000000aa"
)

// oneGPU is a node with a GPU.
func oneGPU(change ...func(*inventory.GPU)) inventory.Node {
	gpu := inventory.GPU{UUID: uuid0, Index: 2, Minor: ptr(3), PCIBusID: "0000:07:00.0", ProductName: "NVIDIA L4", Brand: "Nvidia"}
	for _, c := range change {
		c(&gpu)
	}
	return inventory.Node{
		DriverVersion:     inventory.Version{Raw: "580.95.05"},
		CUDADriverVersion: inventory.Version{Raw: "12.4"},
		GPUs:              []inventory.GPU{gpu},
	}
}

// newMock is a library with devices by UUID. Its mocks panic on calls that they lack; it
// has all functions but those that are missing.
func newMock(devices map[string]*mock.Device, missing ...string) *mock.Interface {
	return &mock.Interface{
		InitFunc:     func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc: func() nvml.Return { return nvml.SUCCESS },
		ExtensionsFunc: func() nvml.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(symbol string) error {
				if slices.Contains(missing, symbol) {
					return errors.New("undefined symbol")
				}
				return nil
			}}
		},
		DeviceGetHandleByUUIDFunc: func(uuid string) (nvml.Device, nvml.Return) {
			if d, ok := devices[uuid]; ok {
				return d, nvml.SUCCESS
			}
			return nil, nvml.ERROR_NOT_FOUND
		},
		GpmQueryDeviceSupportFunc: func(nvml.Device) (nvml.GpmSupport, nvml.Return) { return nvml.GpmSupport{}, nvml.SUCCESS },
		SystemGetNVMLVersionFunc:  func() (string, nvml.Return) { return "13.580.95.05", nvml.SUCCESS },
	}
}

// reading reads the one device of a node with a mocked library.
func readOne(t *testing.T, r *Reader, node inventory.Node, at time.Time) Device {
	t.Helper()
	s := r.Read(t.Context(), node, at)
	if len(s.Devices) != 1 {
		t.Fatalf("%d devices, want one", len(s.Devices))
	}
	return s.Devices[0]
}

func newReader(t *testing.T, lib nvml.Interface, fields ...string) *Reader {
	t.Helper()
	r, err := NewReader(lib, fields)
	must(t, err)
	return r
}

// wantValues compares the values of a device by field; a field that is not wanted must
// be absent.
func wantValues(t *testing.T, r *Reader, d Device, want map[string]Value) {
	t.Helper()
	for i, f := range r.Fields() {
		w, wanted := want[f.Name]
		w.Present = wanted
		if d.Values[i] != w {
			t.Errorf("%s of %s: %+v, want %+v", f.Name, d.UUID, d.Values[i], w)
		}
	}
}

func of(n float64) Value { return Value{Number: n} }

func words(s string) Value { return Value{Text: s} }
