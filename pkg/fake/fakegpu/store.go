package fakegpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stateFile = "state.json"
	lockFile  = "lock"
)

// store keeps the state of a machine in a folder that processes share. A change
// happens under a lock and replaces the file, so a reader needs no lock and sees
// a whole state.
type store struct {
	dir string

	mu     sync.Mutex
	cached *state
	stamp  fileStamp
}

// fileStamp tells one version of the state file from another.
type fileStamp struct {
	inode    uint64
	size     int64
	modified time.Time
}

func stampOf(info os.FileInfo) fileStamp {
	stamp := fileStamp{size: info.Size(), modified: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		stamp.inode = sys.Ino
	}
	return stamp
}

func (s *store) path() string { return filepath.Join(s.dir, stateFile) }

// read gives the current state; it must not be changed. The file is parsed only
// when it is another than the last time.
func (s *store) read() (*state, error) {
	info, err := os.Stat(s.path())
	if err != nil {
		return nil, fmt.Errorf("read the fake machine in %s: %w", s.dir, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stamp := stampOf(info)
	if s.cached != nil && s.stamp == stamp {
		return s.cached, nil
	}
	data, err := os.ReadFile(s.path())
	if err != nil {
		return nil, fmt.Errorf("read the fake machine in %s: %w", s.dir, err)
	}
	st, err := parseState(data, s.dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(), err)
	}
	// The file may have been replaced between the two calls; then the stamp is
	// the older one's and the next read parses again.
	s.cached, s.stamp = st.freeze(), stamp
	return st, nil
}

// lock takes the machine's lock, which holds between goroutines and processes.
func (s *store) lock() (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("lock the fake machine in %s: %w", s.dir, err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the fake machine in %s: %w", s.dir, err), f.Close())
	}
	// Closing the file gives the lock up.
	return f.Close, nil
}

// write replaces the state file. The caller holds the lock, and changes the state no
// more.
func (s *store) write(st *state) (err error) {
	data, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("write the fake machine in %s: %w", s.dir, err)
	}
	f, err := os.CreateTemp(s.dir, ".state-*")
	if err != nil {
		return fmt.Errorf("write the fake machine in %s: %w", s.dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write the fake machine in %s: %w", s.dir, err), os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	// Two files written within one tick of the kernel's clock may have the same
	// time and size, and even the same inode. The generation in place of the
	// nanoseconds makes the time tell every version from the one before.
	now := time.Now()
	modified := time.Unix(now.Unix(), int64(st.Generation%1_000_000_000))
	if err = os.Chtimes(f.Name(), modified, modified); err != nil {
		return err
	}
	// The stamp is taken from the file itself, as the file system rounds times.
	info, err := os.Stat(f.Name())
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), s.path()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cached, s.stamp = st.freeze(), stampOf(info)
	return nil
}
