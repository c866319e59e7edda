package fakegpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"apportion.dev/apportion/pkg/fake/fakeroot"
	"apportion.dev/apportion/pkg/fake/migrules"
)

// sameRoot says whether the driver root of two states of one machine is the same, as
// far as that can be told without making it: the driver, and which GPUs and instances
// there are, decide.
func sameRoot(a, b *state) bool {
	return a.DriverVersion == b.DriverVersion && slices.EqualFunc(a.GPUs, b.GPUs, func(g, h gpu) bool {
		return g.Slot == h.Slot && g.Product == h.Product && g.Removed == h.Removed && g.Lost == h.Lost &&
			slices.EqualFunc(g.Instances, h.Instances, func(i, j migrules.Instance) bool {
				return i.ID == j.ID && i.Profile == j.Profile && i.Placement == j.Placement && slices.Equal(i.Compute, j.Compute)
			})
	})
}

// rootFiles are the files of the machine's driver root.
func (s *state) rootFiles() fakeroot.Files {
	m := fakeroot.Machine{Dir: s.dir, DriverVersion: s.DriverVersion}
	for _, v := range s.present() {
		m.GPUs = append(m.GPUs, v.inRoot())
	}
	return fakeroot.FilesOf(m)
}

func (v view) inRoot() fakeroot.GPU {
	g := fakeroot.GPU{
		Minor: v.slot.Number, UUID: v.uuid, ProductName: v.product.ProductName,
		PCIBusID: v.slot.PCIBusID(), PCIRoot: v.slot.Root(), PCIDeviceID: v.product.PCI.DeviceID, NUMANode: v.slot.NUMANode(),
		MemoryMiB: v.product.Memory.TotalMiB, Lost: v.Lost, MIGCapable: v.product.MIG != nil,
	}
	for _, gi := range v.Instances {
		g.Instances = append(g.Instances, fakeroot.GPUInstance{ID: gi.ID})
	}
	for _, d := range v.migDevices() {
		i := slices.IndexFunc(g.Instances, func(gi fakeroot.GPUInstance) bool { return gi.ID == d.gi.ID })
		g.Instances[i].Compute = append(g.Instances[i].Compute, fakeroot.ComputeInstance{
			ID: d.ci.ID, UUID: d.uuid, Name: d.name(), Index: d.index,
		})
	}
	return g
}

// TimeSlice is the time slice that was set for a GPU with nvidia-smi
// compute-policy, as a number: 0 (the default), 1 (short), 2 (medium) or 3 (long).
func (m *Machine) TimeSlice(uuid string) (string, error) {
	data, err := os.ReadFile(filepath.Join(m.store.dir, "timeslices", filepath.Base(uuid)))
	if errors.Is(err, fs.ErrNotExist) {
		return "0", nil
	}
	if err != nil {
		return "", fmt.Errorf("the time slice of GPU %s: %w", uuid, err)
	}
	return strings.TrimSpace(string(data)), nil
}
