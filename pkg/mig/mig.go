// Package mig makes and removes MIG partitions of GPUs through NVML, each at a
// placement that the caller names.
//
// All methods are idempotent, and each leaves the GPU in a state from which the same
// call or its opposite goes on, wherever it was interrupted: a GPU instance of that
// profile at that placement is the partition, whoever made it. The package has no
// locks: the caller holds the GPU. It does not know claims, and not who may have
// what.
package mig

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/inventory"
)

// Partition names a partition: a MIG profile at a placement of a GPU.
type Partition struct {
	// GPU is the UUID of the physical GPU.
	GPU string
	// Profile is the MIG profile's name as pkg/inventory gives it ("1g.10gb+me").
	Profile string
	// Start is the first memory slice of the placement.
	Start int
}

func (p Partition) String() string {
	return fmt.Sprintf("%s at %d of GPU %s", p.Profile, p.Start, p.GPU)
}

// Instance is a partition that exists.
type Instance struct {
	// GPUInstance and ComputeInstance are NVML's ids on the GPU.
	GPUInstance     int `json:"gpuInstance"`
	ComputeInstance int `json:"computeInstance"`
	// UUID is that of the MIG device ("MIG-...").
	UUID string `json:"uuid"`
}

// Manager makes and removes partitions. It may be used concurrently for different
// GPUs.
type Manager struct{ lib nvml.Interface }

// New returns a Manager over NVML, which it initializes for each call.
func New(lib nvml.Interface) *Manager { return &Manager{lib: lib} }

// Ensure makes the partition unless it is there, with one compute instance that
// fills it, and turns the GPU's MIG mode on if it is off. What it made itself it
// removes again if it fails.
func (m *Manager) Ensure(ctx context.Context, p Partition) (instance Instance, err error) {
	err = m.withGPU(ctx, p.GPU, func(g *gpu) error {
		if err := g.enableMode(); err != nil {
			return err
		}
		// gofail: var migModeEnabled struct{}
		instance, err = g.ensure(p)
		return err
	})
	if err != nil {
		return Instance{}, fmt.Errorf("make partition %s: %w", p, err)
	}
	return instance, nil
}

// Find returns the partition if it is there and complete.
func (m *Manager) Find(ctx context.Context, p Partition) (instance Instance, found bool, err error) {
	err = m.withGPU(ctx, p.GPU, func(g *gpu) error {
		if enabled, err := g.mode(); err != nil || !enabled {
			return err
		}
		gi, err := g.find(p)
		if err != nil || gi == nil {
			return err
		}
		instance, found, err = g.complete(gi)
		return err
	})
	if err != nil {
		return Instance{}, false, fmt.Errorf("look for partition %s: %w", p, err)
	}
	return instance, found, nil
}

// Remove destroys the partition, and turns the GPU's MIG mode off after its last
// instance where that takes no reset. It is no error if the partition or its GPU is
// not there. It fails while processes run in the partition.
func (m *Manager) Remove(ctx context.Context, p Partition) error {
	err := m.withGPU(ctx, p.GPU, func(g *gpu) error {
		if enabled, err := g.mode(); err != nil || !enabled {
			return err
		}
		gi, err := g.find(p)
		if err != nil {
			return err
		}
		if gi != nil {
			if err := g.destroy(gi); err != nil {
				return err
			}
		}
		return g.disableModeIfEmpty()
	})
	if errors.Is(err, nvml.ERROR_NOT_FOUND) || errors.Is(err, nvml.ERROR_GPU_IS_LOST) {
		return nil // What is not there has no partitions; a GPU that comes back has none either.
	}
	if err != nil {
		return fmt.Errorf("remove partition %s: %w", p, err)
	}
	return nil
}

// EnsureWhole makes sure that the GPU can be used whole: its MIG mode is off. It
// turns the mode off where there are no instances and it takes no reset.
func (m *Manager) EnsureWhole(ctx context.Context, uuid string) error {
	err := m.withGPU(ctx, uuid, func(g *gpu) error {
		enabled, err := g.mode()
		if err != nil || !enabled {
			return err
		}
		if g.needsReset() {
			return errors.New("it is in MIG mode, and takes a reset to leave it: nvidia-smi -mig 0, then nvidia-smi --gpu-reset")
		}
		if err := g.disableModeIfEmpty(); err != nil {
			return err
		}
		if enabled, err = g.mode(); err != nil || !enabled {
			return err
		}
		names, err := g.instanceNames()
		if err != nil {
			return err
		}
		return fmt.Errorf("it is in MIG mode with instances that somebody made: %q; destroy them (nvidia-smi mig -dci; nvidia-smi mig -dgi)", names)
	})
	if err != nil {
		return fmt.Errorf("use GPU %s whole: %w", uuid, err)
	}
	return nil
}

func (m *Manager) withGPU(ctx context.Context, uuid string, f func(*gpu) error) (err error) {
	if ret := m.lib.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("initialize NVML: %w", ret)
	}
	defer func() {
		if ret := m.lib.Shutdown(); ret != nvml.SUCCESS {
			klog.FromContext(ctx).Error(ret, "NVML could not be shut down")
		}
	}()
	device, ret := m.lib.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("find the GPU: %w", ret)
	}
	return f(&gpu{ctx: ctx, lib: m.lib, device: device})
}

// gpu is one GPU within one call.
type gpu struct {
	ctx    context.Context
	lib    nvml.Interface
	device nvml.Device
}

// mode says whether MIG mode is on; it is off on a GPU that has none.
func (g *gpu) mode() (bool, error) {
	current, _, ret := g.device.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return false, nil
	}
	if ret != nvml.SUCCESS {
		return false, fmt.Errorf("read the MIG mode: %w", ret)
	}
	return current == nvml.DEVICE_MIG_ENABLE, nil
}

// needsReset says whether a change of the mode takes a reset of the GPU, which is
// so on Ampere. Where the architecture cannot be read it is taken to be so.
func (g *gpu) needsReset() bool {
	architecture, ret := g.device.GetArchitecture()
	return ret != nvml.SUCCESS || architecture <= nvml.DEVICE_ARCH_AMPERE
}

func (g *gpu) enableMode() error {
	enabled, err := g.mode()
	if err != nil || enabled {
		return err
	}
	if g.needsReset() {
		return errors.New("the GPU's MIG mode is off, and takes a reset to change: nvidia-smi -mig 1, then nvidia-smi --gpu-reset")
	}
	return g.setMode(nvml.DEVICE_MIG_ENABLE)
}

func (g *gpu) setMode(mode int) error {
	activation, ret := g.device.SetMigMode(mode)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("change the MIG mode: %w", ret)
	}
	if activation != nvml.SUCCESS {
		return fmt.Errorf("the change of the MIG mode is pending (%w): stop what uses the GPU, such as monitoring, and reset it", activation)
	}
	return nil
}

// disableModeIfEmpty turns the mode off where no instance is left and it takes no
// reset. A GPU that is used by a program that only looks at it keeps the mode until
// next time.
func (g *gpu) disableModeIfEmpty() error {
	if g.needsReset() {
		return nil
	}
	instances, err := g.instances()
	if err != nil || len(instances) > 0 {
		return err
	}
	return g.setMode(nvml.DEVICE_MIG_DISABLE)
}

// found is a GPU instance with its data.
type found struct {
	nvml.GpuInstance
	info nvml.GpuInstanceInfo
}

// instances lists the GPU instances.
func (g *gpu) instances() ([]found, error) {
	var out []found
	seen := map[uint32]bool{}
	for profile, err := range inventory.MIGProfiles(g.ctx, g.lib, g.device) {
		if err != nil {
			return nil, err
		}
		if seen[profile.Info.Id] {
			continue
		}
		seen[profile.Info.Id] = true
		some, err := g.instancesOf(profile.Info)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

func (g *gpu) instancesOf(profile nvml.GpuInstanceProfileInfo) ([]found, error) {
	instances, ret := g.device.GetGpuInstances(&profile)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("list the GPU instances: %w", ret)
	}
	var out []found
	for _, instance := range instances {
		info, ret := instance.GetInfo()
		if ret == nvml.ERROR_NOT_FOUND {
			continue // Destroyed just now.
		}
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("read a GPU instance: %w", ret)
		}
		out = append(out, found{instance, info})
	}
	return out, nil
}

func (g *gpu) instanceNames() ([]string, error) {
	instances, err := g.instances()
	var names []string
	for _, i := range instances {
		names = append(names, fmt.Sprintf("GPU instance %d at %d", i.info.Id, i.info.Placement.Start))
	}
	slices.Sort(names)
	return names, err
}

// profile returns the GPU instance profile of a name.
func (g *gpu) profile(name string) (nvml.GpuInstanceProfileInfo, error) {
	var failed error
	for profile, err := range inventory.MIGProfiles(g.ctx, g.lib, g.device) {
		if err != nil {
			failed = errors.Join(failed, err)
		} else if profile.Name == name {
			return profile.Info, nil
		}
	}
	if failed != nil {
		return nvml.GpuInstanceProfileInfo{}, failed
	}
	return nvml.GpuInstanceProfileInfo{}, fmt.Errorf("the GPU has no MIG profile %s", name)
}

// find returns the GPU instance of the partition, nil if there is none.
func (g *gpu) find(p Partition) (*found, error) {
	profile, err := g.profile(p.Profile)
	if err != nil {
		return nil, err
	}
	instances, err := g.instancesOf(profile)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(instances, func(f found) bool { return int(f.info.Placement.Start) == p.Start })
	if i < 0 {
		return nil, nil
	}
	return &instances[i], nil
}
