package cdi

import (
	"maps"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// oddLibrary is an NVML that stops answering, or takes one device for another.
type oddLibrary struct {
	nvml.Interface

	mu sync.Mutex
	// aliases are the UUIDs of the devices that are found for other UUIDs.
	aliases map[string]string
	// hang is the UUID of which the first calls finds are answered, and the next
	// ones when released is closed. They say so on reached.
	hang     string
	finds    int
	reached  chan struct{}
	released chan struct{}
}

func newOddLibrary(lib nvml.Interface) *oddLibrary {
	return &oddLibrary{Interface: lib, reached: make(chan struct{}, 16), released: make(chan struct{})}
}

// setAliases makes the library find other devices from now on.
func (l *oddLibrary) setAliases(aliases map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.aliases = maps.Clone(aliases)
}

// DeviceGetHandleByUUID finds a device.
func (l *oddLibrary) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	if l.hangs(uuid) {
		l.reached <- struct{}{}
		<-l.released
	}
	l.mu.Lock()
	other, ok := l.aliases[uuid]
	l.mu.Unlock()
	if !ok {
		return l.Interface.DeviceGetHandleByUUID(uuid)
	}
	device, ret := l.Interface.DeviceGetHandleByUUID(other)
	return renamed{Device: device, uuid: uuid}, ret
}

func (l *oddLibrary) hangs(uuid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if uuid != l.hang {
		return false
	}
	l.finds--
	return l.finds < 0
}

// renamed is a device under another UUID.
type renamed struct {
	nvml.Device
	uuid string
}

// GetUUID is the UUID by which the device was found.
func (d renamed) GetUUID() (string, nvml.Return) { return d.uuid, nvml.SUCCESS }

func TestAGPUThatDoesNotAnswerKeepsNoOtherWaiting(t *testing.T) {
	tests := []struct {
		name  string
		finds int // How often the hung GPU is found before it hangs.
	}{
		{"when it is looked for", 0},
		{"while nvcdi asks about it", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb")
			partition := f.createMIG(t, 3, "1g.10gb", 3)
			lib := newOddLibrary(f.machine.NVML())
			lib.hang, lib.finds = f.gpus[0], test.finds
			f.Writer = f.newWriter(t, lib)
			f.write(t, f.gpus[1])

			hung := make(chan error, 1)
			go func() {
				_, err := f.Render(t.Context(), []Device{{Name: "hung", GPU: f.gpus[0]}})
				hung <- err
			}()
			<-lib.reached
			f.write(t, f.gpus[1]) // Known.
			f.write(t, f.gpus[2]) // Asked about now.
			f.write(t, partition)
			select {
			case err := <-hung:
				t.Errorf("the GPU that hangs was served: %v", err)
			default:
			}
			close(lib.released)
			if err := <-hung; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAGPUThatCameBackAsAnotherNumberHasItsNewNode(t *testing.T) {
	f := newFixture(t)
	lib := newOddLibrary(f.machine.NVML())
	f.Writer = f.newWriter(t, lib)
	node := func() string {
		t.Helper()
		spec, _ := f.write(t, f.gpus[0])
		return ownNodes(spec.Devices[0].ContainerEdits)[0]
	}
	if got := node(); got != "/dev/nvidia0" {
		t.Errorf("the node is %s", got)
	}
	lib.setAliases(map[string]string{f.gpus[0]: f.gpus[1], f.gpus[1]: f.gpus[0]})
	if got := node(); got != "/dev/nvidia1" {
		t.Errorf("the GPU is now /dev/nvidia1, the node is %s", got)
	}
}

// nvcdi asks of each handle whether it is that of a MIG device, by a function that the
// drivers before MIG lack: a call of it would end the process.
func TestAClaimIsPreparedOnADriverOlderThanMIG(t *testing.T) {
	f := newFixture(t, "t4")
	if err := f.machine.HideSymbols("nvmlDeviceIsMigDeviceHandle"); err != nil {
		t.Fatal(err)
	}
	f.Writer = f.newWriter(t, lazyLibrary{f.machine.NVML(), t})
	spec, _ := f.write(t, f.gpus[0])
	if got := ownNodes(spec.Devices[0].ContainerEdits); len(got) == 0 || got[0] != "/dev/nvidia0" {
		t.Errorf("the nodes are %v, want /dev/nvidia0 first", got)
	}
}

// lazyLibrary fails the test where NVIDIA's library, whose functions are bound at their
// first call, would end the process.
type lazyLibrary struct {
	nvml.Interface
	t *testing.T
}

func (l lazyLibrary) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	handle, ret := l.Interface.DeviceGetHandleByUUID(uuid)
	return lazyHandle{handle, l.t}, ret
}

type lazyHandle struct {
	nvml.Device
	t *testing.T
}

func (h lazyHandle) IsMigDeviceHandle() (bool, nvml.Return) {
	h.t.Error("symbol lookup error: undefined symbol: nvmlDeviceIsMigDeviceHandle")
	return h.Device.IsMigDeviceHandle()
}
