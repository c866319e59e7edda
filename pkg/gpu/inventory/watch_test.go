package inventory

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// watcher collects what Watch reports, as the UUIDs and the problem of each node.
type watcher struct {
	mu      sync.Mutex
	reports []string
	ended   chan struct{}
	cancel  context.CancelFunc
}

func watch(t *testing.T, n *NVML) *watcher {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{ended: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(w.ended)
		n.Watch(ctx, func(node Node) {
			var uuids []string
			for _, gpu := range node.GPUs {
				uuids = append(uuids, gpu.UUID)
			}
			report := node.DriverVersion.Raw + " " + strings.Join(uuids, ",")
			if node.Problem != "" {
				report = "problem"
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reports = append(w.reports, report)
		})
	}()
	return w
}

func (w *watcher) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.reports, want) {
		t.Errorf("%s: reports are %q, want %q", when, w.reports, want)
	}
	w.reports = nil
}

// stop ends the watch and fails if that takes more than a second.
func (w *watcher) stop(t *testing.T) {
	t.Helper()
	w.cancel()
	select {
	case <-w.ended:
	case <-time.After(time.Second):
		t.Error("Watch has not ended a second after its context")
		<-w.ended
	}
}

const (
	report0  = "580.95.05 " + uuid0
	report01 = "580.95.05 " + uuid0 + "," + uuid1
)

func TestWatchPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"))
		lib.missing = []string{"nvmlEventSetCreate"}
		w := watch(t, NewNVML(Options{Library: lib, SysFS: sysFS()}))
		w.expect(t, "at start", report0)
		time.Sleep(time.Minute)
		w.expect(t, "while nothing changes")
		lib.set(func(f *fakeLibrary) { f.devices = append(f.devices, plainGPU(uuid1, "00000000:3B:00.0")) })
		time.Sleep(10 * time.Second)
		w.expect(t, "after a GPU came", report01)
		lib.set(func(f *fakeLibrary) { f.devices = f.devices[:1] })
		time.Sleep(10 * time.Second)
		w.expect(t, "after a GPU went", report0)
		lib.set(func(f *fakeLibrary) { f.driver = "590.10.01" })
		time.Sleep(10 * time.Second)
		w.expect(t, "after the driver changed", "590.10.01 "+uuid0)
		w.stop(t)
	})
}

// A device goes, comes back and goes again. The driver reads the
// node itself in between: what it saw then is not so any more, though it is what
// Watch reported last.
func TestAPartitionThatIsDestroyedTwiceIsSeenToBeGoneTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"))
		lib.missing = []string{"nvmlEventSetCreate"}
		source := NewNVML(Options{Library: lib, SysFS: sysFS()})
		w := watch(t, source)
		w.expect(t, "at start", report0)
		lib.set(func(f *fakeLibrary) { f.devices = append(f.devices, plainGPU(uuid1, "00000000:3B:00.0")) })
		if node, err := source.Snapshot(t.Context()); err != nil || len(node.GPUs) != 2 {
			t.Fatalf("read %+v, %v; want 2 GPUs", node, err)
		}
		lib.set(func(f *fakeLibrary) { f.devices = f.devices[:1] })
		time.Sleep(10 * time.Second)
		w.expect(t, "after what only Snapshot saw went", report0)
		time.Sleep(time.Minute)
		w.expect(t, "while nothing changes")
		w.stop(t)
	})
}

func TestASourceThatIsNotReadIsNotCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"))
		source := NewNVML(Options{Library: lib, SysFS: sysFS(), PollInterval: 10 * time.Second})
		check := func(when string, want bool) {
			t.Helper()
			if got := source.Current(); got != want {
				t.Errorf("%s: current is %t, want %t", when, got, want)
			}
		}
		check("before the first read", false)
		if _, err := source.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("after it", true)
		time.Sleep(30 * time.Second)
		check("30 seconds later", true)
		time.Sleep(time.Second)
		check("after another second", false)
	})
}

func TestWatchStartsWithoutDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"))
		lib.initRet = nvml.ERROR_LIBRARY_NOT_FOUND
		w := watch(t, NewNVML(Options{Library: lib, SysFS: sysFS(), PollInterval: 3 * time.Second}))
		w.expect(t, "at start", "problem")
		time.Sleep(time.Minute)
		w.expect(t, "while there is no driver")
		lib.set(func(f *fakeLibrary) { f.initRet = nvml.SUCCESS })
		time.Sleep(3 * time.Second)
		w.expect(t, "after the driver was installed", report0)
		w.stop(t)
	})
}

func TestWatchStartsWithoutGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFakeLibrary()
		w := watch(t, NewNVML(Options{Library: lib, SysFS: sysFS()}))
		w.expect(t, "at start", "580.95.05 ")
		lib.set(func(f *fakeLibrary) { f.devices = []*mock.Device{plainGPU(uuid0, "00000000:07:00.0")} })
		time.Sleep(10 * time.Second)
		w.expect(t, "after a GPU came", report0)
		w.stop(t)
	})
}

func TestWatchWakesOnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"))
		w := watch(t, NewNVML(Options{Library: lib, SysFS: sysFS(), PollInterval: time.Hour}))
		w.expect(t, "at start", report0)
		lib.set(func(f *fakeLibrary) { f.devices = append(f.devices, plainGPU(uuid1, "00000000:3B:00.0")) })
		time.Sleep(time.Second)
		w.expect(t, "before an event")
		// A burst of events is one reading, once it is over.
		for range 5 {
			lib.events <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 79}
			time.Sleep(40 * time.Millisecond)
		}
		w.expect(t, "in a burst of events")
		time.Sleep(20 * time.Millisecond)
		w.expect(t, "after events", report01)
		lib.events <- nvml.EventData{EventType: nvml.EventTypeXidCriticalError, EventData: 79}
		time.Sleep(time.Second)
		w.expect(t, "after an event that changed nothing")
		w.stop(t)
		// One Init is the source's own, until Close.
		if lib.users != 1 {
			t.Errorf("%d Inits are left, want 1", lib.users)
		}
	})
}

func TestWatchListensAgainAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"))
		create, waits := lib.EventSetCreateFunc, 0
		lib.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
			set, ret := create()
			failing := set.(*mock.EventSet)
			failing.WaitFunc = func(uint32) (nvml.EventData, nvml.Return) {
				waits++
				return nvml.EventData{}, nvml.ERROR_GPU_IS_LOST
			}
			return failing, ret
		}
		w := watch(t, NewNVML(Options{Library: lib, SysFS: sysFS()}))
		w.expect(t, "at start", report0)
		time.Sleep(35 * time.Second)
		w.expect(t, "while waiting fails")
		// Once at start and at each of three polls, not in a busy loop.
		if waits != 4 {
			t.Errorf("waited %d times, want 4", waits)
		}
		w.stop(t)
	})
}

func TestWatchEndsWhileWaitingForEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, NewNVML(Options{Library: newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0")), SysFS: sysFS()}))
		w.expect(t, "at start", report0)
		time.Sleep(100 * time.Millisecond)
		w.stop(t)
	})
}

// slotted is a machine with a GPU and a free slot for another one.
func slotted() (lib *fakeLibrary, tree *lockedFS, plugIn func()) {
	tree = &lockedFS{}
	tree.set(sysFS("0000:07:00.0"))
	lib = newFakeLibrary(plainGPU(uuid0, "00000000:07:00.0"))
	// NVML lists a new GPU only after it was shut down by all and initialised.
	pluggedIn := false
	lib.InitFunc = wrapInit(lib, func(f *fakeLibrary) {
		if pluggedIn && f.users == 0 {
			f.devices = append(f.devices[:1:1], plainGPU(uuid1, "00000000:3B:00.0"))
		}
	})
	return lib, tree, func() {
		lib.set(func(*fakeLibrary) { pluggedIn = true })
		tree.set(sysFS("0000:07:00.0", "0000:3b:00.0"))
	}
}

func TestPluggedInGPUIsSeenThoughEventsAreListenedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib, tree, plugIn := slotted()
		w := watch(t, NewNVML(Options{Library: lib, SysFS: tree}))
		w.expect(t, "at start", report0)
		plugIn()
		time.Sleep(11 * time.Second)
		w.expect(t, "after a GPU was plugged in", report01)
		w.stop(t)
	})
}

func TestPluggedInGPUIsSeenThoughSomebodyElseReadsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib, tree, plugIn := slotted()
		source := NewNVML(Options{Library: lib, SysFS: tree})
		w := watch(t, source)
		w.expect(t, "at start", report0)
		plugIn()
		if _, err := source.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		w.expect(t, "after a GPU was plugged in", report01)
		w.stop(t)
		if lib.users != 1 {
			t.Errorf("%d Inits are left, want 1", lib.users)
		}
	})
}
