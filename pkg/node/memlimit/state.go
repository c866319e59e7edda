// Package memlimit limits how much memory of a GPU a container may use, through
// NVML (nvmlDeviceSetMemoryLimits_v1).
//
// It knows containers by what an OCI runtime tells a hook, cgroups, and NVML. It
// does not know claims, and not who decided on a limit. What it reads of a
// container is the runtime's word and the kernel's, never the container's own.
package memlimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxState is more than any runtime writes: the state holds the container's
// annotations, which Kubernetes limits to 256 KiB.
const maxState = 4 << 20

// ReadState returns the process of a container from the state that an OCI runtime
// gives a hook (runtime-spec, "State"). A container that was started already is an
// error: its programs ran without the limit.
func ReadState(r io.Reader) (pid int, err error) {
	data, err := io.ReadAll(io.LimitReader(r, maxState+1))
	if err != nil {
		return 0, fmt.Errorf("read the container's state from standard input: %w", err)
	}
	if len(data) > maxState {
		return 0, fmt.Errorf("the container's state on standard input is larger than %d bytes", maxState)
	}
	var state struct {
		ID     string `json:"id"`
		Status string `json:"status"`
		PID    int    `json:"pid"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return 0, fmt.Errorf("standard input is not a container's state as an OCI runtime writes it: %w", err)
	}
	switch {
	case state.PID <= 0:
		return 0, errors.New("the container's state names no process: the hook has to run as createRuntime")
	case state.Status != "" && state.Status != "creating" && state.Status != "created":
		return 0, fmt.Errorf("container %q is %q: the hook has to run as createRuntime, before the container starts", state.ID, state.Status)
	}
	return state.PID, nil
}
