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

	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/atomicfile"
)

const (
	recordSuffix = ".json"
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
	cache map[types.UID]cachedRecord
}

type cachedRecord struct {
	info   fs.FileInfo
	record *Record
}

// newStore returns a store over the folder dir, which must exist. damaged is
// told of each record that was set aside.
func newStore(dir string, damaged func(types.UID, string, error)) *store {
	return &store{dir: dir, damaged: damaged, cache: map[types.UID]cachedRecord{}}
}

func (s *store) path(uid types.UID) string {
	return filepath.Join(s.dir, string(uid)+recordSuffix)
}

// get returns the record of a claim, or nil if there is none. A record that
// cannot be read is set aside, reported, and then there is none. The record is
// shared: callers must not change it.
func (s *store) get(uid types.UID) (*Record, error) {
	path := s.path(uid)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.forget(uid)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("record of claim %s: %w", uid, err)
	}
	s.mu.Lock()
	cached, ok := s.cache[uid]
	s.mu.Unlock()
	if ok && sameFile(cached.info, info) {
		return cached.record, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.forget(uid)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("record of claim %s: %w", uid, err)
	}
	record, err := decodeRecord(uid, data)
	if err != nil {
		return nil, s.setAside(uid, err)
	}
	s.mu.Lock()
	s.cache[uid] = cachedRecord{info, record}
	s.mu.Unlock()
	return record, nil
}

// sameFile is true if the path still holds the file that was read. A write
// always makes a new file, so identity, size and time tell.
func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func (s *store) forget(uid types.UID) {
	s.mu.Lock()
	delete(s.cache, uid)
	s.mu.Unlock()
}

// setAside moves a damaged record out of the way, keeping it as evidence.
func (s *store) setAside(uid types.UID, reason error) error {
	dir := filepath.Join(s.dir, damagedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("set damaged record of claim %s aside: %w", uid, err)
	}
	to := filepath.Join(dir, fmt.Sprintf("%s-%s%s", uid, time.Now().UTC().Format("20060102T150405.000000000"), recordSuffix))
	if err := os.Rename(s.path(uid), to); err != nil {
		return fmt.Errorf("set damaged record of claim %s aside: %w", uid, err)
	}
	s.forget(uid)
	if s.damaged != nil {
		s.damaged(uid, to, reason)
	}
	return atomicfile.SyncDir(s.dir)
}

// put makes r the claim's record. durable says whether to return only when it
// would survive a power failure.
func (s *store) put(r *Record) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path(r.Claim.UID), data, 0o600)
}

// remove deletes the claim's record.
func (s *store) remove(uid types.UID) error {
	s.forget(uid)
	return atomicfile.Remove(s.path(uid))
}

// list returns all readable records, by claim UID.
func (s *store) list() ([]*Record, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list claim records: %w", err)
	}
	var out []*Record
	for _, e := range entries {
		uid, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok || e.IsDir() || atomicfile.IsTemp(e.Name()) {
			continue
		}
		r, err := s.get(types.UID(uid))
		if err != nil {
			return nil, err
		}
		if r != nil {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *Record) int { return strings.Compare(string(a.Claim.UID), string(b.Claim.UID)) })
	return out, nil
}
