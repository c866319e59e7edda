package client

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/server"
)

func TestFollow(t *testing.T) {
	socket := socketPath(t)
	c := New(socket)
	if s, err := c.Current(); err == nil || !strings.Contains(err.Error(), "has not answered yet") || s.Generation != 0 || len(s.Owners) != 0 {
		t.Errorf("at first the snapshot is %+v, %v", s, err)
	}
	r := run(t, c)
	r.stale("no such file or directory", "0")

	s := server.New()
	serve(t, s, socket)
	s.Set(owners(owner("b", "2", "q"), owner("a", "1", "p")), "", noon)
	got := r.next("1 a=1/p b=2/q")
	if want := s.Snapshot(); got.Instance != want.Instance || got.Time != want.Time || got.Verified != noon || !ownership.Equal(got.Owners, want.Owners) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	s.Set(owners(owner("a", "1", "p")), "", noon)
	r.next("2 a=1/p")
	s.Set(owners(owner("a", "1", "p")), "pods: gone", noon)
	r.next("2 a=1/p (pods: gone)")
	s.Set(nil, "", noon.Add(time.Minute))
	if got := r.next("3"); got.Verified != noon.Add(time.Minute) || got.Owners == nil {
		t.Errorf("got %+v", got)
	}
	if c.Errors() == 0 {
		t.Error("the first failures are not counted")
	}
	r.stop()
	if s, err := c.Current(); err == nil || !strings.Contains(err.Error(), "has ended") || text(s) != "3" {
		t.Errorf("after the end the snapshot is %q, %v", text(s), err)
	}
}

// What an earlier snapshot said stays as it is when later ones arrive.
func TestSnapshotsStay(t *testing.T) {
	socket := socketPath(t)
	s := server.New()
	serve(t, s, socket)
	s.Set(owners(owner("a", "1", "p"), owner("c", "3", "r")), "", noon)
	r := run(t, New(socket))
	first := r.next("1 a=1/p c=3/r")
	s.Set(owners(owner("a", "1", "x"), owner("b", "2", "q")), "", noon)
	r.next("2 a=1/x b=2/q")
	if got := text(first); got != "1 a=1/p c=3/r" {
		t.Errorf("the first snapshot became %q", got)
	}
}

func TestServerKilled(t *testing.T) {
	socket := socketPath(t)
	p := startProcess(t, socket)
	r := run(t, New(socket))
	p.send("p")
	first := r.next("1 a=1/p")
	p.send("q")
	r.next("2 a=1/q")
	p.kill()
	r.stale("", "2 a=1/q")

	// The new process is at the same generations with other owners, and finds the
	// socket of the dead one.
	p = startProcess(t, socket)
	p.send("x")
	second := r.next("1 a=1/x")
	if first.Instance == second.Instance {
		t.Error("two processes have the same instance")
	}
	p.send("y")
	r.next("2 a=1/y")
	if s, err := r.Current(); err != nil || text(s) != "2 a=1/y" {
		t.Errorf("the snapshot is %q, %v", text(s), err)
	}
}

func TestResumeAfterTheConnectionIsLost(t *testing.T) {
	for _, test := range []struct {
		name string
		// sets is how many changes happen while the client is away.
		sets int
		want []string
	}{
		{"nothing changed", 0, nil},
		{"two changes", 2, []string{"2 a=1/p-2", "3 a=1/p-3"}},
		{"more than the server remembers", 1000, []string{"1001 a=1/p-1001"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			socket := socketPath(t)
			s := server.New()
			s.Set(owners(owner("a", "1", "p-1")), "", noon)
			stop := serve(t, s, socket)
			r := run(t, New(socket))
			r.next("1 a=1/p-1")
			stop()
			r.stale("", "1 a=1/p-1")
			for i := range test.sets {
				s.Set(owners(owner("a", "1", fmt.Sprint("p-", i+2))), "", noon)
			}
			serve(t, s, socket)
			for _, want := range test.want {
				r.next(want)
			}
			s.Set(nil, "", noon)
			r.next(fmt.Sprint(test.sets + 2))
		})
	}
}

// A client that is slow to take what changed is cut off by the server and finds back.
func TestSlowClient(t *testing.T) {
	socket := socketPath(t)
	s := server.New()
	s.Set(owners(owner("a", "1", "p")), "", noon)
	serve(t, s, socket)
	c := New(socket)
	r := run(t, c)
	r.next("1 a=1/p")
	// The channel takes 1000 snapshots before it holds up the client.
	long := strings.Repeat("x", 4<<10)
	const sets = 4000
	for i := range sets {
		s.Set(owners(owner("a", "1", fmt.Sprint(i, long))), "", noon)
	}
	for last := uint64(1); last < sets+1; {
		got := <-r.changes
		if got.Generation <= last {
			t.Fatalf("generation %d follows %d", got.Generation, last)
		}
		last = got.Generation
		if want := fmt.Sprintf("%d a=1/%d%s", last, last-2, long); text(got) != want {
			t.Fatalf("generation %d is %.40q", last, text(got))
		}
	}
	if r.Errors() == 0 {
		t.Error("the client was not cut off")
	}
}

func TestList(t *testing.T) {
	socket := socketPath(t)
	c := New(socket)
	if _, err := c.List(t.Context()); err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("without a server: %v", err)
	}
	s := server.New()
	serve(t, s, socket)
	if _, err := c.List(t.Context()); err == nil || !strings.Contains(err.Error(), "not known yet") {
		t.Errorf("before the first Set: %v", err)
	}
	s.Set(owners(owner("a", "1", "p")), "", noon)
	if got, err := c.List(t.Context()); err != nil || text(got) != "1 a=1/p" || got.Instance != s.Snapshot().Instance {
		t.Errorf("got %q, %v", text(got), err)
	}
	if got, err := c.Current(); err == nil || got.Generation != 0 {
		t.Errorf("asking once changed the current snapshot to %q, %v", text(got), err)
	}
}
