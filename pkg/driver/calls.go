package driver

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// callGate counts the kubelet's calls under way, with all that the helper library
// does for them, and lets no more in once it is drained.
type callGate struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

var errStopping = errors.New("the driver is stopping; the kubelet asks again when it is back")

func (g *callGate) enter() (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errStopping
	}
	g.running.Add(1)
	return g.running.Done, nil
}

func (g *callGate) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	leave, err := g.enter()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	defer leave()
	return handler(ctx, request)
}

func (g *callGate) drain() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.running.Wait()
}

// turnPatience is how long a call waits for its turn at most.
const turnPatience = 10 * time.Millisecond

// turnstile lets a few calls work at a time. Of a burst the first are then done
// early, where otherwise all would be done late, since all would share the
// processors to the end. Nobody depends on anybody: a call whose turn does not come
// in time, because those before it wait for a GPU or for hardware, works anyway.
type turnstile struct {
	turns    chan struct{}
	patience time.Duration
}

func newTurnstile(n int, patience time.Duration) *turnstile {
	return &turnstile{turns: make(chan struct{}, n), patience: patience}
}

func (t *turnstile) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	defer t.enter(ctx)()
	return handler(ctx, request)
}

// enter returns when it is the caller's turn, or it has waited long enough, or ctx
// has ended. The caller calls leave when it is done.
func (t *turnstile) enter(ctx context.Context) (leave func()) {
	leave = func() { <-t.turns }
	select {
	case t.turns <- struct{}{}:
		return leave
	default:
	}
	patience := time.NewTimer(t.patience)
	defer patience.Stop()
	select {
	case t.turns <- struct{}{}:
		return leave
	case <-patience.C:
	case <-ctx.Done():
	}
	return func() {}
}
