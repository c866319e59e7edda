package fakegpu

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/internal/chassis"
	"apportion.dev/apportion/pkg/fake/migrules"
)

// stateFormat is the version of the state file.
const stateFormat = 1

// keptEvents is how many events are kept for those who wait.
const keptEvents = 64

// state is a machine at one moment. A state that was read is never changed; a
// change is made to a copy.
type state struct {
	Format int `json:"format"`
	// Generation counts the changes.
	Generation uint64 `json:"generation"`
	Node       string `json:"node"`
	// DriverVersion is empty while no driver is loaded.
	DriverVersion string `json:"driverVersion,omitempty"`
	// MissingSymbols are the functions that this machine's NVML library lacks.
	MissingSymbols []string `json:"missingSymbols,omitempty"`
	// CreatedSeconds is when the machine was made (Unix time).
	CreatedSeconds int64 `json:"createdSeconds"`
	// Bays is the number of slots that the machine was built with.
	Bays int `json:"bays"`
	// GPUs are ordered by slot. A GPU that was pulled out stays in the list, so
	// that it can be put back.
	GPUs []gpu `json:"gpus"`
	// Events are the latest, by sequence number.
	Events []event `json:"events,omitempty"`
	// LastEvent is the sequence number of the latest event.
	LastEvent uint64 `json:"lastEvent"`

	// dir is the machine's folder.
	dir string
	// views are what present gives, for a state that does not change any more.
	views []view
}

// gpu is one GPU of the machine.
type gpu struct {
	Slot    int    `json:"slot"`
	Product string `json:"product"`
	Removed bool   `json:"removed,omitempty"`
	Lost    bool   `json:"lost,omitempty"`
	// Failures give for a property the name of the code that its calls return.
	Failures map[string]string `json:"failures,omitempty"`
	// MIGEnabled is the current mode, MIGPending the mode after the next reset.
	MIGEnabled bool                `json:"migEnabled,omitempty"`
	MIGPending bool                `json:"migPending,omitempty"`
	Instances  []migrules.Instance `json:"instances,omitempty"`
	Load       Load                `json:"load,omitzero"`
	// Limits are the memory limits of cgroups, Allocations what processes have.
	Limits      []memoryLimit `json:"limits,omitempty"`
	Allocations []allocation  `json:"allocations,omitempty"`
}

// Load is what runs on a GPU.
type Load struct {
	// GPUPercent and MemoryPercent are nvmlUtilization_t.
	GPUPercent    uint32 `json:"gpuPercent,omitempty"`
	MemoryPercent uint32 `json:"memoryPercent,omitempty"`
	// MemoryBytes is the memory in use. The processes' memory counts where it is
	// more.
	MemoryBytes uint64    `json:"memoryBytes,omitempty"`
	Processes   []Process `json:"processes,omitempty"`
}

// Process is a process that uses a GPU.
type Process struct {
	PID         uint32 `json:"pid"`
	Name        string `json:"name,omitempty"`
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// Graphics is true for a process with a graphics context; others compute.
	Graphics bool `json:"graphics,omitempty"`
	// MIGDevice is the UUID of the MIG device it runs on, empty for the GPU.
	MIGDevice string `json:"migDevice,omitempty"`
}

// event is something that NVML reports to those who wait for it.
type event struct {
	Sequence uint64 `json:"sequence"`
	UUID     string `json:"uuid"`
	// Type is an nvmlEventType* bit, Data what goes with it: an XID's number.
	Type uint64 `json:"type"`
	Data uint64 `json:"data,omitempty"`
	// GPUInstance and ComputeInstance are noInstance unless the event is of one.
	GPUInstance     uint32 `json:"gpuInstance"`
	ComputeInstance uint32 `json:"computeInstance"`
}

// noInstance stands for "no MIG instance" in NVML's structures.
const noInstance = ^uint32(0)

// clone is a copy that shares nothing with the state that may change.
func (s *state) clone() *state {
	c := *s
	c.views = nil
	c.MissingSymbols, c.Events = slices.Clone(s.MissingSymbols), slices.Clone(s.Events)
	c.GPUs = slices.Clone(s.GPUs)
	for i := range c.GPUs {
		c.GPUs[i].unshare()
	}
	return &c
}

// unshare gives the GPU lists of its own.
func (g *gpu) unshare() {
	g.Failures = maps.Clone(g.Failures)
	g.Load.Processes = slices.Clone(g.Load.Processes)
	g.Limits, g.Allocations = slices.Clone(g.Limits), slices.Clone(g.Allocations)
	for i := range g.Allocations {
		g.Allocations[i].Cgroups = slices.Clone(g.Allocations[i].Cgroups)
	}
	g.Instances = slices.Clone(g.Instances)
	for i := range g.Instances {
		g.Instances[i].Compute = slices.Clone(g.Instances[i].Compute)
	}
}

// parseState parses the state of the machine in a folder.
func parseState(data []byte, dir string) (*state, error) {
	s := &state{dir: dir}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("parse the state of the fake machine: %w", err)
	}
	if s.Format != stateFormat {
		return nil, fmt.Errorf("the state of the fake machine has format %d, this program knows format %d", s.Format, stateFormat)
	}
	for i := range s.GPUs {
		if _, err := LookupProduct(s.GPUs[i].Product); err != nil {
			return nil, fmt.Errorf("GPU in slot %d: %w", s.GPUs[i].Slot, err)
		}
	}
	return s, nil
}

// view is one GPU of a state, with what its slot and product say.
type view struct {
	*gpu
	state   *state
	slot    chassis.Slot
	product *Product
	uuid    string
}

func (s *state) view(g *gpu) view {
	return view{
		gpu: g, state: s, slot: chassis.At(s.Bays, g.Slot), product: knownProduct(g.Product),
		uuid: chassis.GPUUUID(s.Node, g.Slot, g.Product),
	}
}

// present are the GPUs in the machine, by PCI address, which is NVML's order.
func (s *state) present() []view {
	if s.views != nil {
		return s.views
	}
	views := make([]view, 0, len(s.GPUs))
	for i := range s.GPUs {
		if !s.GPUs[i].Removed {
			views = append(views, s.view(&s.GPUs[i]))
		}
	}
	slices.SortFunc(views, func(a, b view) int { return a.slot.Place - b.slot.Place })
	return views
}

// freeze makes present cheap. The state must not be changed afterwards.
func (s *state) freeze() *state {
	s.views = s.present()
	return s
}

// byUUID finds a GPU in the machine.
func (s *state) byUUID(uuid string) (view, bool) {
	for _, v := range s.present() {
		if v.uuid == uuid {
			return v, true
		}
	}
	return view{}, false
}

// find looks a GPU up by index, UUID or PCI address.
func (s *state) find(id string) (view, error) {
	views := s.present()
	known := make([]string, 0, len(views))
	for i, v := range views {
		if id == fmt.Sprint(i) || strings.EqualFold(id, v.uuid) || strings.EqualFold(id, v.slot.PCIBusID()) {
			return v, nil
		}
		known = append(known, fmt.Sprintf("%d (%s, %s)", i, v.slot.PCIBusID(), v.uuid))
	}
	if len(known) == 0 {
		return view{}, inputErrorf("no GPU %q: the machine has no GPUs", id)
	}
	return view{}, inputErrorf("no GPU %q; the machine has: %s", id, strings.Join(known, ", "))
}

// nvlinkPeers are the GPUs at the other ends of direct NVLink connections.
func (v view) nvlinkPeers() []view {
	var peers []view
	for _, other := range v.state.present() {
		if other.product == v.product && v.product.NVLink.Topology.Linked(v.Slot, other.Slot) {
			peers = append(peers, other)
		}
	}
	return peers
}

// instance finds a GPU instance by id.
func (g *gpu) instance(id int) (*migrules.Instance, bool) {
	for i := range g.Instances {
		if g.Instances[i].ID == id {
			return &g.Instances[i], true
		}
	}
	return nil, false
}

// busy reports whether processes use the GPU.
func (v view) busy() bool { return len(v.running()) > 0 }

// addEvent records an event of the whole GPU.
func (s *state) addEvent(uuid string, kind, data uint64) {
	s.addInstanceEvent(uuid, kind, data, noInstance)
}

// addInstanceEvent records an event of a GPU instance.
func (s *state) addInstanceEvent(uuid string, kind, data uint64, instance uint32) {
	s.LastEvent++
	s.Events = append(s.Events, event{
		Sequence: s.LastEvent, UUID: uuid, Type: kind, Data: data,
		GPUInstance: instance, ComputeInstance: noInstance,
	})
	if extra := len(s.Events) - keptEvents; extra > 0 {
		s.Events = slices.Delete(s.Events, 0, extra)
	}
}

func (s *state) addMIGEvent(uuid string) { s.addEvent(uuid, nvml.EventMigConfigChange, 0) }
