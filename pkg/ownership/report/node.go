package report

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/client"
)

const (
	// answerWithin is how long a node driver that takes calls may take to answer.
	answerWithin = 10 * time.Second
	// staleCheck is how often is looked whether the driver still answers.
	staleCheck = 2 * time.Second
)

var errNoAnswer = fmt.Errorf("it did not answer within %s: see its log", answerWithin)

// NodeClient is what is used of [client.Client].
type NodeClient interface {
	// List asks once.
	List(ctx context.Context) (ownership.Snapshot, error)
	// Run calls changed with each new snapshot until the context ends.
	Run(ctx context.Context, changed func(ownership.Snapshot))
	// Current is the last snapshot, and why it may be stale.
	Current() (ownership.Snapshot, error)
}

// DialNode makes a client for a socket behind which somebody listens: the client
// itself would wait for one forever, which nobody at a terminal wants.
func DialNode(socket string) (NodeClient, error) {
	connection, err := net.Dial("unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no socket %s: is the node driver running here, with --ownership? (%w)", socket, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("socket %s is for root only (%w)", socket, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("nobody listens on socket %s: is the node driver running? (%w)", socket, err)
	case err != nil:
		return nil, fmt.Errorf("open the socket of --socket: %w", err)
	}
	if err := connection.Close(); err != nil {
		return nil, fmt.Errorf("close the socket of --socket: %w", err)
	}
	return client.New(socket), nil
}

// Node asks the driver of the node on which the program runs.
type Node struct {
	Client NodeClient
	// Socket is the client's, for messages; Namespace limits what is shown, empty for
	// all.
	Socket, Namespace string
}

// run runs the client until the function that it is given returns.
func (s *Node) run(ctx context.Context, use func(ctx context.Context, snapshots <-chan ownership.Snapshot) error) error {
	// What the client would log is shown.
	ctx, stop := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	snapshots := make(chan ownership.Snapshot, 1)
	running.Go(func() {
		s.Client.Run(ctx, func(snapshot ownership.Snapshot) {
			select {
			case <-snapshots: // Only the newest counts.
			default:
			}
			snapshots <- snapshot // There is room: nobody else sends.
		})
	})
	return use(ctx, snapshots)
}

// first waits for the first snapshot.
func (s *Node) first(ctx context.Context, snapshots <-chan ownership.Snapshot) (ownership.Snapshot, error) {
	timeout := time.NewTimer(answerWithin)
	defer timeout.Stop()
	select {
	case <-ctx.Done():
		return ownership.Snapshot{}, ctx.Err()
	case snapshot := <-snapshots:
		return snapshot, nil
	case <-timeout.C:
		_, err := s.Client.Current()
		return ownership.Snapshot{}, fmt.Errorf("ask the node driver on %s: %w (%w)", s.Socket, errNoAnswer, err)
	}
}

// Read implements [Source].
func (s *Node) Read(ctx context.Context) (View, error) {
	ctx, stop := context.WithTimeoutCause(ctx, answerWithin, errNoAnswer)
	defer stop()
	snapshot, err := s.Client.List(ctx)
	if err != nil && context.Cause(ctx) == errNoAnswer {
		err = errNoAnswer
	}
	if err != nil {
		return View{}, fmt.Errorf("ask the node driver on %s: %w", s.Socket, err)
	}
	return s.view(snapshot, nil), nil
}

// Follow implements [Source].
func (s *Node) Follow(ctx context.Context, show func(View) error) error {
	return s.run(ctx, func(ctx context.Context, snapshots <-chan ownership.Snapshot) error {
		snapshot, err := s.first(ctx, snapshots)
		if err != nil {
			return err
		}
		check := time.NewTicker(staleCheck)
		defer check.Stop()
		for {
			current, stale := s.Client.Current()
			// That nothing has changed since is no new snapshot.
			snapshot.Verified = current.Verified
			if err := show(s.view(snapshot, stale)); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case snapshot = <-snapshots:
			case <-check.C:
			}
		}
	})
}

func (s *Node) view(snapshot ownership.Snapshot, stale error) View {
	v := View{owners: snapshot.Owners, problem: snapshot.Problem, partial: s.Namespace != ""}
	if s.Namespace != "" {
		v.owners = slices.DeleteFunc(slices.Clone(v.owners), func(o ownership.Owner) bool { return o.Claim.Namespace != s.Namespace })
	}
	if stale != nil {
		v.problem = fmt.Sprintf("This may be stale since %s: %v", snapshot.Verified.Local().Format(time.TimeOnly), stale)
	}
	return v
}
