package fakegpu

import "apportion.dev/apportion/pkg/fake/fakeroot"

// Summary is a machine in words, for people who look at it.
type Summary struct {
	Node          string `json:"node"`
	DriverVersion string `json:"driverVersion,omitempty"`
	// CUDAVersion is 1000*major + 10*minor, 0 without a driver.
	CUDAVersion    int          `json:"cudaVersion,omitempty"`
	MissingSymbols []string     `json:"missingSymbols,omitempty"`
	DriverRoot     string       `json:"driverRoot"`
	GPUs           []GPUSummary `json:"gpus"`
}

// GPUSummary is one GPU of a machine.
type GPUSummary struct {
	Index       int    `json:"index"`
	Slot        int    `json:"slot"`
	Minor       int    `json:"minor"`
	Product     string `json:"product"`
	ProductName string `json:"productName"`
	UUID        string `json:"uuid"`
	PCIBusID    string `json:"pciBusID"`
	NUMANode    int    `json:"numaNode"`
	// State is "ok" or "lost".
	State string `json:"state"`
	// Failures give the code for each property that fails.
	Failures         map[string]string `json:"failures,omitempty"`
	MemoryTotalBytes uint64            `json:"memoryTotalBytes"`
	MemoryUsedBytes  uint64            `json:"memoryUsedBytes"`
	// UtilizationPercent is how busy the GPU is, because of the load and of processes
	// that keep it busy.
	UtilizationPercent uint32 `json:"utilizationPercent"`
	// Load is what was set, with the processes that allocate memory.
	Load Load `json:"load,omitzero"`
	// MemoryLimits are those of cgroups that exist.
	MemoryLimits []MemoryLimitSummary `json:"memoryLimits,omitempty"`
	// MIGMode is "off", "on", "pending on" or "pending off"; empty without MIG.
	MIGMode string       `json:"migMode,omitempty"`
	MIG     []MIGSummary `json:"mig,omitempty"`
}

// MemoryLimitSummary is what a cgroup may use of a GPU's memory, and uses, in bytes.
type MemoryLimitSummary struct {
	Cgroup    string `json:"cgroup"`
	SoftBytes uint64 `json:"softBytes"`
	HardBytes uint64 `json:"hardBytes"`
	UsedBytes uint64 `json:"usedBytes"`
}

// MIGSummary is one MIG device of a GPU.
type MIGSummary struct {
	GPUInstance     int    `json:"gpuInstance"`
	ComputeInstance int    `json:"computeInstance"`
	Profile         string `json:"profile"`
	Start           int    `json:"start"`
	UUID            string `json:"uuid"`
}

// Summary describes the machine as it is now.
func (m *Machine) Summary() (Summary, error) {
	st, err := m.store.read()
	if err != nil {
		return Summary{}, err
	}
	s := Summary{
		Node: st.Node, DriverVersion: st.DriverVersion, MissingSymbols: st.MissingSymbols,
		DriverRoot: m.DriverRoot(), GPUs: []GPUSummary{},
	}
	if st.DriverVersion != "" {
		s.CUDAVersion = fakeroot.CUDAVersion(st.DriverVersion)
	}
	for i, v := range st.present() {
		s.GPUs = append(s.GPUs, v.summary(i))
	}
	return s, nil
}

func (v view) summary(index int) GPUSummary {
	memory := v.memory()
	g := GPUSummary{
		Index: index, Slot: v.Slot, Minor: v.slot.Number, Product: v.product.Name, ProductName: v.product.ProductName,
		UUID: v.uuid, PCIBusID: v.slot.PCIBusID(), NUMANode: v.slot.NUMANode(), State: "ok", Failures: v.Failures,
		MemoryTotalBytes: memory.Total, MemoryUsedBytes: memory.Used, UtilizationPercent: v.busyNow(), Load: v.Load, MIGMode: v.migModeName(),
	}
	if v.Lost {
		g.State = "lost"
	}
	g.Load.Processes = v.running()
	for _, l := range v.Limits {
		if !l.gone() {
			g.MemoryLimits = append(g.MemoryLimits, MemoryLimitSummary{
				Cgroup: l.Cgroup, SoftBytes: l.Soft, HardBytes: l.Hard, UsedBytes: v.allocatedIn(l.ID),
			})
		}
	}
	for _, d := range v.migDevices() {
		g.MIG = append(g.MIG, MIGSummary{
			GPUInstance: d.gi.ID, ComputeInstance: d.ci.ID, Profile: d.name(), Start: d.gi.Placement.Start, UUID: d.uuid,
		})
	}
	return g
}

func (v view) migModeName() string {
	switch {
	case v.product.MIG == nil:
		return ""
	case v.MIGEnabled != v.MIGPending && v.MIGPending:
		return "pending on"
	case v.MIGEnabled != v.MIGPending:
		return "pending off"
	case v.MIGEnabled:
		return "on"
	}
	return "off"
}
