package fakegpu

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"apportion.dev/apportion/pkg/fake/fakeroot"
	"apportion.dev/apportion/pkg/fake/internal/chassis"
	"apportion.dev/apportion/pkg/fake/internal/notsupported"
)

// library is a machine's libnvidia-ml.
type library struct {
	*mock.Interface
	machine *Machine

	mu sync.Mutex
	// users counts the calls of Init that have had no Shutdown.
	users int
	// meters are the latest that were read, by GPU.
	meters map[string]meter
}

var (
	_ nvml.Interface         = (*library)(nil)
	_ nvml.ExtendedInterface = (*library)(nil)
)

func newLibrary(m *Machine) *library {
	return &library{Interface: notsupported.Interface, machine: m}
}

// Init loads the library.
func (l *library) Init() nvml.Return {
	st, err := l.machine.store.read()
	if err != nil {
		return nvml.ERROR_UNKNOWN
	}
	if st.DriverVersion == "" {
		return nvml.ERROR_DRIVER_NOT_LOADED
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	return nvml.SUCCESS
}

// InitWithFlags is Init; the flags change nothing here.
func (l *library) InitWithFlags(uint32) nvml.Return { return l.Init() }

// Shutdown takes one Init back.
func (l *library) Shutdown() nvml.Return {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users == 0 {
		return nvml.ERROR_UNINITIALIZED
	}
	l.users--
	return nvml.SUCCESS
}

// ErrorString describes a code in words.
func (l *library) ErrorString(r nvml.Return) string { return nvml.ErrorString(r) }

// Extensions gives access to LookupSymbol.
func (l *library) Extensions() nvml.ExtendedInterface { return l }

// LookupSymbol reports whether the machine's library has a function.
func (l *library) LookupSymbol(symbol string) error {
	st, err := l.machine.store.read()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(symbol, "nvml") || notsupported.Unfakeable[symbol] || !st.hasSymbol(symbol) {
		return fmt.Errorf("undefined symbol: %s", symbol)
	}
	return nil
}

// read is the start of every call: the machine's state, or the code that the
// call returns without one. The symbol is the C function's name.
func (l *library) read(symbol string) (*state, nvml.Return) {
	l.mu.Lock()
	users := l.users
	l.mu.Unlock()
	if users == 0 {
		return nil, nvml.ERROR_UNINITIALIZED
	}
	st, err := l.machine.store.read()
	switch {
	case err != nil:
		return nil, nvml.ERROR_UNKNOWN
	case st.DriverVersion == "":
		return nil, nvml.ERROR_DRIVER_NOT_LOADED
	case !st.hasSymbol(symbol):
		return nil, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return st, nvml.SUCCESS
}

// SystemGetDriverVersion gives, for example, "580.95.05".
func (l *library) SystemGetDriverVersion() (string, nvml.Return) {
	st, ret := l.read("nvmlSystemGetDriverVersion")
	if ret != nvml.SUCCESS {
		return "", ret
	}
	return st.DriverVersion, ret
}

// SystemGetNVMLVersion gives, for example, "13.580.95.05".
func (l *library) SystemGetNVMLVersion() (string, nvml.Return) {
	st, ret := l.read("nvmlSystemGetNVMLVersion")
	if ret != nvml.SUCCESS {
		return "", ret
	}
	return fakeroot.NVMLVersion(st.DriverVersion), ret
}

// SystemGetCudaDriverVersion gives 1000*major + 10*minor.
func (l *library) SystemGetCudaDriverVersion() (int, nvml.Return) {
	st, ret := l.read("nvmlSystemGetCudaDriverVersion")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return fakeroot.CUDAVersion(st.DriverVersion), ret
}

// SystemGetCudaDriverVersion_v2 is SystemGetCudaDriverVersion.
func (l *library) SystemGetCudaDriverVersion_v2() (int, nvml.Return) {
	st, ret := l.read("nvmlSystemGetCudaDriverVersion_v2")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return fakeroot.CUDAVersion(st.DriverVersion), ret
}

// SystemGetProcessName gives the name of a process that uses a GPU.
func (l *library) SystemGetProcessName(pid int) (string, nvml.Return) {
	st, ret := l.read("nvmlSystemGetProcessName")
	if ret != nvml.SUCCESS {
		return "", ret
	}
	for _, v := range st.present() {
		for _, p := range v.running() {
			if int(p.PID) == pid {
				return p.Name, ret
			}
		}
	}
	return "", nvml.ERROR_NOT_FOUND
}

// UnitGetCount gives 0: S-class units are no longer made.
func (l *library) UnitGetCount() (int, nvml.Return) { return 0, nvml.SUCCESS }

// DeviceGetCount counts the GPUs in the machine, also those that are lost.
func (l *library) DeviceGetCount() (int, nvml.Return) {
	st, ret := l.read("nvmlDeviceGetCount")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return len(st.present()), ret
}

func (l *library) device(uuid string) device {
	return device{Device: notsupported.Device, lib: l, uuid: uuid}
}

// DeviceGetHandleByIndex gives the GPUs by PCI address. A lost GPU keeps its
// index; its handle answers every call with ERROR_GPU_IS_LOST.
func (l *library) DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return) {
	st, ret := l.read("nvmlDeviceGetHandleByIndex")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	views := st.present()
	if index < 0 || index >= len(views) {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return l.device(views[index].uuid), ret
}

// search is the start of a call that looks at every GPU for one: as the header says, it
// returns ERROR_GPU_IS_LOST if any of them is lost.
func (l *library) search(symbol string) (*state, nvml.Return) {
	st, ret := l.read(symbol)
	if ret == nvml.SUCCESS && slices.ContainsFunc(st.present(), func(v view) bool { return v.Lost }) {
		return nil, nvml.ERROR_GPU_IS_LOST
	}
	return st, ret
}

// DeviceGetHandleByUUID finds a GPU or a MIG device.
func (l *library) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	st, ret := l.search("nvmlDeviceGetHandleByUUID")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	for _, v := range st.present() {
		if v.uuid == uuid {
			return l.device(uuid), ret
		}
		for _, m := range v.migDevices() {
			if m.uuid == uuid {
				return l.migDevice(v.uuid, uuid), ret
			}
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// DeviceGetHandleByUUIDV is DeviceGetHandleByUUID for an ASCII UUID.
func (l *library) DeviceGetHandleByUUIDV(uuid *nvml.UUID) (nvml.Device, nvml.Return) {
	if uuid == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	text, _, _ := strings.Cut(string(uuid.Value[:]), "\x00")
	return l.DeviceGetHandleByUUID(text)
}

// DeviceGetHandleByPciBusId finds a GPU by an address with or without the domain,
// which may have four or eight digits.
func (l *library) DeviceGetHandleByPciBusId(busID string) (nvml.Device, nvml.Return) {
	st, ret := l.read("nvmlDeviceGetHandleByPciBusId")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	busID = strings.ToLower(busID)
	for _, v := range st.present() {
		address := v.slot.PCIBusID()
		if busID == address || busID == "0000"+address || busID == strings.TrimPrefix(address, "0000:") {
			return l.device(v.uuid), ret
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// DeviceGetHandleBySerial finds a GPU by its board's serial number.
func (l *library) DeviceGetHandleBySerial(serial string) (nvml.Device, nvml.Return) {
	st, ret := l.search("nvmlDeviceGetHandleBySerial")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	for _, v := range st.present() {
		if chassis.Serial(st.Node, v.Slot, v.product.Name) == serial {
			return l.device(v.uuid), ret
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// EventSetCreate makes a set on which events can be waited for.
func (l *library) EventSetCreate() (nvml.EventSet, nvml.Return) {
	st, ret := l.read("nvmlEventSetCreate")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	set, err := newEventSet(l, st.LastEvent)
	if err != nil {
		return nil, nvml.ERROR_UNKNOWN
	}
	return set, ret
}
