package fakegpu

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// driverRoot is the folder with the files of a driver installation.
type driverRoot struct{ dir string }

// rootEntry is one file of the driver root: a character device, a symbolic link
// or a regular file.
type rootEntry struct {
	mode fs.FileMode
	// content is for regular files, target for symbolic links.
	content string
	target  string
	// major and minor are for devices.
	major, minor uint32
}

func regular(content string, mode fs.FileMode) rootEntry {
	return rootEntry{mode: mode, content: content}
}

func symlink(target string) rootEntry { return rootEntry{mode: fs.ModeSymlink, target: target} }

func charDevice(major, minor uint32) rootEntry {
	return rootEntry{mode: fs.ModeDevice | fs.ModeCharDevice | 0o666, major: major, minor: minor}
}

// rootEntries are all files of a machine's driver root, by path in it.
func rootEntries(st *state) map[string]rootEntry {
	entries := map[string]rootEntry{}
	addSysfs(entries, st)
	if st.DriverVersion == "" {
		return entries
	}
	addLibraries(entries, st.DriverVersion)
	addPrograms(entries, st)
	addDevices(entries, st)
	return entries
}

// sameRoot says whether the driver root of two states of one machine is the same, as
// far as that can be told without making it: the driver, and which GPUs and instances
// there are, decide.
func sameRoot(a, b *state) bool {
	return a.DriverVersion == b.DriverVersion && slices.EqualFunc(a.GPUs, b.GPUs, func(g, h gpu) bool {
		return g.Slot == h.Slot && g.Product == h.Product && g.Removed == h.Removed && g.Lost == h.Lost &&
			slices.EqualFunc(g.Instances, h.Instances, func(i, j gpuInstance) bool {
				return i.ID == j.ID && i.Profile == j.Profile && i.Placement == j.Placement && slices.Equal(i.Compute, j.Compute)
			})
	})
}

// changedEntries are the entries of after that before has not, or has otherwise.
func changedEntries(before, after map[string]rootEntry) map[string]rootEntry {
	changed := map[string]rootEntry{}
	for path, e := range after {
		if old, ok := before[path]; !ok || old != e {
			changed[path] = e
		}
	}
	return changed
}

// droppedEntries are the paths, sorted, that before has and after has not.
func droppedEntries(before, after map[string]rootEntry) []string {
	var dropped []string
	for path := range before {
		if _, ok := after[path]; !ok {
			dropped = append(dropped, path)
		}
	}
	slices.Sort(dropped)
	return dropped
}

// put makes the entries that are missing or differ. Symbolic links come last,
// after what they point to.
func (r driverRoot) put(entries map[string]rootEntry) error {
	paths := slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		if la, lb := entries[a].mode&fs.ModeSymlink != 0, entries[b].mode&fs.ModeSymlink != 0; la != lb {
			if la {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return fmt.Errorf("make the driver root: %w", err)
	}
	for _, path := range paths {
		if err := r.putOne(path, entries[path]); err != nil {
			return fmt.Errorf("make /%s in the driver root: %w", path, err)
		}
	}
	return nil
}

func (r driverRoot) putOne(path string, e rootEntry) error {
	full := filepath.Join(r.dir, path)
	if e.isAt(full) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(full), ".new-"+filepath.Base(full))
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := e.make(temp); err != nil {
		return err
	}
	return os.Rename(temp, full)
}

// isAt reports whether the entry exists at a path as it should be.
func (e rootEntry) isAt(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	switch {
	case e.mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return err == nil && target == e.target
	case e.mode&fs.ModeCharDevice != 0:
		var stat unix.Stat_t
		return unix.Lstat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFCHR &&
			stat.Rdev == unix.Mkdev(e.major, e.minor)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != e.mode.Perm() || info.Size() != int64(len(e.content)) {
		return false
	}
	data, err := os.ReadFile(path)
	return err == nil && bytes.Equal(data, []byte(e.content))
}

func (e rootEntry) make(path string) error {
	switch {
	case e.mode&fs.ModeSymlink != 0:
		return os.Symlink(e.target, path)
	case e.mode&fs.ModeCharDevice != 0:
		return e.makeDevice(path)
	}
	if err := os.WriteFile(path, []byte(e.content), e.mode.Perm()); err != nil {
		return err
	}
	// WriteFile's mode is subject to the umask.
	return os.Chmod(path, e.mode.Perm())
}

// makeDevice makes a character device. A process without CAP_MKNOD may only make
// the device 0:0, which nothing can open but which is found as a character
// device; where even that is refused, a link to /dev/null stands in.
func (e rootEntry) makeDevice(path string) error {
	err := unix.Mknod(path, unix.S_IFCHR|uint32(e.mode.Perm()), int(unix.Mkdev(e.major, e.minor)))
	if errors.Is(err, unix.EPERM) {
		err = unix.Mknod(path, unix.S_IFCHR|uint32(e.mode.Perm()), 0)
	}
	if errors.Is(err, unix.EPERM) {
		return os.Symlink("/dev/null", path)
	}
	if err != nil {
		return fmt.Errorf("mknod: %w", err)
	}
	return os.Chmod(path, e.mode.Perm())
}

// remove removes files, and the folders that they leave empty.
func (r driverRoot) remove(paths []string) error {
	for _, path := range paths {
		if err := os.Remove(filepath.Join(r.dir, path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove /%s from the driver root: %w", path, err)
		}
		for folder := filepath.Dir(path); folder != "."; folder = filepath.Dir(folder) {
			err := os.Remove(filepath.Join(r.dir, folder))
			if errors.Is(err, unix.ENOTEMPTY) {
				break
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove /%s from the driver root: %w", folder, err)
			}
		}
	}
	return nil
}

// prune removes everything that is not an entry: what a process that was killed
// in the middle of a change left behind.
func (r driverRoot) prune(entries map[string]rootEntry) error {
	var strangers []string
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(r.dir, path)
		if err != nil {
			return err
		}
		if _, ok := entries[relative]; !ok {
			strangers = append(strangers, relative)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for old files in the driver root: %w", err)
	}
	return r.remove(strangers)
}
