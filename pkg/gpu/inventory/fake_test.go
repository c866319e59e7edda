package inventory

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
	"testing/fstest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// fakeLibrary is NVML with a few GPUs. Its mocks panic on calls that it lacks.
type fakeLibrary struct {
	*mock.Interface

	mu      sync.Mutex
	devices []*mock.Device
	driver  string
	initRet nvml.Return
	// users counts Inits without a Shutdown, inits all that succeeded.
	users, inits int
	// missing are symbols that the library lacks.
	missing []string
	events  chan nvml.EventData
}

func newFakeLibrary(devices ...*mock.Device) *fakeLibrary {
	f := &fakeLibrary{Interface: &mock.Interface{}, devices: devices, driver: "580.95.05", events: make(chan nvml.EventData, 8)}
	f.InitFunc = func() nvml.Return {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.initRet != nvml.SUCCESS {
			return f.initRet
		}
		f.users++
		f.inits++
		return nvml.SUCCESS
	}
	f.ShutdownFunc = func() nvml.Return {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.users == 0 {
			return nvml.ERROR_UNINITIALIZED
		}
		f.users--
		return nvml.SUCCESS
	}
	f.ExtensionsFunc = func() nvml.ExtendedInterface {
		return &mock.ExtendedInterface{LookupSymbolFunc: func(symbol string) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			// No fake can make a handler that works.
			if symbol == "nvmlDeviceGetGpuInstanceProfileInfoV" || slices.Contains(f.missing, symbol) {
				return errors.New("undefined symbol")
			}
			return nil
		}}
	}
	f.SystemGetDriverVersionFunc = func() (string, nvml.Return) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.driver, nvml.SUCCESS
	}
	f.SystemGetCudaDriverVersion_v2Func = func() (int, nvml.Return) { return 13000, nvml.SUCCESS }
	f.DeviceGetCountFunc = func() (int, nvml.Return) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.users == 0 {
			return 0, nvml.ERROR_UNINITIALIZED
		}
		return len(f.devices), nvml.SUCCESS
	}
	f.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if i >= len(f.devices) {
			return nil, nvml.ERROR_INVALID_ARGUMENT
		}
		if f.devices[i] == nil {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return f.devices[i], nvml.SUCCESS
	}
	f.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			WaitFunc: func(milliseconds uint32) (nvml.EventData, nvml.Return) {
				select {
				case event := <-f.events:
					return event, nvml.SUCCESS
				case <-time.After(time.Duration(milliseconds) * time.Millisecond):
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
			},
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	return f
}

func (f *fakeLibrary) set(change func(f *fakeLibrary)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// busID is an address as NVML writes it.
func busID(address string) (info nvml.PciInfo) {
	for i, c := range []byte(address) {
		info.BusId[i] = int8(c)
	}
	return info
}

const (
	uuid0 = "GPU-4f3a1b2c-0000-4000-8000-000000000001"
	uuid1 = "GPU-0badcafe-0000-4000-8000-000000000002"
)

// plainGPU is a GPU without MIG and NVLink, with every property that any library
// has.
func plainGPU(uuid, address string) *mock.Device {
	return &mock.Device{
		GetPciInfoFunc:     func() (nvml.PciInfo, nvml.Return) { return busID(address), nvml.SUCCESS },
		GetUUIDFunc:        func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetMinorNumberFunc: func() (int, nvml.Return) { return 3, nvml.SUCCESS },
		GetNameFunc:        func() (string, nvml.Return) { return "NVIDIA L4", nvml.SUCCESS },
		GetBrandFunc:       func() (nvml.BrandType, nvml.Return) { return nvml.BRAND_NVIDIA, nvml.SUCCESS },
		GetArchitectureFunc: func() (nvml.DeviceArchitecture, nvml.Return) {
			return nvml.DEVICE_ARCH_ADA, nvml.SUCCESS
		},
		GetCudaComputeCapabilityFunc: func() (int, int, nvml.Return) { return 8, 9, nvml.SUCCESS },
		GetMemoryInfoFunc:            func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 24152899584}, nvml.SUCCESS },
		GetMigModeFunc:               func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED },
		GetMemoryLimits_v1Func: func(string) (nvml.MemoryLimits_v1, nvml.Return) {
			return nvml.MemoryLimits_v1{}, nvml.ERROR_NOT_SUPPORTED
		},
		GetNvLinkStateFunc: func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED },
		GetSupportedEventTypesFunc: func() (uint64, nvml.Return) {
			return nvml.EventTypeXidCriticalError | nvml.EventTypePState, nvml.SUCCESS
		},
		RegisterEventsFunc: func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS },
	}
}

// lose makes every call of a GPU answer that it is lost.
func lose(d *mock.Device) {
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.ERROR_GPU_IS_LOST }
	d.GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	d.GetMinorNumberFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
	d.GetNameFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	d.GetBrandFunc = func() (nvml.BrandType, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
	d.GetArchitectureFunc = func() (nvml.DeviceArchitecture, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
	d.GetCudaComputeCapabilityFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_GPU_IS_LOST }
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
}

// sysFS is a sysfs in which the addresses are at the NVIDIA driver.
func sysFS(addresses ...string) fstest.MapFS {
	tree := fstest.MapFS{}
	for _, address := range addresses {
		tree["devices/pci0000:00/0000:00:01.0/"+address+"/numa_node"] = &fstest.MapFile{Data: []byte("1\n")}
		tree["bus/pci/devices/"+address] = &fstest.MapFile{Mode: 0o777 | fs.ModeSymlink, Data: []byte("../../../devices/pci0000:00/0000:00:01.0/" + address)}
		tree["bus/pci/drivers/nvidia/"+address] = &fstest.MapFile{Mode: 0o777 | fs.ModeSymlink, Data: []byte("../../../../devices/pci0000:00/0000:00:01.0/" + address)}
	}
	return tree
}

// wrapInit makes Init call before first, with the library locked.
func wrapInit(f *fakeLibrary, before func(f *fakeLibrary)) func() nvml.Return {
	init := f.InitFunc
	return func() nvml.Return {
		f.set(before)
		return init()
	}
}

// lockedFS is a file system that changes while it is read.
type lockedFS struct {
	mu   sync.Mutex
	tree fstest.MapFS
}

func (l *lockedFS) set(tree fstest.MapFS) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tree = tree
}

func (l *lockedFS) current() fstest.MapFS {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tree
}

func (l *lockedFS) Open(name string) (fs.File, error)          { return l.current().Open(name) }
func (l *lockedFS) ReadLink(name string) (string, error)       { return l.current().ReadLink(name) }
func (l *lockedFS) Lstat(name string) (fs.FileInfo, error)     { return l.current().Lstat(name) }
func (l *lockedFS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(l.current(), name) }
