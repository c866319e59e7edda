package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// downPatience is how long stopping everything may take.
const downPatience = time.Minute

// Down stops the cluster and removes all it left on the host, its folder included;
// only the built programs stay.
func (c *Cluster) Down(ctx context.Context) error {
	return Down(ctx, c.dir, c.log)
}

// Down stops the cluster in a folder (DefaultDir if empty), or what is left of
// one, and removes all it left on the host. It is no error if there is none.
func Down(ctx context.Context, dir string, log io.Writer) error {
	if dir == "" {
		dir = DefaultDir
	}
	if err := requireRoot(); err != nil {
		return err
	}
	if !exists(dir) {
		return remove(ctx, dir, nil)
	}
	unlock, err := lock(ctx, dir, log)
	if err != nil {
		return err
	}
	defer unlock()
	recorded, err := readState(dir)
	if errors.Is(err, os.ErrNotExist) {
		return remove(ctx, dir, nil)
	} else if err != nil {
		return err
	}
	return remove(ctx, dir, newCluster(dir, recorded, log))
}

// remove stops what runs of a cluster and removes its folder. c is nil if the
// folder does not say what cluster it was; then only what its path tells is found.
func remove(ctx context.Context, dir string, c *Cluster) error {
	if err := reset(ctx, dir, c); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the cluster's folder: %w", err)
	}
	return nil
}

// reset does as remove, but keeps the empty folder, which is locked.
func reset(ctx context.Context, dir string, c *Cluster) error {
	if c == nil {
		if err := checkForeign(dir); err != nil {
			return err
		}
		c = newCluster(dir, state{Network: -1}, io.Discard)
	}
	if err := c.stop(ctx); err != nil {
		return err
	}
	return clearFolder(dir)
}

// checkForeign fails if a folder without a cluster's state holds anything but what
// a cluster may leave there; such a folder is never removed.
func checkForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ignoreNotExist(err)
	}
	for _, entry := range entries {
		if entry.Name() != logsFolder && !strings.HasPrefix(entry.Name(), stateFile) {
			return fmt.Errorf("%s is not a cluster's folder (it holds %s): use another", dir, entry.Name())
		}
	}
	return nil
}

// clearFolder removes what is in a cluster's folder but the names to keep. What
// says that it is one goes last, so that an interrupted removal can be repeated.
func clearFolder(dir string, keep ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ignoreNotExist(err)
	}
	for _, entry := range entries {
		if entry.Name() == stateFile || slices.Contains(keep, entry.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("remove the cluster's files: %w", err)
		}
	}
	return ignoreNotExist(os.Remove(statePath(dir)))
}

// stop ends all processes of the cluster and removes what it has on the host
// outside its folder.
func (c *Cluster) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downPatience)
	defer cancel()
	if err := c.kill(ctx); err != nil {
		return err
	}
	if err := removeGroups(ctx, groupName(c.dir)); err != nil {
		return err
	}
	if c.network.number >= 0 {
		if err := removeLink(c.network.hostLink()); err != nil {
			return err
		}
	}
	if err := c.releaseMountPoints(); err != nil {
		return fmt.Errorf("remove the places that were made to mount on: %w", err)
	}
	return unmountBelow(c.dir)
}

func mountPointsOf(dir string) mountPoints {
	return mountPoints{path: filepath.Join(dir, "mount-points")}
}

// releaseMountPoints removes the folders that were made on the host. While another
// cluster is up they are its mount points too, and it has to remove them later:
// removing a folder undoes what is mounted on it, on all machines.
func (c *Cluster) releaseMountPoints() error {
	others, err := holders()
	if err != nil {
		return err
	}
	own := mountPointsOf(c.dir)
	for _, other := range others {
		if other.dir != c.dir && exists(statePath(other.dir)) {
			return own.handOver(mountPointsOf(other.dir))
		}
	}
	return own.remove()
}

// kill ends the machines, and so all processes on them.
func (c *Cluster) kill(ctx context.Context) error {
	for _, m := range c.machines() {
		if err := m.holder.stop(ctx, 0); err != nil {
			return err
		}
	}
	// A program that was killed while it started a machine did not record it.
	left, err := holders()
	if err != nil {
		return err
	}
	for _, h := range left {
		stray := process{name: fmt.Sprintf("stray.%d", h.pid), dir: c.dir}
		if h.dir != c.dir || stray.record(h.pid) != nil { // another cluster's, or it has ended
			continue
		}
		if err := stray.stop(ctx, 0); err != nil {
			return err
		}
	}
	for _, p := range c.processes() {
		if err := p.forget(); err != nil {
			return err
		}
	}
	return nil
}

// holder is a process that holds a machine of the cluster in dir.
type holder struct {
	pid int
	dir string
}

// holders finds the holders of all clusters on the host.
func holders() ([]holder, error) {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var list []holder
	for _, path := range commands {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		arguments := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if len(arguments) != 3 || filepath.Base(arguments[0]) != pause {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		list = append(list, holder{pid: pid, dir: arguments[2]})
	}
	return list, nil
}

// unmountBelow unmounts what is mounted below a folder. The cluster mounts nothing
// there on the host; this keeps the removal of the folder from reaching into
// something that somebody else did mount.
func unmountBelow(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var below []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			below = append(below, fields[1])
		}
	}
	slices.Reverse(below) // the latest first
	for _, target := range below {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return nil
}
