// Package mig makes and removes MIG partitions of GPUs through NVML, each at a
// placement that the caller names.
//
// All methods are idempotent, and each leaves the GPU in a state from which the same
// call or its opposite goes on, wherever it was interrupted: a GPU instance of that
// profile at that placement is the partition, whoever made it. Other instances are
// never touched. The package has no locks: the caller holds the GPU. It does not
// know claims, and not who may have what.
package mig

import (
	"context"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

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
// fills it, and turns the GPU's MIG mode on if it is off and that takes no reset.
// What it made itself it removes again if it fails.
func (m *Manager) Ensure(ctx context.Context, p inventory.Partition) (instance Instance, err error) {
	err = m.withGPU(ctx, p.GPU, func(g *gpu) error {
		var done undo
		instance, err = g.ensure(p, &done)
		if err != nil {
			// The caller may have given up, but not on the GPU.
			err = errors.Join(err, done.run())
		}
		return err
	})
	if err != nil {
		return Instance{}, fmt.Errorf("make partition %s: %w", p, err)
	}
	return instance, nil
}

// Find returns the partition if it is there and complete. A GPU that is not there
// has no partitions.
func (m *Manager) Find(ctx context.Context, p inventory.Partition) (instance Instance, found bool, err error) {
	err = m.withGPU(ctx, p.GPU, func(g *gpu) error {
		if enabled, err := g.mode(); err != nil || !enabled {
			return err
		}
		gi, err := g.find(p)
		if err != nil || gi == nil {
			return err
		}
		profile, err := gi.fullProfile()
		if err != nil {
			return err
		}
		id, found, err := gi.compute(profile)
		if err != nil || !found {
			return err
		}
		instance, err = g.migDevice(gi, id)
		return err
	})
	if err != nil && !errors.Is(err, errGone) {
		return Instance{}, false, fmt.Errorf("look for partition %s: %w", p, err)
	}
	return instance, err == nil && instance.UUID != "", nil
}

// Remove destroys the partition, and turns the GPU's MIG mode off after its last
// instance where that takes no reset and nothing keeps it on. It is no error if the
// partition or its GPU is not there. It fails while processes run in the partition.
func (m *Manager) Remove(ctx context.Context, p inventory.Partition) error {
	err := m.withGPU(ctx, p.GPU, func(g *gpu) error {
		if enabled, err := g.mode(); err != nil || !enabled {
			return err
		}
		gi, err := g.find(p)
		if err != nil && !errors.Is(err, errNoProfile) {
			return err
		}
		if gi != nil {
			if err := gi.destroy(); err != nil {
				return err
			}
			g.logger.V(2).Info("Removed MIG partition", "gpu", p.GPU, "profile", p.Profile, "start", p.Start)
		}
		if err := g.disableModeIfEmpty(); err != nil {
			// A mode that stays on is not worth a claim that cannot end: EnsureWhole
			// turns it off for the next one that needs it off.
			g.logger.Error(err, "MIG mode was not turned off after a partition was removed", "gpu", p.GPU)
		}
		return nil
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errGone), errors.Is(err, nvml.ERROR_GPU_IS_LOST), errors.Is(err, nvml.ERROR_RESET_REQUIRED):
		// Such a GPU comes back by a reset, which no instance survives.
		klog.FromContext(ctx).Info("MIG partition is gone with its GPU", "gpu", p.GPU, "profile", p.Profile, "start", p.Start, "reason", err.Error())
		return nil
	}
	return fmt.Errorf("remove partition %s: %w", p, err)
}

// EnsureWhole makes sure that the GPU can be used whole: its MIG mode is off. It
// turns the mode off where there are no instances and it takes no reset.
func (m *Manager) EnsureWhole(ctx context.Context, uuid string) error {
	err := m.withGPU(ctx, uuid, func(g *gpu) error {
		enabled, err := g.mode()
		if err != nil || !enabled {
			return err
		}
		instances, err := g.instances()
		if err != nil {
			return err
		}
		if len(instances) > 0 {
			return fmt.Errorf("it is in MIG mode with instances that somebody made: %s; destroy them (nvidia-smi mig -i %s -dci, then nvidia-smi mig -i %s -dgi)",
				names(instances), uuid, uuid)
		}
		reset, err := inventory.ModeNeedsReset(g.lib, g.device)
		if err != nil {
			return err
		}
		if reset {
			return fmt.Errorf("it is in MIG mode, and takes a reset to leave it: nvidia-smi -i %s -mig 0, then nvidia-smi -i %s --gpu-reset", uuid, uuid)
		}
		return g.setMode(nvml.DEVICE_MIG_DISABLE)
	})
	if err != nil {
		return fmt.Errorf("use GPU %s whole: %w", uuid, err)
	}
	return nil
}

// errGone is for a GPU that is not in the machine, or has no driver.
var errGone = errors.New("the GPU is not there")

// withGPU calls f with NVML initialized.
func (m *Manager) withGPU(ctx context.Context, uuid string, f func(*gpu) error) error {
	logger := klog.FromContext(ctx)
	switch ret := m.lib.Init(); ret {
	case nvml.SUCCESS, nvml.ERROR_ALREADY_INITIALIZED:
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("initialize NVML: %w: %w", ret, errGone)
	default:
		return fmt.Errorf("initialize NVML: %w", ret)
	}
	defer func() {
		if ret := m.lib.Shutdown(); ret != nvml.SUCCESS {
			logger.Error(ret, "NVML could not be shut down")
		}
	}()
	g := &gpu{ctx: ctx, logger: logger, lib: m.lib, uuid: uuid}
	if err := g.open(); err != nil {
		return err
	}
	return f(g)
}
