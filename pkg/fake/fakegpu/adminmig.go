package fakegpu

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/migrules"
)

// SetMIGMode changes a GPU's MIG mode as an administrator does, under the rules
// of nvmlDeviceSetMigMode.
func (m *Machine) SetMIGMode(id string, enable bool) error {
	return m.changeGPU(id, func(v view) error {
		// A mode that stays pending is what was asked for.
		_, ret := v.setMIGMode(enable)
		switch {
		case v.product.MIG == nil:
			return inputErrorf("GPU %s cannot be partitioned: a %s has no MIG", v.uuid, v.product.ProductName)
		case ret == nvml.ERROR_IN_USE && len(v.Instances) > 0:
			return fmt.Errorf("GPU %s still has MIG instances: destroy them first", v.uuid)
		case ret == nvml.ERROR_IN_USE:
			return fmt.Errorf("GPU %s is in use by processes", v.uuid)
		case ret != nvml.SUCCESS:
			return fmt.Errorf("set the MIG mode of GPU %s: %w", v.uuid, ret)
		}
		return nil
	})
}

// CreateMIG makes a partition as an administrator does: a GPU instance with the
// profile's name and one compute instance that fills it. The start is the last
// free one if negative. The MIG mode is turned on if it is off. It returns the
// MIG device's UUID.
func (m *Machine) CreateMIG(id, profile string, start int) (uuid string, err error) {
	err = m.changeGPU(id, func(v view) error {
		uuid, err = v.createMIG(profile, start)
		return err
	})
	return uuid, err
}

func (v view) createMIG(profileName string, start int) (string, error) {
	p, err := v.product.ProfileByName(profileName)
	if err != nil {
		return "", inputErrorf("%s", err)
	}
	if !v.MIGEnabled {
		if activation, ret := v.setMIGMode(true); ret != nvml.SUCCESS || activation != nvml.SUCCESS {
			return "", fmt.Errorf("GPU %s is in use by processes: its MIG mode cannot be turned on", v.uuid)
		}
	}
	var place *migrules.Placement
	if start >= 0 {
		place = &migrules.Placement{Start: start, Size: p.Placements.Size}
		if !migrules.Allows(p, *place) {
			return "", inputErrorf("a %s cannot start at %d; it can at %v", p.Name, start, p.Placements.Starts)
		}
	}
	giID, ret := v.addInstance(p, place)
	if ret != nvml.SUCCESS {
		return "", fmt.Errorf("a %s does not fit on GPU %s beside its other instances: %w", p.Name, v.uuid, ret)
	}
	gi, _ := v.instance(giID)
	i := slices.IndexFunc(migrules.ComputeProfiles(p), func(c migrules.ComputeProfile) bool { return c.Slices == p.Slices })
	if i < 0 {
		return "", fmt.Errorf("the profile %s has no compute instance that fills it", p.Name)
	}
	if _, ret := v.addCompute(gi, migrules.ComputeProfiles(p)[i], nil); ret != nvml.SUCCESS {
		return "", fmt.Errorf("make the compute instance of a %s: %w", p.Name, ret)
	}
	return migUUID(v.uuid, *gi, gi.Compute[0]), nil
}

// DestroyMIG removes a partition, named by the MIG device's UUID or by the GPU
// instance's id, with all its compute instances; "all" removes every partition of
// the GPU. The GPU may be empty if the partition is named by its UUID.
func (m *Machine) DestroyMIG(id, partition string) error {
	return m.update(func(st *state) error {
		if id == "" {
			return st.destroyMIGDevice(partition)
		}
		v, err := st.find(id)
		if err != nil {
			return err
		}
		return v.destroyMIG(partition)
	})
}

func (s *state) destroyMIGDevice(uuid string) error {
	for _, v := range s.present() {
		if slices.ContainsFunc(v.migDevices(), func(m migView) bool { return m.uuid == uuid }) {
			return v.destroyMIG(uuid)
		}
	}
	return inputErrorf("the machine has no MIG device %q", uuid)
}

func (v view) destroyMIG(partition string) error {
	ids, err := v.matchInstances(partition)
	if err != nil {
		return err
	}
	for _, id := range ids {
		gi, ok := v.instance(id)
		if !ok {
			continue
		}
		for _, ci := range slices.Clone(gi.Compute) {
			if ret := v.removeCompute(id, ci.ID); ret != nvml.SUCCESS {
				return fmt.Errorf("destroy the compute instance %d of the GPU instance %d of %s: %w", ci.ID, id, v.uuid, ret)
			}
		}
		if ret := v.removeInstance(id); ret != nvml.SUCCESS {
			return fmt.Errorf("destroy the GPU instance %d of %s: %w", id, v.uuid, ret)
		}
	}
	return nil
}

// matchInstances are the ids of the GPU instances that are meant.
func (v view) matchInstances(partition string) ([]int, error) {
	if partition == "" {
		return nil, inputErrorf(`name a partition, or "all"`)
	}
	var ids []int
	known := "none"
	for _, gi := range v.Instances {
		if partition == "all" || partition == strconv.Itoa(gi.ID) {
			ids = append(ids, gi.ID)
		}
	}
	for i, m := range v.migDevices() {
		if m.uuid == partition {
			ids = append(ids, m.gi.ID)
		}
		if i == 0 {
			known = ""
		} else {
			known += ", "
		}
		known += fmt.Sprintf("%d (%s, %s)", m.gi.ID, m.name(), m.uuid)
	}
	if len(ids) == 0 && partition != "all" {
		return nil, inputErrorf("GPU %s has no partition %q; it has: %s", v.uuid, partition, known)
	}
	return ids, nil
}
