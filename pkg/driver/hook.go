package driver

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"apportion.dev/apportion/pkg/atomicfile"
)

// installHook puts the program that CDI specs name where the container runtime
// finds it, so that the node needs no container toolkit. A runtime that starts it
// at that moment gets the old one or the new.
func (d *Driver) installHook() error {
	if d.config.HookPath == "" {
		return nil
	}
	wanted, err := os.ReadFile(d.config.HookPath)
	if err != nil {
		return fmt.Errorf("install nvidia-cdi-hook: %w; --cdi-hook-path must name it", err)
	}
	path := d.config.HookOnHost()
	installed, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("install nvidia-cdi-hook: %w", err)
	}
	if bytes.Equal(wanted, installed) {
		return nil
	}
	if err := atomicfile.Write(path, wanted, 0o755); err != nil {
		return fmt.Errorf("install nvidia-cdi-hook: %w", err)
	}
	return nil
}
