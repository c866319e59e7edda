package fakegpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/internal/chassis"
)

// XIDFallenOffBus is the XID that is raised for a GPU that is lost.
const XIDFallenOffBus = 79

// changeGPU changes one GPU, named by index, UUID or PCI address.
func (m *Machine) changeGPU(id string, change func(view) error) error {
	return m.update(func(st *state) error {
		v, err := st.find(id)
		if err != nil {
			return err
		}
		return change(v)
	})
}

// AddGPU plugs a GPU in and returns its UUID. The slot is the first free one if
// negative. A GPU that was pulled out of the slot comes back if its product is
// named, or none; then it is in order again.
func (m *Machine) AddGPU(product string, slotNumber int) (uuid string, err error) {
	err = m.update(func(st *state) error {
		g, err := st.slotForNew(slotNumber)
		if err != nil {
			return err
		}
		name := product
		if name == "" {
			name = g.Product
		}
		if name == "" {
			return inputErrorf("slot %d was never used: name a product", g.Slot)
		}
		if _, err := LookupProduct(name); err != nil {
			return err
		}
		*g = gpu{Slot: g.Slot, Product: name}
		uuid = chassis.GPUUUID(st.Node, g.Slot, name)
		if err := st.view(g).resetMeter(); err != nil {
			return err
		}
		st.sortGPUs()
		return nil
	})
	return uuid, err
}

func (s *state) sortGPUs() {
	slices.SortFunc(s.GPUs, func(a, b gpu) int { return a.Slot - b.Slot })
}

// slotForNew gives the entry of a free slot, made if there was none.
func (s *state) slotForNew(number int) (*gpu, error) {
	if number >= MaxGPUs {
		return nil, inputErrorf("no slot %d: the last one is %d", number, MaxGPUs-1)
	}
	for candidate := range MaxGPUs {
		if number >= 0 && candidate != number {
			continue
		}
		i := slices.IndexFunc(s.GPUs, func(g gpu) bool { return g.Slot == candidate })
		switch {
		case i < 0:
			s.GPUs = append(s.GPUs, gpu{Slot: candidate, Removed: true})
			return &s.GPUs[len(s.GPUs)-1], nil
		case s.GPUs[i].Removed:
			return &s.GPUs[i], nil
		}
	}
	if number >= 0 {
		return nil, inputErrorf("slot %d holds a GPU already", number)
	}
	return nil, fmt.Errorf("all %d slots hold a GPU already", MaxGPUs)
}

// RemoveGPU pulls a GPU out. Its partitions, load and faults are gone.
func (m *Machine) RemoveGPU(id string) error {
	return m.changeGPU(id, func(v view) error {
		*v.gpu = gpu{Slot: v.Slot, Product: v.gpu.Product, Removed: true}
		return nil
	})
}

// LoseGPU lets a GPU fall off the bus: it is still counted, but every call on it
// returns ERROR_GPU_IS_LOST. XID 79 is raised.
func (m *Machine) LoseGPU(id string) error {
	return m.changeGPU(id, func(v view) error {
		if v.Lost {
			return nil
		}
		v.Lost = true
		v.state.addEvent(v.uuid, nvml.EventTypeXidCriticalError, XIDFallenOffBus)
		return nil
	})
}

// RestoreGPU brings a lost GPU back, as a reset does.
func (m *Machine) RestoreGPU(id string) error {
	return m.changeGPU(id, func(v view) error {
		v.Lost = false
		return nil
	})
}

// ResetGPU resets a GPU: it is no longer lost, and a pending MIG mode is applied.
// As on real ones MIG partitions do not survive.
func (m *Machine) ResetGPU(id string) error {
	return m.changeGPU(id, func(v view) error {
		if v.busy() {
			return fmt.Errorf("GPU %s cannot be reset: processes are using it", v.uuid)
		}
		v.Lost = false
		if v.MIGEnabled != v.MIGPending || len(v.Instances) > 0 {
			v.MIGEnabled = v.MIGPending
			v.Instances = nil
			v.state.addMIGEvent(v.uuid)
		}
		return nil
	})
}

// Fail lets the calls that read a property of a GPU return a code. The property
// is one of [Properties], the code one of [FailureCodes].
func (m *Machine) Fail(id, property, code string) error {
	if err := checkProperty(property); err != nil {
		return err
	}
	if err := checkFailureCode(code); err != nil {
		return err
	}
	return m.changeGPU(id, func(v view) error {
		if v.Failures == nil {
			v.Failures = map[string]string{}
		}
		v.Failures[property] = code
		return nil
	})
}

// Heal ends the failure of a property, or of all if it is empty.
func (m *Machine) Heal(id, property string) error {
	if property != "" {
		if err := checkProperty(property); err != nil {
			return err
		}
	}
	return m.changeGPU(id, func(v view) error {
		if property == "" {
			v.Failures = nil
		}
		delete(v.Failures, property)
		return nil
	})
}

// RaiseXID raises an XID on a GPU. Whoever waits for it, in any process, wakes.
func (m *Machine) RaiseXID(id string, xid uint64) error {
	return m.changeGPU(id, func(v view) error {
		v.state.addEvent(v.uuid, nvml.EventTypeXidCriticalError, xid)
		return nil
	})
}

// RaiseInstanceXID raises an XID in one GPU instance of a GPU in MIG mode.
func (m *Machine) RaiseInstanceXID(id string, xid uint64, instance int) error {
	return m.changeGPU(id, func(v view) error {
		if _, ok := v.instance(instance); !ok {
			return inputErrorf("GPU %s has no GPU instance %d", v.uuid, instance)
		}
		v.state.addInstanceEvent(v.uuid, nvml.EventTypeXidCriticalError, xid, uint32(instance))
		return nil
	})
}

// SetLoad sets what runs on a GPU.
func (m *Machine) SetLoad(id string, load Load) error {
	return m.UpdateLoad(id, func(current *Load) error {
		*current = load
		return nil
	})
}

// UpdateLoad changes what runs on a GPU.
func (m *Machine) UpdateLoad(id string, change func(*Load) error) error {
	return m.changeGPU(id, func(v view) error {
		if err := v.settle(); err != nil {
			return err
		}
		if err := change(&v.Load); err != nil {
			return err
		}
		return v.checkLoad()
	})
}

func (v view) checkLoad() error {
	if v.Load.GPUPercent > 100 || v.Load.MemoryPercent > 100 {
		return inputErrorf("utilization is in percent, 0 to 100")
	}
	available := (v.product.Memory.TotalMiB - v.product.Memory.ReservedMiB) * mebibyte
	if used := max(v.Load.MemoryBytes, memoryOf(v.Load.Processes)); used > available {
		return inputErrorf("%d bytes of memory cannot be in use: GPU %s has %d", used, v.uuid, available)
	}
	for _, p := range v.Load.Processes {
		if p.MIGDevice == "" {
			continue
		}
		known := slices.ContainsFunc(v.migDevices(), func(m migView) bool { return m.uuid == p.MIGDevice })
		if !known {
			return inputErrorf("process %d: GPU %s has no MIG device %q", p.PID, v.uuid, p.MIGDevice)
		}
	}
	return nil
}

// SetDriverVersion installs another driver: the driver root's libraries follow.
// "none" unloads it. What counts from when the driver was loaded begins anew.
func (m *Machine) SetDriverVersion(version string) error {
	version, err := parseDriverVersion(version)
	if err != nil {
		return err
	}
	return m.update(func(st *state) error {
		st.DriverVersion = version
		for _, v := range st.present() {
			if err := v.resetMeter(); err != nil {
				return err
			}
		}
		return nil
	})
}

// HideSymbols takes functions out of the machine's NVML library, as if it were
// older.
func (m *Machine) HideSymbols(symbols ...string) error {
	for _, s := range symbols {
		if !strings.HasPrefix(s, "nvml") {
			return inputErrorf("%q is no NVML function; their names begin with \"nvml\"", s)
		}
	}
	return m.update(func(st *state) error {
		st.MissingSymbols = append(st.MissingSymbols, symbols...)
		slices.Sort(st.MissingSymbols)
		st.MissingSymbols = slices.Compact(st.MissingSymbols)
		return nil
	})
}

// ShowSymbols puts functions back, or all that were hidden if none is named.
func (m *Machine) ShowSymbols(symbols ...string) error {
	return m.update(func(st *state) error {
		st.MissingSymbols = slices.DeleteFunc(st.MissingSymbols, func(s string) bool {
			return len(symbols) == 0 || slices.Contains(symbols, s)
		})
		return nil
	})
}
