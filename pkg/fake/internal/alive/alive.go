// Package alive lets processes find out which others have not ended, and what their PIDs
// are, by files that those keep locked.
package alive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Holder is a file that a process keeps locked for as long as it holds something. The kernel ends the lock with the process, however that ends.
//
// The lock that says "alive" is one of the open file (F_OFD_SETLK): whether it is held
// can be asked without taking it. A second one, of the process (F_SETLK), is there
// because the kernel tells whoever asks for it the process's PID as they see it, in
// their own PID namespace. A process loses that one when it closes the file once.
type Holder struct{ file *os.File }

var (
	aliveLock = unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	pidLock   = unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 1, Len: 1}
)

// New makes this process's file in a folder, and removes those of processes that ended.
// The caller keeps other processes from doing so at the same time: nobody must take a file
// that is not locked yet for one that is no longer.
func New(dir string) (*Holder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := removeEnded(dir); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(dir, "process-*")
	if err != nil {
		return nil, err
	}
	h := &Holder{file: file}
	lock := aliveLock
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), h.Close())
	}
	// Whoever reads the folder may ask for the locks.
	if err := errors.Join(file.Chmod(0o644), h.ShowPID()); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func removeEnded(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if _, alive := At(path); alive {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Name is the file's, in its folder.
func (h *Holder) Name() string { return filepath.Base(h.file.Name()) }

// ShowPID lets others ask for this process's PID. It is called again after each At in this
// process.
func (h *Holder) ShowPID() error {
	lock := pidLock
	if err := unix.FcntlFlock(h.file.Fd(), unix.F_SETLK, &lock); err != nil {
		return fmt.Errorf("lock %s: %w", h.file.Name(), err)
	}
	return nil
}

// Close removes the file.
func (h *Holder) Close() error { return errors.Join(os.Remove(h.file.Name()), h.file.Close()) }

// At says whether the process lives that holds a file, and which it is: 0 if it
// is this one or cannot be seen from here.
func At(path string) (pid uint32, alive bool) {
	file, err := os.Open(path)
	if err != nil {
		return 0, !errors.Is(err, fs.ErrNotExist)
	}
	defer file.Close()
	lock := aliveLock
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return 0, true
	}
	if lock.Type == unix.F_UNLCK {
		return 0, false
	}
	lock = pidLock
	if err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK {
		return 0, true
	}
	return uint32(max(lock.Pid, 0)), true
}
