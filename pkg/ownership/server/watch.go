package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ownershipv1 "apportion.dev/apportion/api/ownership/v1"
	"apportion.dev/apportion/pkg/ownership/wire"
)

const (
	// heartbeat is how often a watcher hears something at least: half of what the
	// service promises, for busy machines.
	heartbeat = 5 * time.Second
	// patience is how long a watcher that comes before the first Set waits for it.
	patience = 5 * time.Second
)

var errUnknown = status.Error(codes.Unavailable, "who holds what is not known yet: the driver is starting; ask again")

// List implements the service.
func (s *Server) List(context.Context, *ownershipv1.ListRequest) (*ownershipv1.ListResponse, error) {
	snapshot := s.Snapshot()
	if snapshot.Generation == 0 {
		return nil, errUnknown
	}
	return &ownershipv1.ListResponse{Snapshot: wire.SnapshotToProto(snapshot)}, nil
}

// Watch implements the service.
func (s *Server) Watch(request *ownershipv1.WatchRequest, stream grpc.ServerStreamingServer[ownershipv1.WatchResponse]) error {
	if err := s.waitUntilKnown(stream.Context()); err != nil {
		return err
	}
	w := &watcher{server: s, stream: stream}
	if err := w.start(request); err != nil {
		return err
	}
	timer := time.NewTimer(heartbeat)
	defer timer.Stop()
	for due := false; ; {
		now := s.since(w.generation)
		if !now.complete {
			return status.Errorf(codes.ResourceExhausted, "the watcher is slow: it was sent generation %d, the latest is %d and the changes between are not kept; watch again",
				w.generation, now.snapshot.Generation)
		}
		sent, err := w.send(now, due)
		if err != nil {
			return err
		}
		if sent {
			timer.Reset(heartbeat)
		}
		due = false
		select {
		case <-now.news:
		case <-timer.C:
			due = true
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

func (s *Server) waitUntilKnown(ctx context.Context) error {
	now := s.since(0)
	if now.snapshot.Generation > 0 {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-now.news:
		return nil
	case <-timer.C:
		return errUnknown
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// watcher is what one watcher was sent.
type watcher struct {
	server     *Server
	stream     grpc.ServerStreamingServer[ownershipv1.WatchResponse]
	generation uint64
	problem    string
}

// start tells the watcher something at once: the changes since what it knows or, if
// that is not possible, a snapshot.
func (w *watcher) start(request *ownershipv1.WatchRequest) error {
	now := w.server.since(request.GetGeneration())
	snapshot := now.snapshot
	if request.GetInstance() != snapshot.Instance || !now.complete {
		w.generation, w.problem = snapshot.Generation, snapshot.Problem
		return w.stream.Send(&ownershipv1.WatchResponse{Event: &ownershipv1.WatchResponse_Snapshot{Snapshot: wire.SnapshotToProto(snapshot)}})
	}
	w.generation = request.GetGeneration()
	// It is told the problem in any case: what it thinks of that is not known.
	_, err := w.send(now, true)
	return err
}

// send sends the changes that lead to a state. If there are none and it is due, or if
// the state has another problem than they say, it sends since when the state is right.
func (w *watcher) send(now state, due bool) (sent bool, err error) {
	for _, change := range now.changes {
		if err := w.stream.Send(change); err != nil {
			return true, err
		}
		w.generation, w.problem = change.GetChange().GetGeneration(), change.GetChange().GetProblem()
		sent = true
	}
	if w.problem == now.snapshot.Problem && (sent || !due) {
		return sent, nil
	}
	w.problem = now.snapshot.Problem
	return true, w.stream.Send(&ownershipv1.WatchResponse{Event: &ownershipv1.WatchResponse_Verified{Verified: wire.VerifiedToProto(now.snapshot)}})
}
