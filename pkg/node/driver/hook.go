package driver

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/internal/atomicfile"
	"apportion.dev/apportion/pkg/node/mps"
	"apportion.dev/apportion/pkg/node/prepare"
)

// installHooks puts the programs that CDI specs name where the container runtime
// finds them, so that the node needs no container toolkit.
func (d *Driver) installHooks() error {
	if err := installHook(d.config.HookPath, d.config.HookOnHost()); err != nil {
		return fmt.Errorf("%w; --cdi-hook-path must name it", err)
	}
	if err := installHook(d.config.LimitHookPath, d.config.LimitHookOnHost()); err != nil {
		return fmt.Errorf("%w; --limit-hook-path must name it", err)
	}
	return nil
}

// installHook copies a program. A runtime that starts it at that moment gets the
// old one or the new.
func installHook(from, to string) error {
	if from == "" {
		return nil
	}
	wanted, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("install %s: %w", filepath.Base(to), err)
	}
	installed, err := os.ReadFile(to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("install %s: %w", filepath.Base(to), err)
	}
	if bytes.Equal(wanted, installed) {
		return nil
	}
	if err := atomicfile.Write(to, wanted, 0o755); err != nil {
		return fmt.Errorf("install %s: %w", filepath.Base(to), err)
	}
	return nil
}

// limitHook is the hook that sets a share's memory limit. It runs once the
// container's cgroup is there and before the container's program starts; if it
// fails, the container does not start.
func (c Config) limitHook(gpu string, limit prepare.MemoryLimit) *specs.Hook {
	args := []string{
		"apportion-cdi-hook", "limit-memory", "--gpu", gpu,
		"--soft", strconv.FormatInt(limit.Soft, 10), "--hard", strconv.FormatInt(limit.Hard, 10),
	}
	return &specs.Hook{HookName: "createRuntime", Path: c.LimitHookOnHost(), Args: append(args, c.LimitHookArgs...)}
}

// mpsEdits are what a container needs to use the MPS daemon of the GPU.
func (c Config) mpsEdits(gpu string, m prepare.MPS) specs.ContainerEdits {
	return mps.Edits(c.MPSDir(), gpu, m.Percent, mps.PinnedLimit(m.PinnedBytes))
}
