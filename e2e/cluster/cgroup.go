package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// hierarchy is one mounted tree of control groups: one of version 1 with some
// controllers, or the one of version 2.
type hierarchy struct {
	root     string
	unified  bool
	isCPUSet bool
}

// hierarchies lists the trees that are mounted on the host.
func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var list []hierarchy
	seen := map[string]bool{}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || (fields[2] != "cgroup" && fields[2] != "cgroup2") || seen[fields[1]] {
			continue
		}
		seen[fields[1]] = true
		list = append(list, hierarchy{
			root:     fields[1],
			unified:  fields[2] == "cgroup2",
			isCPUSet: slices.Contains(strings.Split(fields[3], ","), "cpuset"),
		})
	}
	if len(list) == 0 {
		return nil, errors.New("no control groups are mounted on this host (expected at /sys/fs/cgroup)")
	}
	return list, nil
}

// groupName is the name of the cluster's control group, the same whenever the
// cluster's folder is the same.
func groupName(dir string) string {
	hash := fnv.New32a()
	hash.Write([]byte(dir))
	return fmt.Sprintf("apportion-%08x", hash.Sum32())
}

// makeGroups makes a control group for each name below the cluster's, in every
// tree, ready for a kubelet to make its own below.
func makeGroups(cluster string, names []string) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	for _, tree := range trees {
		if err := tree.make(cluster, names); err != nil {
			return fmt.Errorf("make control groups in %s: %w", tree.root, err)
		}
	}
	return nil
}

func (h hierarchy) make(cluster string, names []string) error {
	top := filepath.Join(h.root, cluster)
	groups := []string{top}
	for _, name := range names {
		groups = append(groups, filepath.Join(top, name))
	}
	if h.unified {
		if err := delegate(h.root); err != nil {
			return err
		}
	}
	for _, group := range groups {
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if h.isCPUSet && !h.unified {
			if err := inheritCPUSet(group); err != nil {
				return err
			}
		}
		if h.unified {
			if err := delegate(group); err != nil {
				return err
			}
		}
	}
	return nil
}

// inheritCPUSet gives a group of version 1 the processors and memory nodes of its
// parent; a new one has none, and no process may enter it.
func inheritCPUSet(group string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(group), file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(group, file), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// delegate makes the controllers of a group of version 2 available in the groups
// below it. On a host with both versions the controllers are bound to version 1
// and there is nothing to do. Those that are on already are not touched.
func delegate(group string) error {
	available, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return err
	}
	control := filepath.Join(group, "cgroup.subtree_control")
	enabled, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	on := strings.Fields(string(enabled))
	for _, controller := range strings.Fields(string(available)) {
		if slices.Contains(on, controller) || !slices.Contains(kubeletControllers, controller) {
			continue
		}
		if err := os.WriteFile(control, []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("make the controller %s available below %s: %w", controller, group, err)
		}
	}
	return nil
}

// kubeletControllers are those that a kubelet asks for (its cgroup manager for
// version 2 in pkg/kubelet/cm).
var kubeletControllers = []string{"cpu", "cpuset", "hugetlb", "memory", "pids"}

// removeGroups removes the cluster's control group, with all below, from every
// tree. The processes in it must have ended.
func removeGroups(ctx context.Context, cluster string) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	for _, tree := range trees {
		if err := removeTree(ctx, filepath.Join(tree.root, cluster)); err != nil {
			return fmt.Errorf("remove the control group %s of %s: %w", cluster, tree.root, err)
		}
	}
	return nil
}

// removeTree removes a group and those below it. The kernel lets go of a group a
// moment after its last process has ended, and has no event for it in version 1.
func removeTree(ctx context.Context, top string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		var groups []string
		last = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return ignoreNotExist(err)
		})
		if last != nil {
			return false, last
		}
		slices.Reverse(groups) // the innermost first
		for _, group := range groups {
			if last = ignoreNotExist(unix.Rmdir(group)); last != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return errors.Join(last, err)
	}
	return nil
}

func ignoreNotExist(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
