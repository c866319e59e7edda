// Package memlimit limits how much memory of a GPU a container may use, through
// NVML (nvmlDeviceSetMemoryLimits_v1).
//
// It knows containers by what an OCI runtime tells a hook, cgroups, and NVML. It
// does not know claims, and not who decided on a limit. What it reads of a
// container is the runtime's word and the kernel's, never the container's own.
package memlimit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// maxState is more than any runtime writes: the state holds the container's
// annotations.
const maxState = 4 << 20

// ReadState returns the process of a container from the state that an OCI runtime
// gives a hook (runtime-spec, "State").
func ReadState(r io.Reader) (pid int, err error) {
	data, err := io.ReadAll(io.LimitReader(r, maxState+1))
	if err != nil {
		return 0, fmt.Errorf("read the container's state: %w", err)
	}
	if len(data) > maxState {
		return 0, fmt.Errorf("the container's state is larger than %d bytes", maxState)
	}
	var state struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return 0, fmt.Errorf("the container's state is not what an OCI runtime writes: %w", err)
	}
	if state.PID <= 0 {
		return 0, errors.New("the container's state names no process: the hook has to run as createRuntime")
	}
	return state.PID, nil
}

// Cgroups finds the cgroup of a process.
type Cgroups struct {
	// Root is the root folder, os.DirFS("/").
	Root fs.FS
	// V1 allows the path of the memory controller's cgroup of version 1 where the
	// process is in no cgroup of version 2. NVML takes only version 2.
	V1 bool
}

// Of returns the full path of the folder of a process's cgroup, as NVML wants it.
// The process is a number or "self".
func (c Cgroups) Of(process string) (string, error) {
	data, err := fs.ReadFile(c.Root, path.Join("proc", process, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("find the cgroup of process %s: %w", process, err)
	}
	v2, v1 := parseCgroups(data)
	mounts, err := fs.ReadFile(c.Root, "proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find where cgroups are mounted: %w", err)
	}
	unified, memory := parseMounts(mounts)
	switch {
	case v2 != "" && v2 != "/" && unified != "":
		return path.Join(unified, v2), nil
	case c.V1 && v1 != "" && v1 != "/":
		return path.Join(memory, v1), nil
	}
	return "", fmt.Errorf("process %s is in no cgroup of version 2, and NVML limits memory by no other: boot the node with cgroup v2 (systemd.unified_cgroup_hierarchy=1)", process)
}

// Name returns the path of a process's cgroup below where its hierarchy is mounted,
// "/" if the process sees no further, as in a cgroup namespace of its own.
func (c Cgroups) Name(process string) (string, error) {
	data, err := fs.ReadFile(c.Root, path.Join("proc", process, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("find the cgroup of process %s: %w", process, err)
	}
	v2, v1 := parseCgroups(data)
	for _, name := range []string{v2, v1} {
		if name != "" && name != "/" {
			return name, nil
		}
	}
	return "/", nil
}

// parseCgroups reads /proc/PID/cgroup (cgroups(7)): the path in the hierarchy of
// version 2, and that of the memory controller in version 1.
func parseCgroups(data []byte) (v2, memory string) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), ":", 3)
		if len(fields) != 3 {
			continue
		}
		if fields[0] == "0" && fields[1] == "" {
			v2 = fields[2]
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			if controller == "memory" {
				memory = fields[2]
			}
		}
	}
	return v2, memory
}

// parseMounts reads /proc/self/mountinfo (proc(5)): where version 2 is mounted, and
// where version 1's memory controller.
func parseMounts(data []byte) (unified, memory string) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		point := unescape(fields[4])
		switch {
		case kind[0] == "cgroup2" && unified == "":
			unified = point
		case kind[0] == "cgroup" && memory == "" && strings.Contains(","+kind[2]+",", ",memory,"):
			memory = point
		}
	}
	return unified, memory
}

// unescape turns the \040 of a path in mountinfo into the character.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
