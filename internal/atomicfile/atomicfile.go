// Package atomicfile replaces files so that a reader, or a crash, sees the old
// content or the new, never a part. It knows nothing of what is in the files.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// tempMark stands in the names of unfinished files, so that Sweep knows them.
const tempMark = ".tmp-"

// Write replaces the file name with data: a temporary file in the same folder,
// fsync, rename, fsync of the folder. It returns when the content is durable. perm
// is the file's mode before the process's umask.
func Write(name string, data []byte, perm os.FileMode) error {
	if err := replace(name, data, perm, true); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(name))
}

// Replace replaces the file name with data like Write but does not wait until the
// new name is durable: after a power failure the file has the old content or the new.
func Replace(name string, data []byte, perm os.FileMode) error {
	return replace(name, data, perm, true)
}

// WriteVolatile replaces the file name with data like Write but does not wait
// for the disk. It is for files that are made again after a restart of the
// machine.
func WriteVolatile(name string, data []byte, perm os.FileMode) error {
	return replace(name, data, perm, false)
}

// process and serial tell apart the unfinished files of all processes: a process
// id does not, because that of a container's first process is always the same,
// and what a killed one left would be in the next one's way.
var (
	process = rand.Uint64()
	serial  atomic.Uint64
)

func replace(name string, data []byte, perm os.FileMode, durable bool) (err error) {
	temp := filepath.Join(filepath.Dir(name), fmt.Sprintf(".%s%s%016x-%d", filepath.Base(name), tempMark, process, serial.Add(1)))
	f, err := Open(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(temp))
		}
	}()
	_, err = f.Write(data)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, name)
}

// Open is os.OpenFile without what that does for files that can be polled, which
// regular files and folders cannot: five system calls each time.
func Open(name string, flags int, perm os.FileMode) (*os.File, error) {
	for {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, uint32(perm.Perm()))
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// SyncDir makes the renames and removals in dir durable.
func SyncDir(dir string) error {
	d, err := Open(dir, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// IsTemp says whether a file name is one of an unfinished Write.
func IsTemp(name string) bool {
	name = filepath.Base(name)
	return strings.HasPrefix(name, ".") && strings.Contains(name, tempMark)
}

// Sweep removes what unfinished writes left in dir. Nobody may be writing there.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if IsTemp(e.Name()) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
