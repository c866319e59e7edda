package prepare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/internal/atomicfile"
)

const (
	// A claim's record is <uid>.json, or <uid>.preparing.json before its last
	// step.
	preparedSuffix  = ".json"
	preparingSuffix = ".preparing.json"
	// damagedDir holds records that could not be read. They are evidence, and
	// never deleted by the driver.
	damagedDir = "damaged"
)

// store keeps one file per claim. It is safe for concurrent use, also by several
// processes: what it remembers of a file is used only while the file is the one
// that was read.
type store struct {
	dir     string
	damaged func(uid types.UID, path string, reason error)

	mu    sync.Mutex
	cache map[string]cachedRecord
	// asideMu is held while a record is set aside.
	asideMu sync.Mutex
}

type cachedRecord struct {
	info   fs.FileInfo
	record *Record
}

// newStore returns a store over the folder dir, which must exist. damaged is
// told of each record that was set aside.
func newStore(dir string, damaged func(types.UID, string, error)) *store {
	return &store{dir: dir, damaged: damaged, cache: map[string]cachedRecord{}}
}

func (s *store) path(uid types.UID, state State) string {
	if state == Preparing {
		return filepath.Join(s.dir, string(uid)+preparingSuffix)
	}
	return filepath.Join(s.dir, string(uid)+preparedSuffix)
}

// get returns the record of a claim, or nil if there is none. A record that
// cannot be read is set aside, reported, and then there is none. The record is
// shared: callers must not change it.
func (s *store) get(uid types.UID) (*Record, error) {
	for _, state := range []State{Prepared, Preparing} {
		r, err := s.read(uid, state)
		if err != nil {
			return nil, fmt.Errorf("record of claim %s: %w", uid, err)
		}
		if r != nil {
			return r, nil
		}
	}
	return nil, nil
}

func (s *store) read(uid types.UID, state State) (*Record, error) {
	path := s.path(uid, state)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.forget(path)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	cached, ok := s.cache[path]
	s.mu.Unlock()
	if ok && sameFile(cached.info, info) {
		return cached.record, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.forget(path)
		return nil, nil
	}
	if errors.Is(err, unix.EIO) {
		// The disk has lost it. Other errors pass, and say nothing of the record.
		return nil, s.setAside(uid, path, info, err)
	}
	if err != nil {
		return nil, err
	}
	record, err := decodeRecord(uid, state, data)
	if err != nil {
		return nil, s.setAside(uid, path, info, err)
	}
	s.remember(path, info, record)
	return record, nil
}

// sameFile is true if the path still holds the file that was read. A write
// always makes a new file, so identity, size and time tell.
func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func (s *store) remember(path string, info fs.FileInfo, r *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache[path] = cachedRecord{info, r}
}

func (s *store) forget(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cache, path)
}

// setAside moves the damaged record that info describes out of the way, keeping it
// as evidence. Several calls may have found it at once.
func (s *store) setAside(uid types.UID, path string, info fs.FileInfo, reason error) error {
	s.asideMu.Lock()
	defer s.asideMu.Unlock()
	if now, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !sameFile(info, now) {
		return nil // Another call was here first.
	}
	dir := filepath.Join(s.dir, damagedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("set it aside: %w", err)
	}
	to := filepath.Join(dir, fmt.Sprintf("%s-%s%s", uid, time.Now().UTC().Format("20060102T150405.000000000"), preparedSuffix))
	if err := os.Rename(path, to); err != nil {
		return fmt.Errorf("set it aside: %w", err)
	}
	s.forget(path)
	if s.damaged != nil {
		s.damaged(uid, to, reason)
	}
	return atomicfile.SyncDir(s.dir)
}

// setAsideClaims returns the claims of which a record was ever set aside here.
func (s *store) setAsideClaims() (map[types.UID]bool, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, damagedDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list records that were set aside: %w", err)
	}
	claims := map[types.UID]bool{}
	for _, e := range entries {
		// The time follows the last dash.
		if i := strings.LastIndexByte(e.Name(), '-'); i > 0 {
			claims[types.UID(e.Name()[:i])] = true
		}
	}
	return claims, nil
}

// put makes r the claim's record, durably.
func (s *store) put(r *Record) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path(r.Claim.UID, r.State), data, 0o600)
}

// replace makes r the claim's record in place of one with the same devices. After a
// power failure either may be there, and either is right: nothing of what was prepared
// outlives one.
func (s *store) replace(r *Record) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return atomicfile.Replace(s.path(r.Claim.UID, r.State), data, 0o600)
}

// prepared says of a record that was put as Preparing that all its steps are
// done. It does not wait for the disk: after a power failure either name is right.
func (s *store) prepared(r *Record) (*Record, error) {
	to := s.path(r.Claim.UID, Prepared)
	if err := os.Rename(s.path(r.Claim.UID, Preparing), to); err != nil {
		return nil, err
	}
	done := *r
	done.State = Prepared
	if info, err := os.Stat(to); err == nil {
		s.remember(to, info, &done)
	}
	return &done, nil
}

// remove deletes the claim's record, durably: one that came back would hold its
// devices for a claim that nobody unprepares.
func (s *store) remove(uid types.UID) error {
	for _, state := range []State{Preparing, Prepared} {
		path := s.path(uid, state)
		s.forget(path)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return atomicfile.SyncDir(s.dir)
}

// list returns all readable records, by claim UID.
func (s *store) list() ([]*Record, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list claim records: %w", err)
	}
	var out []*Record
	for _, e := range entries {
		uid, state, ok := recordName(e.Name())
		if !ok || e.IsDir() {
			continue
		}
		r, err := s.read(uid, state)
		if err == nil && r == nil && state == Preparing {
			// It was renamed since the folder was read.
			r, err = s.read(uid, Prepared)
		}
		if err != nil {
			return nil, fmt.Errorf("record of claim %s: %w", uid, err)
		}
		if r != nil {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *Record) int { return strings.Compare(string(a.Claim.UID), string(b.Claim.UID)) })
	return out, nil
}

// recordName says which claim's record a file is, and in which state.
func recordName(file string) (types.UID, State, bool) {
	if atomicfile.IsTemp(file) {
		return "", "", false
	}
	if uid, ok := strings.CutSuffix(file, preparingSuffix); ok {
		return types.UID(uid), Preparing, true
	}
	uid, ok := strings.CutSuffix(file, preparedSuffix)
	return types.UID(uid), Prepared, ok
}
