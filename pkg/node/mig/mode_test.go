package mig

import (
	"errors"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// On Ampere the mode is the administrator's: a change takes a reset.
func TestAmpereKeepsItsMode(t *testing.T) {
	for _, product := range []string{"a100-sxm4-40gb", "a30"} {
		m, uuids := newMachine(t, product)
		uuid, manager := uuids[0], New(m.NVML())
		p := inventory.Partition{GPU: uuid, Profile: map[string]string{"a30": "1g.6gb", "a100-sxm4-40gb": "1g.5gb"}[product], Start: 1}
		must(t, manager.EnsureWhole(t.Context(), uuid))
		_, err := manager.Ensure(t.Context(), p)
		wantError(t, err, "takes a reset", "nvidia-smi -i "+uuid+" -mig 1")
		must(t, manager.Remove(t.Context(), p))
		wantLayout(t, m, uuid, "not in MIG mode", "off")

		must(t, m.SetMIGMode(uuid, true))
		wantError(t, manager.EnsureWhole(t.Context(), uuid), "takes a reset", "nvidia-smi -i "+uuid+" -mig 0")
		_, err = manager.Ensure(t.Context(), p)
		must(t, err)
		wantError(t, manager.EnsureWhole(t.Context(), uuid), p.Profile+" at 1")
		must(t, manager.Remove(t.Context(), p))
		wantLayout(t, m, uuid, "in MIG mode", "on")
	}
}

func TestWholeGPUs(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb", "t4", "rtx-pro-6000-96gb")
	manager := New(m.NVML())
	must(t, m.SetMIGMode(uuids[0], true))
	for _, uuid := range uuids {
		must(t, manager.EnsureWhole(t.Context(), uuid))
	}
	wantLayout(t, m, uuids[0], "whole,", "off")
	wantError(t, manager.EnsureWhole(t.Context(), "GPU-none"), "GPU-none", "not there")
}

// Monitoring that holds a GPU must not hold up the end of a pod.
func TestAGPUInUseByMonitoringStaysInMIGModeUntilItIsNeededWhole(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb")
	uuid, manager := uuids[0], New(m.NVML())
	p := inventory.Partition{GPU: uuid, Profile: "1g.10gb", Start: 0}
	monitoring := fakegpu.Load{Processes: []fakegpu.Process{{PID: 7}}}

	must(t, m.SetLoad(uuid, monitoring))
	_, err := manager.Ensure(t.Context(), p)
	wantError(t, err, "change the MIG mode", "stop what uses the GPU")
	wantLayout(t, m, uuid, "in use", "off")

	must(t, m.SetLoad(uuid, fakegpu.Load{}))
	_, err = manager.Ensure(t.Context(), p)
	must(t, err)
	must(t, m.SetLoad(uuid, monitoring))
	must(t, manager.Remove(t.Context(), p))
	wantLayout(t, m, uuid, "without the partition", "on")
	wantError(t, manager.EnsureWhole(t.Context(), uuid), "stop what uses the GPU")

	must(t, m.SetLoad(uuid, fakegpu.Load{}))
	must(t, manager.EnsureWhole(t.Context(), uuid))
	wantLayout(t, m, uuid, "whole,", "off")
}

// NVML cannot say any more what else is on the GPU: the partition goes all the same.
func TestAClaimEndsThoughNVMLDoesNotSayWhetherTheGPUIsEmpty(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb")
	uuid := uuids[0]
	p := inventory.Partition{GPU: uuid, Profile: "1g.10gb", Start: 0}
	_, err := New(m.NVML()).Ensure(t.Context(), p)
	must(t, err)
	// Of all profiles only that of the partition can be read.
	lib := &mostlyBlind{Interface: m.NVML(), profile: nvml.GPU_INSTANCE_PROFILE_1_SLICE}
	must(t, New(lib).Remove(t.Context(), p))
	wantLayout(t, m, uuid, "without the partition", "on")
	must(t, New(m.NVML()).EnsureWhole(t.Context(), uuid))
	wantLayout(t, m, uuid, "whole,", "off")
}

// mostlyBlind knows one profile of GPU instances and fails for the others.
type mostlyBlind struct {
	nvml.Interface
	profile int
}

type mostlyBlindDevice struct {
	nvml.Device
	profile int
}

func (l *mostlyBlind) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	d, ret := l.Interface.DeviceGetHandleByUUID(uuid)
	return mostlyBlindDevice{d, l.profile}, ret
}

func (d mostlyBlindDevice) GetGpuInstanceProfileInfo(index int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	if index != d.profile {
		return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_UNKNOWN
	}
	return d.Device.GetGpuInstanceProfileInfo(index)
}

// pendingDevice is a GPU whose mode changes only at a reset.
type pendingLibrary struct {
	nvml.Interface
	asked []int
}

type pendingDevice struct {
	nvml.Device
	lib *pendingLibrary
}

func (l *pendingLibrary) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	d, ret := l.Interface.DeviceGetHandleByUUID(uuid)
	return pendingDevice{d, l}, ret
}

func (d pendingDevice) SetMigMode(mode int) (nvml.Return, nvml.Return) {
	d.lib.asked = append(d.lib.asked, mode)
	return nvml.ERROR_IN_USE, nvml.SUCCESS
}

func TestAPendingModeIsTakenBack(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb")
	lib := &pendingLibrary{Interface: m.NVML()}
	_, err := New(lib).Ensure(t.Context(), inventory.Partition{GPU: uuids[0], Profile: "1g.10gb", Start: 0})
	wantError(t, err, "change the MIG mode", "stop what uses the GPU")
	if want := []int{nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_DISABLE}; !slices.Equal(lib.asked, want) {
		t.Errorf("asked for the modes %v, want %v", lib.asked, want)
	}
	must(t, m.SetMIGMode(uuids[0], true))
	lib.asked = nil
	wantError(t, New(lib).EnsureWhole(t.Context(), uuids[0]), "change the MIG mode")
	if want := []int{nvml.DEVICE_MIG_DISABLE, nvml.DEVICE_MIG_ENABLE}; !slices.Equal(lib.asked, want) {
		t.Errorf("asked for the modes %v, want %v", lib.asked, want)
	}
}

func TestAGPUThatIsGoneHasNoPartitions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(m *fakegpu.Machine, uuid string) error
		// findFails is true where nobody knows.
		findFails bool
	}{
		{"removed", (*fakegpu.Machine).RemoveGPU, false},
		{"lost", (*fakegpu.Machine).LoseGPU, true},
		{"needs a reset", func(m *fakegpu.Machine, uuid string) error { return m.Fail(uuid, "mig-mode", "reset-required") }, true},
		{"without a driver", func(m *fakegpu.Machine, _ string) error { return m.SetDriverVersion("none") }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, uuids := newMachine(t, "h100-sxm5-80gb", "h100-sxm5-80gb")
			p, manager := inventory.Partition{GPU: uuids[0], Profile: "1g.10gb", Start: 0}, New(m.NVML())
			_, err := manager.Ensure(t.Context(), p)
			must(t, err)
			must(t, tc.spoil(m, p.GPU))
			must(t, manager.Remove(t.Context(), p))
			if _, found, err := manager.Find(t.Context(), p); found || (err != nil) != tc.findFails {
				t.Errorf("found %v, %v", found, err)
			}
			_, err = manager.Ensure(t.Context(), p)
			wantError(t, err, p.String())
			wantError(t, manager.EnsureWhole(t.Context(), p.GPU), p.GPU)
		})
	}
}

// nvmlDeviceGetHandleByUUID gives up when it meets a GPU that is lost.
func TestALostNeighbourDoesNotMatter(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb", "h100-sxm5-80gb")
	lib := &spy{Interface: m.NVML(), before: func(call string) nvml.Return {
		if call == "DeviceGetHandleByUUID" {
			return nvml.ERROR_GPU_IS_LOST
		}
		return nvml.SUCCESS
	}}
	must(t, m.LoseGPU(uuids[0]))
	p := inventory.Partition{GPU: uuids[1], Profile: "1g.10gb", Start: 0}
	_, err := New(lib).Ensure(t.Context(), p)
	must(t, err)
	must(t, New(lib).Remove(t.Context(), p))
	_, err = New(lib).Ensure(t.Context(), inventory.Partition{GPU: uuids[0], Profile: "1g.10gb", Start: 0})
	if !errors.Is(err, nvml.ERROR_GPU_IS_LOST) {
		t.Errorf("on the lost GPU: %v", err)
	}
}

// A call of a missing function would end the process.
func TestOldLibraries(t *testing.T) {
	m, uuids := newMachine(t, "h100-sxm5-80gb")
	p, manager := inventory.Partition{GPU: uuids[0], Profile: "1g.10gb", Start: 0}, New(m.NVML())
	must(t, m.HideSymbols("nvmlDeviceCreateGpuInstanceWithPlacement"))
	_, err := manager.Ensure(t.Context(), p)
	wantError(t, err, "too old", "nvmlDeviceCreateGpuInstanceWithPlacement")
	must(t, manager.EnsureWhole(t.Context(), p.GPU))
	must(t, manager.Remove(t.Context(), p))
	must(t, m.SetMIGMode(p.GPU, true))
	wantError(t, manager.EnsureWhole(t.Context(), p.GPU), "too old")

	must(t, m.HideSymbols("nvmlDeviceGetMigMode"))
	must(t, manager.EnsureWhole(t.Context(), p.GPU))
	must(t, manager.Remove(t.Context(), p))
}
