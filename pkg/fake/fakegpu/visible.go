package fakegpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"apportion.dev/apportion/pkg/fake/fakeroot"
)

// findDevice looks a GPU up by index, UUID or PCI address, or a MIG device by its UUID,
// which is empty for a GPU.
func (s *state) findDevice(id string) (gpu view, migDevice string, err error) {
	for _, v := range s.present() {
		for _, m := range v.migDevices() {
			if strings.EqualFold(m.uuid, id) {
				return v, m.uuid, nil
			}
		}
	}
	if strings.HasPrefix(id, "MIG-") {
		return view{}, "", inputErrorf("the machine has no MIG device %q", id)
	}
	gpu, err = s.find(id)
	return gpu, "", err
}

// migDevice finds a MIG device of the GPU.
func (v view) migDevice(uuid string) (migView, bool) {
	for _, m := range v.migDevices() {
		if m.uuid == uuid {
			return m, true
		}
	}
	return migView{}, false
}

// CheckDeviceNode fails if the device nodes of a GPU (index, UUID or PCI address) or of
// a MIG device (UUID) are not in a folder, /dev, without which no CUDA program can use
// it.
func (m *Machine) CheckDeviceNode(dev, id string) error {
	st, err := m.store.read()
	if err != nil {
		return err
	}
	v, migDevice, err := st.findDevice(id)
	if err != nil {
		return err
	}
	return v.checkNodes(dev, migDevice)
}

func (v view) checkNodes(dev, migDevice string) error {
	if _, err := os.Stat(filepath.Join(dev, fmt.Sprintf("nvidia%d", v.slot.Number))); err != nil {
		return fmt.Errorf("no device: the node of GPU %s is not here: %w", v.uuid, err)
	}
	partition, ok := v.migDevice(migDevice)
	if !ok {
		return nil
	}
	minor, gi := v.slot.Number, partition.gi.ID
	for _, number := range []int{fakeroot.InstanceCapability(minor, gi), fakeroot.ComputeCapability(minor, gi, partition.ci.ID)} {
		if _, err := os.Stat(filepath.Join(dev, "nvidia-caps", fmt.Sprintf("nvidia-cap%d", number))); err != nil {
			return fmt.Errorf("no device: a node of MIG device %s is not here: %w", migDevice, err)
		}
	}
	return nil
}

// VisibleDevices are the UUIDs of the GPUs and MIG devices whose device nodes are in a
// folder, /dev, in NVML's order: those that a CUDA program finds there. A GPU in MIG mode
// is not among them, its MIG devices are.
func (m *Machine) VisibleDevices(dev string) ([]string, error) {
	st, err := m.store.read()
	if err != nil {
		return nil, err
	}
	var visible []string
	for _, v := range st.present() {
		candidates := []string{""}
		if v.MIGEnabled {
			candidates = nil
			for _, d := range v.migDevices() {
				candidates = append(candidates, d.uuid)
			}
		}
		for _, migDevice := range candidates {
			switch err := v.checkNodes(dev, migDevice); {
			case err == nil && migDevice != "":
				visible = append(visible, migDevice)
			case err == nil:
				visible = append(visible, v.uuid)
			case !errors.Is(err, fs.ErrNotExist):
				return nil, err
			}
		}
	}
	return visible, nil
}
