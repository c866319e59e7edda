package exporter

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
)

// ContainerOf returns a function that finds a process's container by /proc, which must
// be that of the host's processes (proc is its root, such as os.DirFS("/proc")). The
// answer is the runtime's id, 64 hexadecimal digits, or empty for a process that runs
// in no container. It is not ok if that cannot be told; a process that has ended is in
// no container.
func ContainerOf(proc fs.FS) func(pid int) (containerID string, ok bool) {
	return func(pid int) (string, bool) {
		text, err := fs.ReadFile(proc, strconv.Itoa(pid)+"/cgroup")
		if errors.Is(err, fs.ErrNotExist) {
			return "", true
		}
		if err != nil {
			return "", false
		}
		return containerOfCgroups(string(text)), true
	}
}

// containerOfCgroups reads /proc/PID/cgroup, which has lines of "hierarchy:controllers:path"
// (cgroups(7)): one with version 2, one for each hierarchy with version 1, of which some
// may be left at the root.
func containerOfCgroups(text string) string {
	for line := range strings.Lines(text) {
		if fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(fields) == 3 {
			if id := containerOfPath(fields[2]); id != "" {
				return id
			}
		}
	}
	return ""
}

// containerOfPath finds the id in the path of a cgroup. The outermost one below the
// kubelet's folder is the pod's container: it may run containers of its own, and the
// node itself may be one.
func containerOfPath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if strings.Contains(part, "kubepods") {
			parts = parts[i+1:]
			break
		}
	}
	for _, part := range parts {
		if id := containerOfPart(part); id != "" {
			return id
		}
	}
	return ""
}

const idDigits = 64

// containerOfPart takes what the runtimes call a container's cgroup: with systemd
// "cri-containerd-ID.scope", "crio-ID.scope" or "docker-ID.scope", with the cgroupfs
// driver "ID", and "slice:cri-containerd:ID" where the two are mixed up.
func containerOfPart(part string) string {
	part = strings.TrimSuffix(part, ".scope")
	if len(part) < idDigits {
		return ""
	}
	prefix, id := part[:len(part)-idDigits], part[len(part)-idDigits:]
	for _, r := range id {
		if !strings.ContainsRune("0123456789abcdef", r) {
			return ""
		}
	}
	switch {
	case prefix == "":
		return id
	case strings.Contains(prefix, "conmon"):
		// CRI-O's monitor of a container is not in it.
		return ""
	case strings.HasSuffix(prefix, "-"), strings.HasSuffix(prefix, ":"):
		return id
	}
	return ""
}
