package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	ownershipv1 "apportion.dev/apportion/api/ownership/v1"
	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/wire"
)

func snapshot(instance string, generation uint64, owners ...ownership.Owner) *ownershipv1.WatchResponse {
	return &ownershipv1.WatchResponse{Event: &ownershipv1.WatchResponse_Snapshot{Snapshot: wire.SnapshotToProto(ownership.Snapshot{
		Instance: instance, Generation: generation, Time: noon, Verified: noon, Owners: owners,
	})}}
}

func change(from, to uint64, before, after []ownership.Owner) *ownershipv1.WatchResponse {
	return &ownershipv1.WatchResponse{Event: &ownershipv1.WatchResponse_Change{Change: wire.ChangeToProto(
		ownership.Snapshot{Instance: "i", Generation: from, Owners: before},
		ownership.Snapshot{Instance: "i", Generation: to, Time: noon, Verified: noon, Owners: after},
	)}}
}

func verified(at time.Time, problem string) *ownershipv1.WatchResponse {
	return &ownershipv1.WatchResponse{Event: &ownershipv1.WatchResponse_Verified{Verified: &ownershipv1.Verified{Verified: timestamppb.New(at), Problem: problem}}}
}

// script is a service that plays one list of events to each watch, in turn, then ends
// it with the error or, if that is nil, says nothing more.
type script struct {
	ownershipv1.UnimplementedOwnershipServer
	t       *testing.T
	watches []watch
	// requests are "instance/generation" of the watches so far.
	requests []string
}

type watch struct {
	events []*ownershipv1.WatchResponse
	// every is the time between events.
	every time.Duration
	end   error
}

func (s *script) Watch(request *ownershipv1.WatchRequest, stream grpc.ServerStreamingServer[ownershipv1.WatchResponse]) error {
	s.requests = append(s.requests, fmt.Sprintf("%s/%d", request.GetInstance(), request.GetGeneration()))
	if len(s.watches) == 0 {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	now := s.watches[0]
	s.watches = s.watches[1:]
	for _, event := range now.events {
		time.Sleep(now.every)
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	if now.end == nil {
		<-stream.Context().Done()
	}
	return now.end
}

// play lets a client follow a service over a pipe, in the bubble of the test.
func play(t *testing.T, service *script) (*Client, func()) {
	listener := bufconn.Listen(1 << 20)
	grpcServer := grpc.NewServer(grpc.WaitForHandlers(true))
	ownershipv1.RegisterOwnershipServer(grpcServer, service)
	served := make(chan error, 1)
	go func() { served <- grpcServer.Serve(listener) }()
	c := New("/socket")
	c.dial = listener.DialContext
	return c, func() {
		grpcServer.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

var errGone = status.Error(codes.Internal, "end of the script")

// protocolTest is a service that answers a client's watches.
type protocolTest struct {
	name    string
	watches []watch
	// wantChanges are what changed is called with, wantRequests the known state of each
	// watch.
	wantChanges, wantRequests []string
	// wantErr is what the failure of the first watch says, if it fails.
	wantErr string
}

func TestProtocol(t *testing.T) {
	a, b := owner("a", "1", "p"), owner("b", "2", "q")
	for _, test := range []protocolTest{
		{
			name: "a change leads on, a heartbeat is not told, a problem is",
			watches: []watch{{events: []*ownershipv1.WatchResponse{
				snapshot("i", 7, a), verified(noon.Add(time.Minute), ""), change(7, 8, owners(a), owners(a, b)), verified(noon, "pods: gone"), verified(noon, "pods: gone"),
			}}},
			wantChanges:  []string{"7 a=1/p", "8 a=1/p b=2/q", "8 a=1/p b=2/q (pods: gone)"},
			wantRequests: []string{"/0"},
		}, {
			name: "resume with changes",
			watches: []watch{
				{events: []*ownershipv1.WatchResponse{snapshot("i", 7, a)}, end: errGone},
				{events: []*ownershipv1.WatchResponse{change(7, 8, owners(a), owners(b))}},
			},
			wantChanges: []string{"7 a=1/p", "8 b=2/q"}, wantRequests: []string{"/0", "i/7"}, wantErr: "end of the script",
		}, {
			name: "resume with nothing new",
			watches: []watch{
				{events: []*ownershipv1.WatchResponse{snapshot("i", 7, a)}, end: errGone},
				{events: []*ownershipv1.WatchResponse{verified(noon, "")}, end: errGone},
				{events: []*ownershipv1.WatchResponse{verified(noon, "")}},
			},
			wantChanges: []string{"7 a=1/p"}, wantRequests: []string{"/0", "i/7", "i/7"}, wantErr: "end of the script",
		}, {
			name: "another process at the same generation replaces all",
			watches: []watch{
				{events: []*ownershipv1.WatchResponse{snapshot("i", 7, a)}, end: errGone},
				{events: []*ownershipv1.WatchResponse{snapshot("j", 7, b)}},
			},
			wantChanges: []string{"7 a=1/p", "7 b=2/q"}, wantRequests: []string{"/0", "i/7"}, wantErr: "end of the script",
		}, {
			name: "a process that does not know yet takes nothing away",
			watches: []watch{
				{events: []*ownershipv1.WatchResponse{snapshot("i", 7, a)}, end: errGone},
				{end: status.Error(codes.Unavailable, "not known yet")},
				{events: []*ownershipv1.WatchResponse{snapshot("j", 1, b)}},
			},
			wantChanges: []string{"7 a=1/p", "1 b=2/q"}, wantRequests: []string{"/0", "i/7", "i/7"}, wantErr: "end of the script",
		}, {
			name: "a slow client asks again from where it was",
			watches: []watch{
				{events: []*ownershipv1.WatchResponse{snapshot("i", 7, a)}, end: status.Error(codes.ResourceExhausted, "slow")},
				{events: []*ownershipv1.WatchResponse{snapshot("i", 900, b)}},
			},
			wantChanges: []string{"7 a=1/p", "900 b=2/q"}, wantRequests: []string{"/0", "i/7"}, wantErr: "slow",
		}, {
			name: "a change for another generation is not applied, and a snapshot asked for",
			watches: []watch{
				{events: []*ownershipv1.WatchResponse{snapshot("i", 7, a), change(8, 9, owners(a), owners(b))}},
				{events: []*ownershipv1.WatchResponse{snapshot("i", 9, b)}},
			},
			wantChanges: []string{"7 a=1/p", "9 b=2/q"}, wantRequests: []string{"/0", "/0"}, wantErr: "the change belongs to another generation",
		}, {
			name: "a change without a snapshot",
			watches: []watch{
				{events: []*ownershipv1.WatchResponse{change(0, 1, nil, owners(b))}},
				{events: []*ownershipv1.WatchResponse{snapshot("i", 1, b)}},
			},
			wantChanges: []string{"1 b=2/q"}, wantRequests: []string{"/0", "/0"}, wantErr: "a change before a snapshot",
		}, {
			name: "a heartbeat without a snapshot",
			watches: []watch{
				{events: []*ownershipv1.WatchResponse{verified(noon, "")}},
				{events: []*ownershipv1.WatchResponse{snapshot("i", 1, b)}},
			},
			wantChanges: []string{"1 b=2/q"}, wantRequests: []string{"/0", "/0"}, wantErr: "before it sent one",
		}, {
			name: "a snapshot that is not one",
			watches: []watch{
				{events: []*ownershipv1.WatchResponse{snapshot("i", 7, a), snapshot("", 0)}},
				{events: []*ownershipv1.WatchResponse{snapshot("i", 8, b)}},
			},
			wantChanges: []string{"7 a=1/p", "8 b=2/q"}, wantRequests: []string{"/0", "/0"}, wantErr: "without an instance or generation",
		}, {
			name: "an event of a later version",
			watches: []watch{
				{events: []*ownershipv1.WatchResponse{snapshot("i", 7, a), {}}},
				{events: []*ownershipv1.WatchResponse{snapshot("i", 8, b)}},
			},
			wantChanges: []string{"7 a=1/p", "8 b=2/q"}, wantRequests: []string{"/0", "/0"}, wantErr: "does not know",
		},
	} {
		t.Run(test.name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
}

func (test protocolTest) run(t *testing.T) {
	service := &script{t: t, watches: test.watches}
	c, stopService := play(t, service)
	r := run(t, c)
	synctest.Wait()
	if test.wantErr != "" {
		if s, err := c.Current(); err == nil || !strings.Contains(err.Error(), test.wantErr) || len(test.wantChanges) > 1 && text(s) != test.wantChanges[0] {
			t.Errorf("after the first watch the snapshot is %q, %v", text(s), err)
		}
	}
	// Long enough for the attempts, not for the service to be silent.
	time.Sleep(10 * time.Second)
	synctest.Wait()
	if s, err := c.Current(); err != nil || text(s) != test.wantChanges[len(test.wantChanges)-1] {
		t.Errorf("at last the snapshot is %q, %v", text(s), err)
	}
	if got, want := c.Errors(), uint64(len(test.watches)-1); got != want {
		t.Errorf("%d errors, want %d", got, want)
	}
	r.stop()
	stopService()
	close(r.changes)
	var changes []string
	for s := range r.changes {
		changes = append(changes, text(s))
	}
	if got, want := strings.Join(changes, "\n"), strings.Join(test.wantChanges, "\n"); got != want {
		t.Errorf("was told\n%s\nwant\n%s", got, want)
	}
	if got, want := strings.Join(service.requests, " "), strings.Join(test.wantRequests, " "); got != want {
		t.Errorf("asked %q, want %q", got, want)
	}
}

func TestASilentServerIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := owner("a", "1", "p")
		service := &script{t: t, watches: []watch{
			// In time, then silent, as a process that hangs.
			{every: 10 * time.Second, events: []*ownershipv1.WatchResponse{snapshot("i", 7, a), verified(noon.Add(10*time.Second), ""), verified(noon.Add(20*time.Second), "")}},
			{events: []*ownershipv1.WatchResponse{verified(noon.Add(time.Hour), "")}},
		}}
		c, stopService := play(t, service)
		start := time.Now()
		r := run(t, c)
		time.Sleep(44 * time.Second)
		synctest.Wait()
		if s, err := c.Current(); err != nil || s.Verified != noon.Add(20*time.Second) {
			t.Errorf("before, the snapshot was verified at %v, %v", s.Verified, err)
		}
		if err := <-r.failures; !errors.Is(err, errSilent) || time.Since(start) != 45*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if s, err := c.Current(); !errors.Is(err, errSilent) || text(s) != "7 a=1/p" {
			t.Errorf("the snapshot is %q, %v", text(s), err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s, err := c.Current(); err != nil || s.Verified != noon.Add(time.Hour) || len(service.requests) != 2 || service.requests[1] != "i/7" {
			t.Errorf("after it is back the snapshot is %q, %v, requests %q", text(s), err, service.requests)
		}
		r.stop()
		stopService()
	})
}

// A caller that takes its time is not taken for a silent server.
func TestASlowCallerIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &script{t: t, watches: []watch{{events: []*ownershipv1.WatchResponse{snapshot("i", 7)}}}}
		c, stopService := play(t, service)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Run(ctx, func(ownership.Snapshot) { time.Sleep(time.Hour) })
		}()
		time.Sleep(time.Hour + 14*time.Second)
		synctest.Wait()
		if _, err := c.Current(); err != nil || c.Errors() != 0 {
			t.Errorf("%d errors: %v", c.Errors(), err)
		}
		cancel()
		<-done
		stopService()
	})
}

// An exporter showed a claim that was unprepared seconds ago: the driver had started
// again, and the exporter had not noticed yet.
func TestADriverThatStartsAgainIsHeardWithinHalfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("/socket")
		var at []time.Duration
		start := time.Now()
		c.dial = func(context.Context) (net.Conn, error) {
			at = append(at, time.Since(start))
			return nil, errors.New("connection refused")
		}
		r := run(t, c)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		r.stop()
		if uint64(len(at)) != c.Errors() || len(at) < 5 {
			t.Fatalf("%d attempts, %d errors: %v", len(at), c.Errors(), at)
		}
		for i, want := range []time.Duration{100, 200, 400, 500, 500, 500, 500, 500} {
			want *= time.Millisecond
			if i+1 < len(at) && (at[i+1]-at[i] < want || at[i+1]-at[i] > want*12/10) {
				t.Errorf("attempt %d is %s after the one before, want %s and up to a fifth more", i+1, at[i+1]-at[i], want)
			}
		}
		if len(r.failures) != 1 {
			t.Errorf("the same failure was logged %d times", len(r.failures))
		}
	})
}
