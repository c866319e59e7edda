package memlimit

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// OfContainer returns the full path of the folder of a container's cgroup, as NVML
// wants it. The process is the container's. The cgroup is never one that is
// shared with others, who would get its limit too: the root of the hierarchy, or that
// of this program, which the runtime started. root is the root folder, os.DirFS("/").
func OfContainer(root fs.FS, pid int) (string, error) {
	process := strconv.Itoa(pid)
	theirs, err := membershipOf(root, process)
	if err != nil {
		return "", err
	}
	own, err := membershipOf(root, "self")
	if err != nil {
		return "", err
	}
	if theirs.path == "/" || theirs == own {
		return "", fmt.Errorf("the container has no cgroup of its own: process %s is in %s, as others are", process, theirs.path)
	}
	return theirs.folder(root, process)
}

// Of returns the full path of the folder of a process's cgroup, as this program sees
// it. The process is a number or "self", and root the root folder, os.DirFS("/").
func Of(root fs.FS, process string) (string, error) {
	m, err := membershipOf(root, process)
	if err != nil {
		return "", err
	}
	return m.folder(root, process)
}

// wantsV2 is the way out where NVML takes no cgroup of a node.
const wantsV2 = "NVML limits the memory of cgroups of version 2, boot the node with systemd.unified_cgroup_hierarchy=1"

// membership is the place of a process in a hierarchy of cgroups.
type membership struct {
	// v1 says that the hierarchy is that of version 1's memory controller.
	v1 bool
	// path is below the root of the hierarchy, or of the cgroup namespace.
	path string
}

// membershipOf reads /proc/PID/cgroup (cgroups(7)). A node whose memory controller is of
// version 1 does not run on version 2, though its processes may be in cgroups of both.
// There it is always version 1's that counts: runtimes do not show a container its
// cgroup of version 2 then, and both have to find the same. Whether NVML takes it is
// NVML's to say.
func membershipOf(root fs.FS, process string) (membership, error) {
	data, err := fs.ReadFile(root, path.Join("proc", process, "cgroup"))
	if err != nil {
		return membership{}, fmt.Errorf("find the cgroup of process %s: %w", process, err)
	}
	v2, memory := parseCgroups(string(data))
	m := membership{path: v2}
	if memory != "" {
		m = membership{v1: true, path: memory}
	}
	switch {
	case m.path == "":
		return membership{}, fmt.Errorf("process %s is in no cgroup that has memory: %s", process, wantsV2)
	case slices.Contains(strings.Split(m.path, "/"), ".."):
		return membership{}, fmt.Errorf("process %s is outside the cgroup namespace of this program", process)
	}
	return m, nil
}

// parseCgroups returns the path in the hierarchy of version 2 and that of version 1's
// memory controller, empty where there is none.
func parseCgroups(text string) (v2, memory string) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(fields) != 3:
		case fields[0] == "0" && fields[1] == "":
			v2 = fields[2]
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			memory = fields[2]
		}
	}
	return v2, memory
}

// folder finds the mount that shows a cgroup. One that shows another part of the tree,
// or that something else is mounted over, does not.
func (m membership) folder(root fs.FS, process string) (string, error) {
	file, err := root.Open("proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find where cgroups are mounted: %w", err)
	}
	defer file.Close()
	mounts, err := mountinfo.GetMountsFromReader(file, m.elsewhere)
	if err != nil {
		return "", fmt.Errorf("find where cgroups are mounted: %w", err)
	}
	for _, mount := range mounts {
		folder, ok := within(mount, m.path)
		if !ok {
			continue
		}
		if info, err := fs.Stat(root, strings.TrimPrefix(folder, "/")); err == nil && info.IsDir() {
			return folder, nil
		}
	}
	return "", fmt.Errorf("process %s is in cgroup %s, which no mount shows here", process, m.path)
}

// elsewhere filters out the mounts of other file systems and hierarchies.
func (m membership) elsewhere(mount *mountinfo.Info) (skip, stop bool) {
	if m.v1 {
		return mount.FSType != "cgroup" || !slices.Contains(strings.Split(mount.VFSOptions, ","), "memory"), false
	}
	return mount.FSType != "cgroup2", false
}

// within is where a mount shows a cgroup, if it does: in a container it is often a
// mount of that cgroup alone.
func within(mount *mountinfo.Info, cgroup string) (string, bool) {
	rest, ok := strings.CutPrefix(cgroup, strings.TrimSuffix(mount.Root, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return path.Join(mount.Mountpoint, rest), true
}
