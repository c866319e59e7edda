package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ownershipv1 "apportion.dev/apportion/api/ownership/v1"
	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/wire"
)

// text describes an event: "snapshot 1: a=1/p", "change 1-2: +a=1/p -b".
func text(t *testing.T, event *ownershipv1.WatchResponse) string {
	t.Helper()
	problem := func(p string) string {
		if p == "" {
			return ""
		}
		return " (" + p + ")"
	}
	switch e := event.GetEvent().(type) {
	case *ownershipv1.WatchResponse_Snapshot:
		s, err := wire.SnapshotFromProto(e.Snapshot)
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(fmt.Sprintf("snapshot %d: %s", s.Generation, described(s.Owners))) + problem(s.Problem)
	case *ownershipv1.WatchResponse_Change:
		var parts []string
		for _, o := range e.Change.GetChanged() {
			parts = append(parts, fmt.Sprintf(" +%s=%s/%s", o.GetDevice().GetName(), o.GetClaim().GetName(), o.GetConsumers()[0].GetName()))
		}
		for _, k := range e.Change.GetRemoved() {
			parts = append(parts, " -"+k.GetDevice())
		}
		return fmt.Sprintf("change %d-%d:%s%s", e.Change.GetFrom(), e.Change.GetGeneration(), strings.Join(parts, ""), problem(e.Change.GetProblem()))
	case *ownershipv1.WatchResponse_Verified:
		return "verified " + e.Verified.GetVerified().AsTime().Format("15:04:05") + problem(e.Verified.GetProblem())
	default:
		return fmt.Sprintf("%T", e)
	}
}

// fakeStream takes what is sent, by the bubble's clock.
type fakeStream struct {
	grpc.ServerStream
	t     *testing.T
	ctx   context.Context
	start time.Time
	sent  []string
	// fail is what Send returns.
	fail error
}

func newFakeStream(t *testing.T, ctx context.Context) *fakeStream {
	return &fakeStream{t: t, ctx: ctx, start: time.Now()}
}

func (f *fakeStream) Context() context.Context { return f.ctx }

func (f *fakeStream) Send(event *ownershipv1.WatchResponse) error {
	f.sent = append(f.sent, fmt.Sprintf("%s %s", time.Since(f.start), text(f.t, event)))
	return f.fail
}

func TestWatchSpeaksInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		s.Set(owners(owner("a", "1", "p")), "", noon)
		ctx, cancel := context.WithCancel(t.Context())
		stream := newFakeStream(t, ctx)
		done := make(chan error, 1)
		go func() { done <- s.Watch(&ownershipv1.WatchRequest{}, stream) }()
		at := func(d time.Duration, do func()) {
			time.Sleep(time.Until(stream.start.Add(d)))
			do()
			synctest.Wait()
		}
		// Verified anew without news: the next heartbeat says so.
		at(3*time.Second, func() { s.Set(owners(owner("a", "1", "p")), "", noon.Add(3*time.Second)) })
		// A change restarts the wait for the heartbeat.
		at(7*time.Second, func() { s.Set(owners(owner("b", "2", "p")), "", noon.Add(7*time.Second)) })
		// A problem is told at once, and again with the next change, then that it is over.
		at(13*time.Second, func() { s.Set(owners(owner("b", "2", "p")), "pods: gone", noon.Add(7*time.Second)) })
		at(14*time.Second, func() { s.Set(nil, "pods: gone", noon.Add(7*time.Second)) })
		at(15*time.Second, func() { s.Set(nil, "", noon.Add(15*time.Second)) })
		at(21*time.Second, cancel)
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Errorf("watch ended with %v", err)
		}
		want := []string{
			"0s snapshot 1: a=1/p",
			"5s verified 12:00:03",
			"7s change 1-2: +b=2/p -a",
			"12s verified 12:00:07",
			"13s verified 12:00:07 (pods: gone)",
			"14s change 2-3: -b (pods: gone)",
			"15s verified 12:00:15",
			"20s verified 12:00:15",
		}
		if got, want := strings.Join(stream.sent, "\n"), strings.Join(want, "\n"); got != want {
			t.Errorf("was sent\n%s\nwant\n%s", got, want)
		}
	})
}

func TestWatchBeforeAnythingIsKnown(t *testing.T) {
	for _, test := range []struct {
		name     string
		known    time.Duration
		wantCode codes.Code
		wantSent string
	}{
		{"it becomes known soon", 3 * time.Second, codes.DeadlineExceeded, "3s snapshot 1: a=1/p"},
		{"it does not", time.Minute, codes.Unavailable, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New()
				ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
				defer cancel()
				stream := newFakeStream(t, ctx)
				known := time.AfterFunc(test.known, func() { s.Set(owners(owner("a", "1", "p")), "", noon) })
				defer known.Stop()
				err := s.Watch(&ownershipv1.WatchRequest{}, stream)
				if code := status.Code(err); code != test.wantCode {
					t.Errorf("got error %v", err)
				}
				if got := strings.Join(stream.sent, "\n"); got != test.wantSent {
					t.Errorf("was sent %q, want %q", got, test.wantSent)
				}
			})
		})
	}
}

func TestWatchEndsWhenSendingFails(t *testing.T) {
	broken := errors.New("broken pipe")
	s := New()
	s.Set(owners(owner("a", "1", "p")), "", noon)
	known := s.Snapshot()
	s.Set(owners(owner("b", "1", "p")), "", noon)
	for _, request := range []*ownershipv1.WatchRequest{
		{},
		{Instance: known.Instance, Generation: known.Generation},
		{Instance: known.Instance, Generation: known.Generation + 1},
	} {
		stream := newFakeStream(t, t.Context())
		stream.fail = broken
		if err := s.Watch(request, stream); !errors.Is(err, broken) || len(stream.sent) != 1 {
			t.Errorf("watch after generation %d sent %q and ended with %v", request.GetGeneration(), stream.sent, err)
		}
	}
}

// What a watcher hears at first depends on what it knows.
func TestResume(t *testing.T) {
	few := func(s *Server) {
		s.Set(owners(owner("a", "1", "p")), "", noon)
		s.Set(owners(owner("a", "1", "q")), "", noon)
		s.Set(owners(owner("a", "1", "q"), owner("b", "2", "r")), "", noon)
	}
	// Generation n has the pod p-n.
	many := func(s *Server) {
		for i := range historyLength + 2 {
			s.Set(owners(owner("a", "1", fmt.Sprint("p-", i+1))), "", noon)
		}
	}
	for _, test := range []struct {
		name       string
		sets       func(*Server)
		instance   string
		generation uint64
		// want are the first events, and how many more there are at once.
		want []string
		more int
	}{
		{name: "nothing known", sets: few, want: []string{"snapshot 3: a=1/q b=2/r"}},
		{name: "another process's generation", sets: few, instance: "other", generation: 2, want: []string{"snapshot 3: a=1/q b=2/r"}},
		{name: "this process, no generation", sets: few, instance: "this", want: []string{"snapshot 3: a=1/q b=2/r"}},
		{name: "all changes", sets: few, instance: "this", generation: 1, want: []string{"change 1-2: +a=1/q", "change 2-3: +b=2/r"}},
		{name: "one change", sets: few, instance: "this", generation: 2, want: []string{"change 2-3: +b=2/r"}},
		{name: "up to date", sets: few, instance: "this", generation: 3, want: []string{"verified 12:00:00"}},
		{name: "a generation to come", sets: few, instance: "this", generation: 4, want: []string{"snapshot 3: a=1/q b=2/r"}},
		{name: "the oldest change kept", sets: many, instance: "this", generation: 2, want: []string{"change 2-3: +a=1/p-3", "change 3-4: +a=1/p-4"}, more: historyLength - 2},
		{name: "history too short", sets: many, instance: "this", generation: 1, want: []string{"snapshot 258: a=1/p-258"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New()
				test.sets(s)
				if test.instance == "this" {
					test.instance = s.Snapshot().Instance
				}
				ctx, cancel := context.WithCancel(t.Context())
				stream := newFakeStream(t, ctx)
				done := make(chan error, 1)
				go func() {
					done <- s.Watch(&ownershipv1.WatchRequest{Instance: test.instance, Generation: test.generation}, stream)
				}()
				synctest.Wait()
				cancel()
				<-done
				if len(stream.sent) != len(test.want)+test.more {
					t.Fatalf("was sent %d events: %q", len(stream.sent), stream.sent[:min(5, len(stream.sent))])
				}
				for i, want := range test.want {
					if stream.sent[i] != "0s "+want {
						t.Errorf("event %d is %q, want %q", i, stream.sent[i], want)
					}
				}
			})
		})
	}
}

// A watcher that resumes is told a problem, also one that is over.
func TestResumeTellsTheProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		s.Set(owners(owner("a", "1", "p")), "", noon)
		s.Set(owners(owner("a", "1", "q")), "pods: gone", noon)
		s.Set(owners(owner("a", "1", "q")), "", noon)
		ctx, cancel := context.WithCancel(t.Context())
		stream := newFakeStream(t, ctx)
		done := make(chan error, 1)
		go func() {
			done <- s.Watch(&ownershipv1.WatchRequest{Instance: s.Snapshot().Instance, Generation: 1}, stream)
		}()
		synctest.Wait()
		cancel()
		<-done
		want := []string{"0s change 1-2: +a=1/q (pods: gone)", "0s verified 12:00:00"}
		if got, want := strings.Join(stream.sent, "\n"), strings.Join(want, "\n"); got != want {
			t.Errorf("was sent\n%s\nwant\n%s", got, want)
		}
	})
}

func TestList(t *testing.T) {
	s := New()
	if _, err := s.List(t.Context(), nil); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not known yet") {
		t.Errorf("before the first Set: %v", err)
	}
	s.Set(owners(owner("a", "1", "p")), "", noon)
	response, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := wire.SnapshotFromProto(response.GetSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := snapshot, s.Snapshot(); got.Instance != want.Instance || got.Generation != 1 || got.Time != want.Time ||
		got.Verified != noon || !ownership.Equal(got.Owners, owners(owner("a", "1", "p"))) {
		t.Errorf("got %+v", got)
	}
}
