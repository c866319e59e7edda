package inventory

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"
)

const (
	// eventWait is how long one wait for an event lasts at most, in milliseconds.
	// A wait cannot be interrupted, so it bounds how long stopping takes.
	eventWait = 500
	// wantedEvents are those after which a GPU may look different.
	wantedEvents = uint64(nvml.EventTypeXidCriticalError | nvml.EventMigConfigChange | nvml.EventTypeGpuUnavailableError)
)

// eventListener waits for NVML's events about a fixed set of GPUs. The zero value
// listens to nothing.
type eventListener struct {
	// key says for which GPUs and driver it was made.
	key string
	// wake has a value after events, and is nil if none are listened to.
	wake chan struct{}

	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	broken bool
}

// eventKey changes when a listener has to be made anew.
func eventKey(node Node) string {
	parts := []string{node.Problem, node.DriverVersion.Raw}
	for _, gpu := range node.GPUs {
		// A lost GPU ends every wait of a listener that includes it.
		parts = append(parts, gpu.PCIBusID, gpu.UUID, strconv.FormatBool(gpu.Problem == problemLost))
	}
	return strings.Join(parts, "\n")
}

// listen starts to wait for events. Where there are none it returns a listener
// that never wakes, and polling alone finds what changes. It ends with ctx, or by
// stop, which waits for it.
func (n *NVML) listen(ctx context.Context, key string) *eventListener {
	logger := klog.FromContext(ctx)
	l := &eventListener{key: key}
	if !n.hold() {
		return l
	}
	set, reporting := n.registerEvents(logger)
	if len(reporting) == 0 {
		if set != nil {
			freeEvents(logger, set)
		}
		n.release(logger)
		return l
	}
	ctx, cancel := context.WithCancel(ctx)
	l.cancel = cancel
	l.wake = make(chan struct{}, 1)
	l.done.Go(func() {
		defer n.release(logger)
		defer freeEvents(logger, set)
		l.run(ctx, set, func(event nvml.EventData) { n.noteEvent(logger, reporting, event) })
	})
	return l
}

// reporter is a GPU that reports events.
type reporter struct {
	dev  nvml.Device
	uuid string
}

// noteEvent notes what an event says about a GPU's health.
func (n *NVML) noteEvent(logger klog.Logger, reporting []reporter, event nvml.EventData) {
	if event.EventType != nvml.EventTypeXidCriticalError {
		logger.V(2).Info("NVML event", "type", event.EventType)
		return
	}
	uuid := uuidOf(reporting, event.Device)
	if uuid == "" {
		logger.Error(nil, "An unknown GPU reported an error", "xid", event.EventData)
		return
	}
	key := xidKey{code: int(event.EventData), instance: event.GpuInstanceId}
	if !newReading(n.lib, n.sysfs, logger).has("nvmlEventSetWait_v2") {
		// The first version of the call does not say which instance.
		key.instance = noInstance
	}
	counts := n.xids.add(uuid, key)
	logger.Info("GPU reported an error", "gpu", uuid, "xid", key.code, "gpuInstance", int32(key.instance), "counts", counts)
}

// uuidOf is the UUID of the GPU that an event is about. One that fell off the bus
// does not say it any more, but its handle is the one that was registered.
func uuidOf(reporting []reporter, dev nvml.Device) string {
	for _, r := range reporting {
		if r.dev == dev {
			return r.uuid
		}
	}
	if dev == nil {
		return ""
	}
	uuid, ret := dev.GetUUID()
	if ret != nvml.SUCCESS {
		return ""
	}
	return uuid
}

// hold is the listener's own Init: the library must stay while it waits.
func (n *NVML) hold() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listening = n.lib.Init() == nvml.SUCCESS
	return n.listening
}

// release gives back what hold took.
func (n *NVML) release(logger klog.Logger) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listening = false
	if ret := n.lib.Shutdown(); ret != nvml.SUCCESS && ret != nvml.ERROR_UNINITIALIZED {
		logger.V(2).Info("NVML did not shut down", "reason", ret.Error())
	}
}

func freeEvents(logger klog.Logger, set nvml.EventSet) {
	if ret := set.Free(); ret != nvml.SUCCESS && ret != nvml.ERROR_UNINITIALIZED {
		logger.V(2).Info("NVML event set was not freed", "reason", ret.Error())
	}
}

// registerEvents makes an event set and returns the GPUs that report to it. In
// MIG mode a GPU reports for its instances.
func (n *NVML) registerEvents(logger klog.Logger) (nvml.EventSet, []reporter) {
	r := newReading(n.lib, n.sysfs, logger)
	for _, symbol := range []string{"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes"} {
		if !r.has(symbol) {
			return nil, nil
		}
	}
	if !r.has("nvmlEventSetWait_v2", "nvmlEventSetWait") {
		return nil, nil
	}
	set, ret := n.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, nil
	}
	count, ret := n.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return set, nil
	}
	var reporting []reporter
	for i := range count {
		dev, ret := n.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		supported, ret := dev.GetSupportedEventTypes()
		if ret != nvml.SUCCESS || supported&wantedEvents == 0 {
			continue
		}
		if ret := dev.RegisterEvents(supported&wantedEvents, set); ret != nvml.SUCCESS {
			logger.V(4).Info("No events from GPU", "index", i, "reason", ret.Error())
			continue
		}
		uuid, ret := dev.GetUUID()
		if ret != nvml.SUCCESS {
			logger.V(4).Info("UUID of GPU cannot be read", "index", i, "reason", ret.Error())
		}
		reporting = append(reporting, reporter{dev: dev, uuid: uuid})
	}
	return set, reporting
}

func (l *eventListener) run(ctx context.Context, set nvml.EventSet, note func(nvml.EventData)) {
	logger := klog.FromContext(ctx)
	for ctx.Err() == nil {
		switch event, ret := set.Wait(eventWait); ret {
		case nvml.SUCCESS:
			note(event)
			l.notify()
		case nvml.ERROR_TIMEOUT:
		default:
			// A GPU was lost, or the driver went away. The next poll listens anew.
			logger.V(2).Info("Waiting for NVML events failed", "reason", ret.Error())
			l.mu.Lock()
			l.broken = true
			l.mu.Unlock()
			l.notify()
			return
		}
	}
}

func (l *eventListener) notify() {
	select {
	case l.wake <- struct{}{}:
	default: // one is waiting already
	}
}

// active says whether events are listened to.
func (l *eventListener) active() bool { return l.cancel != nil }

// failed says whether listening ended by itself.
func (l *eventListener) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// stop ends listening and waits for it. It may be called more than once. The
// listener's key no longer fits anything afterwards.
func (l *eventListener) stop() {
	l.key = ""
	if l.cancel == nil {
		return
	}
	l.cancel()
	l.done.Wait()
	l.cancel, l.wake = nil, nil
}
