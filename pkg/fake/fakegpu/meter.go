package fakegpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/internal/atomicfile"
)

// meterDir is the folder with a file for each GPU whose load has changed.
const meterDir = "meters"

// meter is how long a GPU was busy since its driver was loaded: the utilization summed
// up over time. From it come energy and all else that only grows.
//
// A file has it as it was when the load last changed, beside the state, which does not
// change with time. It is written before the state with the new load: whoever reads the
// state first and then the meter does not see an old meter with a new load.
type meter struct {
	// StartMicros and AtMicros are from when to when it counted (Unix time in
	// microseconds).
	StartMicros int64 `json:"startMicros"`
	AtMicros    int64 `json:"atMicros"`
	// Busy is the GPU's utilization times microseconds, MIGDevices that of its MIG
	// devices by UUID. A device that is busy all the time has the utilization whole.
	Busy       uint64            `json:"busy"`
	MIGDevices map[string]uint64 `json:"migDevices,omitempty"`
}

func (v view) meterPath() string { return filepath.Join(v.state.dir, meterDir, v.uuid+".json") }

// meter is the GPU's meter at the time that its load last changed.
func (v view) meter() (meter, error) {
	data, err := os.ReadFile(v.meterPath())
	if errors.Is(err, fs.ErrNotExist) {
		created := v.state.CreatedSeconds * 1_000_000
		return meter{StartMicros: created, AtMicros: created}, nil
	}
	var m meter
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return meter{}, fmt.Errorf("read the meter of GPU %s: %w", v.uuid, err)
	}
	return m, nil
}

// meterAt is the GPU's meter at a time. Processes that ended count until somebody takes
// them off the list.
func (v view) meterAt(now time.Time) (meter, error) {
	m, err := v.meter()
	if err != nil {
		return meter{}, err
	}
	elapsed := uint64(max(now.UnixMicro()-m.AtMicros, 0))
	gpu, migDevices := v.activity(v.Allocations)
	m.AtMicros += int64(elapsed)
	m.Busy += gpu * elapsed
	m.MIGDevices = maps.Clone(m.MIGDevices)
	if m.MIGDevices == nil {
		m.MIGDevices = map[string]uint64{}
	}
	for uuid, busy := range migDevices {
		m.MIGDevices[uuid] += busy * elapsed
	}
	return m, nil
}

// settle brings the meter up to now. It is called before a change of the load, under
// the machine's lock.
func (v view) settle() error {
	m, err := v.meterAt(time.Now())
	if err != nil {
		return err
	}
	return v.writeMeter(m)
}

// resetMeter lets the meter begin now.
func (v view) resetMeter() error {
	now := time.Now().UnixMicro()
	return v.writeMeter(meter{StartMicros: now, AtMicros: now})
}

func (v view) writeMeter(m meter) error {
	data, err := json.Marshal(m)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(v.meterPath()), 0o755)
	}
	if err == nil {
		err = atomicfile.WriteVolatile(v.meterPath(), data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the meter of GPU %s: %w", v.uuid, err)
	}
	return nil
}

// reap takes processes that ended off the GPU's list: what they did ends now.
func (m *Machine) reap(uuid string) error {
	err := m.update(func(st *state) error {
		v, ok := st.byUUID(uuid)
		if !ok {
			return nil
		}
		if err := v.settle(); err != nil {
			return err
		}
		v.Allocations = v.alive()
		return nil
	})
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		// Who may only look leaves it to others, until when the processes count.
		return nil
	}
	return err
}

// readMeter is the start of a call that needs the meter as it is now.
func (d device) readMeter(call string) (view, meter, nvml.Return) {
	v, ret := d.read(call)
	if ret != nvml.SUCCESS {
		return view{}, meter{}, ret
	}
	m, err := d.meter(v)
	if err != nil {
		return view{}, meter{}, nvml.ERROR_UNKNOWN
	}
	return v, m, ret
}

func (d device) meter(v view) (meter, error) {
	if len(v.alive()) != len(v.Allocations) {
		if err := d.lib.machine.reap(d.uuid); err != nil {
			return meter{}, err
		}
		st, err := d.lib.machine.store.read()
		if err != nil {
			return meter{}, err
		}
		if again, ok := st.byUUID(d.uuid); ok {
			v = again
		}
	}
	m, err := v.meterAt(time.Now())
	if err != nil {
		return meter{}, err
	}
	return d.lib.neverBack(d.uuid, m), nil
}

// neverBack keeps a meter from going back: a state that was just being replaced counts a
// load a moment too long.
func (l *library) neverBack(uuid string, m meter) meter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.meters[uuid]; ok && last.StartMicros == m.StartMicros {
		m.AtMicros, m.Busy = max(m.AtMicros, last.AtMicros), max(m.Busy, last.Busy)
		for device, busy := range last.MIGDevices {
			m.MIGDevices[device] = max(m.MIGDevices[device], busy)
		}
	}
	if l.meters == nil {
		l.meters = map[string]meter{}
	}
	m.MIGDevices = maps.Clone(m.MIGDevices)
	l.meters[uuid] = m
	return m
}

// milliJoules is the energy drawn: an idle GPU's all the time, and the rest up to the
// limit while it was busy.
func (v view) milliJoules(m meter) uint64 {
	p := v.product.Power
	elapsed := uint64(max(m.AtMicros-m.StartMicros, 0))
	return elapsed*uint64(p.IdleWatts)/1000 + m.Busy/whole*uint64(p.LimitWatts-p.IdleWatts)/1000
}
