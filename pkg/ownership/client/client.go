// Package client learns who holds what on a node from the driver's ownership service,
// and keeps knowing it while the driver is away.
//
// It knows the service's socket and protocol. It does not know what the owners mean,
// and never makes any up: what it shows is what one process of the driver said at one
// moment, with the time at which that was last known to be true.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	ownershipv1 "apportion.dev/apportion/api/ownership/v1"
	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/wire"
)

const (
	// maxSilence is how long the service may say nothing: it promises to say
	// something every 10 seconds.
	maxSilence = 15 * time.Second
	// largestMessage is far above a snapshot of a full node, some 500 bytes an owner.
	largestMessage = 64 << 20
	// window is how many bytes the service may send ahead of what changed has taken.
	// A fixed one spares the messages by which gRPC finds the best.
	window = 256 << 10
)

// retry is the time between attempts, which starts anew when one succeeded. It stays
// short: while a driver that has started again is not heard, a claim that it unprepares
// still seems to hold its devices, and a socket on the same node costs nothing.
var retry = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 500 * time.Millisecond}

var (
	errNotYet = errors.New("the ownership service has not answered yet")
	errSilent = fmt.Errorf("it said nothing for %s", maxSilence)
	errEnded  = errors.New("the ownership client has ended")
)

// Client follows the ownership service of a node.
type Client struct {
	socket string
	dial   func(context.Context) (net.Conn, error)

	mu       sync.Mutex
	snapshot ownership.Snapshot
	err      error
	failures uint64

	// resume is false if the service's changes cannot be applied to the snapshot.
	// It belongs to Run.
	resume bool
}

// New returns a client of the service on a Unix socket, which need not exist yet. It
// does nothing before Run.
func New(socketPath string) *Client {
	return &Client{
		socket: socketPath,
		dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socketPath)
		},
		err:    errNotYet,
		resume: true,
	}
}

// Run follows the service until the context ends: it connects, and connects again
// after each failure, at most about half a second later. It calls changed with the first
// snapshot and after each change of its owners, its problem or the driver's process,
// one call after the other. A call must not take long: it holds up the next.
// It is not called when the service is away, nor for a new Verified time alone; see
// Current for those. The owners must not be changed. Run is called once at a time.
func (c *Client) Run(ctx context.Context, changed func(ownership.Snapshot)) {
	backoff := retry
	for ctx.Err() == nil {
		heard, err := c.follow(ctx, changed)
		if ctx.Err() != nil {
			break
		}
		c.failed(ctx, err)
		if heard {
			backoff = retry
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errEnded
}

// Current is the last good snapshot, with generation 0 if there is none, and why it may
// not be true any more: nil while the service is heard of. Its Verified time is when it
// was last known to be true; its Problem is what the service itself says against it. The
// owners must not be changed.
func (c *Client) Current() (ownership.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshot, c.err
}

// Errors is how often an attempt to follow the service has failed or ended so far.
func (c *Client) Errors() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failures
}

// List asks the service once, without Run. It does not change what Current says.
func (c *Client) List(ctx context.Context) (ownership.Snapshot, error) {
	conn, err := c.connect()
	if err != nil {
		return ownership.Snapshot{}, c.wrap(err)
	}
	response, err := ownershipv1.NewOwnershipClient(conn).List(ctx, &ownershipv1.ListRequest{})
	if err = errors.Join(err, conn.Close()); err != nil {
		return ownership.Snapshot{}, c.wrap(err)
	}
	snapshot, err := wire.SnapshotFromProto(response.GetSnapshot())
	if err != nil {
		return ownership.Snapshot{}, c.wrap(err)
	}
	return snapshot, nil
}

// failed takes note of why the service is not followed any more. It is logged once
// until the reason changes or the service is back.
func (c *Client) failed(ctx context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	logger := klog.FromContext(ctx)
	if c.err == nil || c.err.Error() != err.Error() {
		logger.Error(err, "Ownership is not followed, what is known of it may become stale", "verified", c.snapshot.Verified)
	} else {
		logger.V(3).Info("Ownership is still not followed", "reason", err)
	}
	c.err = err
	c.failures++
}

// heard takes note of what the service said, and says whether to pass it on.
func (c *Client) heard(ctx context.Context, after ownership.Snapshot) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.snapshot
	if c.err != nil {
		klog.FromContext(ctx).Info("Ownership is followed", "socket", c.socket, "instance", after.Instance, "generation", after.Generation)
	}
	c.snapshot, c.err = after, nil
	return after.Instance != before.Instance || after.Generation != before.Generation || after.Problem != before.Problem
}

// connect returns a connection of its own for each attempt: gRPC's would wait longer
// after each failure, and a restarted driver should be found at once.
func (c *Client) connect() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///ownership",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dial(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largestMessage)),
	)
}

func (c *Client) wrap(err error) error {
	return fmt.Errorf("ownership service at %s: %w", c.socket, err)
}
