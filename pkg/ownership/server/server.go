// Package server publishes who holds what on a node: as a gRPC service on a Unix
// socket, where it can be watched, and as JSON over HTTP.
//
// It keeps the last owners and the latest changes. It does not know where they come
// from: whoever does calls Set. Nobody who listens can hold up Set: nothing is queued
// for a watcher, each fetches what it was not sent yet from the history that all share
// and, if that does not reach back far enough any more, is told to ask again.
package server

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	ownershipv1 "apportion.dev/apportion/api/ownership/v1"
	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/wire"
)

// historyLength is how many changes are kept for watchers that resume or lag behind.
const historyLength = 256

// Server is the ownership service of one process.
type Server struct {
	ownershipv1.UnimplementedOwnershipServer

	// setting is held by one Set at a time, so that mu is held for moments only.
	setting sync.Mutex

	mu sync.Mutex
	// snapshot has generation 0 before the first Set. Its owners are never written to.
	snapshot ownership.Snapshot
	// history are the latest changes, of one generation each, up to that of the
	// snapshot.
	history []*ownershipv1.WatchResponse
	// news is closed when there is something to send: another generation or problem.
	news chan struct{}
}

// New returns a server that knows nothing yet, which it says to those who ask.
func New() *Server {
	return &Server{
		snapshot: ownership.Snapshot{Instance: uuid.NewString(), Owners: []ownership.Owner{}},
		news:     make(chan struct{}),
	}
}

// Set publishes the owners. There is a new generation only if they differ from those
// before. problem says why they may be stale or lack pods, empty if they are right;
// verified is when they were last known to be. What the owners refer to must not be
// changed afterwards. Set does not wait for anybody who listens. It can be called from
// several goroutines.
func (s *Server) Set(owners []ownership.Owner, problem string, verified time.Time) {
	s.setting.Lock()
	defer s.setting.Unlock()
	before := s.Snapshot()
	after := before
	after.Problem, after.Verified = problem, wallClock(verified)
	// Sorted, and without a second owner of the same key, as clients will have them.
	owners = ownership.Apply(nil, owners, nil)
	var change *ownershipv1.WatchResponse
	if before.Generation == 0 || !ownership.Equal(before.Owners, owners) {
		after.Owners, after.Time = owners, wallClock(time.Now())
		after.Generation++
	}
	if before.Generation > 0 && after.Generation > before.Generation {
		change = &ownershipv1.WatchResponse{Event: &ownershipv1.WatchResponse_Change{Change: wire.ChangeToProto(before, after)}}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot = after
	if change != nil {
		s.history = append(s.history, change)
		s.history = slices.Delete(s.history, 0, max(0, len(s.history)-historyLength))
	}
	if after.Generation != before.Generation || after.Problem != before.Problem {
		close(s.news)
		s.news = make(chan struct{})
	}
}

// Snapshot is the last state that was set. Its generation is 0 before the first Set.
// Its owners must not be changed.
func (s *Server) Snapshot() ownership.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot
}

// state is what the server knows at one moment.
type state struct {
	snapshot ownership.Snapshot
	// changes lead from the generation that was asked for to the snapshot's, if all
	// of them are kept.
	changes  []*ownershipv1.WatchResponse
	complete bool
	// news is closed when there is a later state.
	news <-chan struct{}
}

// since returns the state and the changes that lead to it from a generation.
func (s *Server) since(generation uint64) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := state{snapshot: s.snapshot, news: s.news}
	if generation == 0 || generation > s.snapshot.Generation {
		return now
	}
	missing := s.snapshot.Generation - generation
	if missing > uint64(len(s.history)) {
		return now
	}
	now.complete = true
	now.changes = slices.Clone(s.history[len(s.history)-int(missing):])
	return now
}

// wallClock is the time as it is published: without the monotonic clock, which means
// nothing to another process.
func wallClock(t time.Time) time.Time { return t.Round(0).UTC() }
