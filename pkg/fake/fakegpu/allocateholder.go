package fakegpu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// allocationDir is the folder with a file for each process that allocates.
const allocationDir = "allocations"

// holder is a file in the machine's folder that a process keeps locked for as long as
// it has memory. The kernel ends the lock with the process, however that ends.
//
// The lock that says "alive" is one of the open file (F_OFD_SETLK): whether it is held
// can be asked without taking it. A second one, of the process (F_SETLK), is there
// because the kernel tells whoever asks for it the process's PID as they see it, in
// their own PID namespace. A process loses that one when it closes the file once.
type holder struct{ file *os.File }

var (
	aliveLock = unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	pidLock   = unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 1, Len: 1}
)

func (s *state) holderPath(name string) string { return filepath.Join(s.dir, allocationDir, name) }

// newHolder makes this process's file, and removes those of processes that ended.
func (m *Machine) newHolder() (h *holder, err error) {
	// Under the machine's lock nobody takes a file that is not locked yet for one
	// that is no longer.
	unlock, err := m.store.lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	dir := filepath.Join(m.store.dir, allocationDir)
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
	h = &holder{file: file}
	lock := aliveLock
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), h.close())
	}
	// Whoever reads the machine may ask for the locks.
	if err := errors.Join(file.Chmod(0o644), h.showPID()); err != nil {
		return nil, errors.Join(err, h.close())
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
		if _, alive := holderAt(path); alive {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (h *holder) name() string { return filepath.Base(h.file.Name()) }

// showPID lets others ask for this process's PID.
func (h *holder) showPID() error {
	lock := pidLock
	if err := unix.FcntlFlock(h.file.Fd(), unix.F_SETLK, &lock); err != nil {
		return fmt.Errorf("lock %s: %w", h.file.Name(), err)
	}
	return nil
}

func (h *holder) close() error { return errors.Join(os.Remove(h.file.Name()), h.file.Close()) }

// holderAt says whether the process lives that holds a file, and which it is: 0 if it
// is this one or cannot be seen from here.
func holderAt(path string) (pid uint32, alive bool) {
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
