// Package timeslice sets how long a process may run on a GPU before another one
// does. NVML has no call for that, so it runs nvidia-smi compute-policy of the
// installed driver, which takes a second or so.
//
// The setting is one of the whole GPU, of all processes on it, and lasts until the
// driver is loaded anew. The package does not know who asked for it, and keeps
// nothing: nvidia-smi has no form of its answer that a program could rely on.
package timeslice

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/google/uuid"

	"apportion.dev/apportion/pkg/node/driverroot"
)

// timeout is how long nvidia-smi may take. It takes long where no persistence
// daemon keeps the GPU initialised.
const timeout = 10 * time.Second

// intervals are the names of the opaque config, and the numbers that
// nvidia-smi compute-policy --set-timeslice takes for them.
var intervals = map[string]string{"Default": "0", "Short": "1", "Medium": "2", "Long": "3"}

// Setter sets time slices. It may be used concurrently.
type Setter struct {
	driverRoot string
	timeout    time.Duration
}

// New returns a Setter for the driver that is installed under driverRoot, as this
// process sees it.
func New(driverRoot string) *Setter { return &Setter{driverRoot: driverRoot, timeout: timeout} }

// Set gives a GPU, by its UUID, the time slice of that name: Default, Short, Medium
// or Long. It returns when the GPU has it. It ends after 10 seconds at the latest,
// with an error that has what nvidia-smi said.
func (s *Setter) Set(ctx context.Context, gpu, interval string) error {
	number, ok := intervals[interval]
	if !ok {
		return fmt.Errorf("time slice %q is not known: give Default, Short, Medium or Long", interval)
	}
	if id, ok := strings.CutPrefix(gpu, "GPU-"); !ok || len(id) != 36 || uuid.Validate(id) != nil {
		return fmt.Errorf("%q is not the UUID of a GPU, and nothing else has a time slice", gpu)
	}
	program, err := driverroot.Find(s.driverRoot, "nvidia-smi")
	if err != nil {
		return fmt.Errorf("set the time slice of GPU %s: %w", gpu, err)
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	output, err := program.Command(limited, "compute-policy", "-i", gpu, "--set-timeslice", number).CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("set the time slice of GPU %s: %w", gpu, ctx.Err())
	case limited.Err() != nil:
		return fmt.Errorf("set the time slice of GPU %s: %s did not end within %s, %s", gpu, program.Path, s.timeout, driverroot.Brief(output))
	case errors.Is(err, fs.ErrNotExist):
		// The file is there, so what is missing is what it is run by.
		return fmt.Errorf("set the time slice of GPU %s: %s cannot run here, its interpreter is missing: %w", gpu, program.Path, err)
	}
	return fmt.Errorf("set the time slice of GPU %s: %s compute-policy: %w, %s", gpu, program.Path, err, driverroot.Brief(output))
}
