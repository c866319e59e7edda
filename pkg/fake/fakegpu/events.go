package fakegpu

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/fsnotify/fsnotify"

	"apportion.dev/apportion/pkg/fake/internal/notsupported"
)

// recheckPeriod is how often a waiting set looks at the machine although nothing
// told it to; it serves file systems that do not report changes.
const recheckPeriod = time.Second

// eventSet waits for events of the GPUs registered with it. It must be freed.
type eventSet struct {
	nvml.EventSet
	lib     *library
	watcher *fsnotify.Watcher
	freed   chan struct{}

	mu sync.Mutex
	// types are the registered event types by GPU.
	types map[string]uint64
	// last is the sequence number of the last event that was looked at.
	last uint64
}

func newEventSet(l *library, last uint64) (*eventSet, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch the fake machine: %w", err)
	}
	if err := watcher.Add(l.machine.store.dir); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the fake machine: %w", err), watcher.Close())
	}
	return &eventSet{
		EventSet: notsupported.EventSet, lib: l, watcher: watcher, freed: make(chan struct{}),
		types: map[string]uint64{}, last: last,
	}, nil
}

// supportedEvents are the event types of a GPU.
func (v view) supportedEvents() uint64 {
	types := uint64(nvml.EventTypeSingleBitEccError | nvml.EventTypeDoubleBitEccError | nvml.EventTypePState |
		nvml.EventTypeXidCriticalError | nvml.EventTypeClock)
	if v.product.MIG != nil {
		types |= nvml.EventMigConfigChange
	}
	return types
}

func (d device) GetSupportedEventTypes() (uint64, nvml.Return) {
	return get(d, "GetSupportedEventTypes", view.supportedEvents)
}

func (d device) RegisterEvents(types uint64, set nvml.EventSet) nvml.Return {
	v, ret := d.read("RegisterEvents")
	if ret != nvml.SUCCESS {
		return ret
	}
	s, ok := set.(*eventSet)
	switch {
	case !ok || types == 0:
		return nvml.ERROR_INVALID_ARGUMENT
	case types&^v.supportedEvents() != 0:
		return nvml.ERROR_NOT_SUPPORTED
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.types[d.uuid] |= types
	return nvml.SUCCESS
}

// next takes the oldest event that was registered for.
func (s *eventSet) next() (nvml.EventData, nvml.Return) {
	st, ret := s.lib.read("nvmlEventSetWait")
	if ret != nvml.SUCCESS {
		return nvml.EventData{}, ret
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range st.Events {
		if e.Sequence <= s.last {
			continue
		}
		s.last = e.Sequence
		if s.types[e.UUID]&e.Type == 0 {
			continue
		}
		return nvml.EventData{
			Device: s.lib.device(e.UUID), EventType: e.Type, EventData: e.Data,
			GpuInstanceId: e.GPUInstance, ComputeInstanceId: e.ComputeInstance,
		}, ret
	}
	return nvml.EventData{}, nvml.ERROR_TIMEOUT
}

// Wait gives the next event, or ERROR_TIMEOUT after the milliseconds. It wakes
// for events that other processes raise.
func (s *eventSet) Wait(timeoutMilliseconds uint32) (nvml.EventData, nvml.Return) {
	timeout := time.NewTimer(time.Duration(timeoutMilliseconds) * time.Millisecond)
	defer timeout.Stop()
	recheck := time.NewTicker(recheckPeriod)
	defer recheck.Stop()
	for {
		if e, ret := s.next(); ret != nvml.ERROR_TIMEOUT {
			return e, ret
		}
		select {
		case <-s.watcher.Events:
		case <-s.watcher.Errors:
		case <-recheck.C:
		case <-s.freed:
			return nvml.EventData{}, nvml.ERROR_UNINITIALIZED
		case <-timeout.C:
			return s.next()
		}
	}
}

// Free ends the set and every Wait on it.
func (s *eventSet) Free() nvml.Return {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.freed:
		return nvml.ERROR_UNINITIALIZED
	default:
	}
	close(s.freed)
	if err := s.watcher.Close(); err != nil {
		return nvml.ERROR_UNKNOWN
	}
	return nvml.SUCCESS
}
