package driver

import (
	"context"
	"errors"
	"sync"

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
