package fakeroot

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

// Root is the folder with the files of a driver installation.
type Root struct{ Dir string }

// file is one file of a driver root: a character device, a symbolic link
// or a regular file.
type file struct {
	mode fs.FileMode
	// content is for regular files, unless they are copies of another file, whose path
	// is the source. target is for symbolic links.
	content, source string
	target          string
	// major and minor are for devices.
	major, minor uint32
}

func regular(content string, mode fs.FileMode) file {
	return file{mode: mode, content: content}
}

func copyOf(source string, mode fs.FileMode) file { return file{mode: mode, source: source} }

func symlink(target string) file { return file{mode: fs.ModeSymlink, target: target} }

func charDevice(major, minor uint32) file {
	return file{mode: fs.ModeDevice | fs.ModeCharDevice | 0o666, major: major, minor: minor}
}

// Files are the files of a driver root, by path in it.
type Files map[string]file

// FilesOf are all files of a machine's driver root.
func FilesOf(m Machine) Files {
	files := Files{}
	addSysfs(files, m)
	if m.DriverVersion == "" {
		return files
	}
	addLibraries(files, m)
	addPrograms(files, m)
	addDevices(files, m)
	return files
}

// ChangedFrom are the files that before has not, or has otherwise.
func (f Files) ChangedFrom(before Files) Files {
	changed := Files{}
	for path, e := range f {
		if old, ok := before[path]; !ok || old != e {
			changed[path] = e
		}
	}
	return changed
}

// DroppedFrom are the paths, sorted, of files that before has and f has not.
func (f Files) DroppedFrom(before Files) []string {
	var dropped []string
	for path := range before {
		if _, ok := f[path]; !ok {
			dropped = append(dropped, path)
		}
	}
	slices.Sort(dropped)
	return dropped
}

// Put makes the files that are missing or differ. Symbolic links come last, after
// what they point to.
func (r Root) Put(files Files) error {
	paths := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		if la, lb := files[a].mode&fs.ModeSymlink != 0, files[b].mode&fs.ModeSymlink != 0; la != lb {
			if la {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return fmt.Errorf("make the driver root: %w", err)
	}
	for _, path := range paths {
		if err := r.putOne(path, files[path]); err != nil {
			return fmt.Errorf("make /%s in the driver root: %w", path, err)
		}
	}
	return nil
}

func (r Root) putOne(path string, f file) error {
	full := filepath.Join(r.Dir, path)
	if f.isAt(full) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(full), ".new-"+filepath.Base(full))
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.make(temp); err != nil {
		return err
	}
	return os.Rename(temp, full)
}

// isAt reports whether the file exists at a path as it should be.
func (f file) isAt(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	switch {
	case f.mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return err == nil && target == f.target
	case f.mode&fs.ModeCharDevice != 0:
		var stat unix.Stat_t
		return unix.Lstat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFCHR &&
			stat.Rdev == unix.Mkdev(f.major, f.minor)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != f.mode.Perm() {
		return false
	}
	want, err := f.data()
	if err != nil || info.Size() != int64(len(want)) {
		return false
	}
	data, err := os.ReadFile(path)
	return err == nil && bytes.Equal(data, want)
}

// data is what a regular file has in it.
func (f file) data() ([]byte, error) {
	if f.source != "" {
		return os.ReadFile(f.source)
	}
	return []byte(f.content), nil
}

func (f file) make(path string) error {
	switch {
	case f.mode&fs.ModeSymlink != 0:
		return os.Symlink(f.target, path)
	case f.mode&fs.ModeCharDevice != 0:
		return f.makeDevice(path)
	}
	data, err := f.data()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, data, f.mode.Perm()); err != nil {
		return err
	}
	// WriteFile's mode is subject to the umask.
	return os.Chmod(path, f.mode.Perm())
}

// makeDevice makes a character device. A process without CAP_MKNOD may only make
// the device 0:0, which nothing can open but which is found as a character
// device; where even that is refused, a link to /dev/null stands in.
func (f file) makeDevice(path string) error {
	err := unix.Mknod(path, unix.S_IFCHR|uint32(f.mode.Perm()), int(unix.Mkdev(f.major, f.minor)))
	if errors.Is(err, unix.EPERM) {
		err = unix.Mknod(path, unix.S_IFCHR|uint32(f.mode.Perm()), 0)
	}
	if errors.Is(err, unix.EPERM) {
		return os.Symlink("/dev/null", path)
	}
	if err != nil {
		return fmt.Errorf("mknod: %w", err)
	}
	return os.Chmod(path, f.mode.Perm())
}

// Remove removes files, and the folders that they leave empty.
func (r Root) Remove(paths []string) error {
	for _, path := range paths {
		if err := os.Remove(filepath.Join(r.Dir, path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove /%s from the driver root: %w", path, err)
		}
		for folder := filepath.Dir(path); folder != "."; folder = filepath.Dir(folder) {
			err := os.Remove(filepath.Join(r.Dir, folder))
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

// Prune removes everything that is not among the files: what a process that was
// killed in the middle of a change left behind.
func (r Root) Prune(files Files) error {
	var strangers []string
	err := filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(r.Dir, path)
		if err != nil {
			return err
		}
		if _, ok := files[relative]; !ok {
			strangers = append(strangers, relative)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for old files in the driver root: %w", err)
	}
	return r.Remove(strangers)
}
