package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// TestMain makes the test binary the process of an isolated daemon, and a supervisor
// in a process of its own.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "enter":
		fmt.Fprintln(os.Stderr, Enter(os.Args[2]))
		os.Exit(1)
	case len(os.Args) == 4 && os.Args[1] == "supervise":
		fmt.Fprintln(os.Stderr, supervise(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// supervise runs a supervisor and prints a line when it listens.
func supervise(dir, root string) error {
	s, err := NewSupervisor(Options{Dir: dir, DriverRoot: root})
	if err != nil {
		return err
	}
	go func() {
		<-s.listening
		fmt.Println("listening")
	}()
	return s.Run(context.Background())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shortDir is a folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps")
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// newMachine makes a fake machine and returns its driver root and GPUs.
func newMachine(t *testing.T, dir string, gpus int) (root string, uuids []string) {
	t.Helper()
	products := make([]string, gpus)
	for i := range products {
		products[i] = "t4"
	}
	m, err := fakegpu.Create(dir, fakegpu.Spec{Node: "node-a", GPUs: products})
	must(t, err)
	s, err := m.Summary()
	must(t, err)
	for _, g := range s.GPUs {
		uuids = append(uuids, g.UUID)
	}
	return m.DriverRoot(), uuids
}

// script makes a driver root with a shell script as the control program.
func script(t *testing.T, text string) (root string) {
	t.Helper()
	root = t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "usr/bin", controlProgram), []byte("#!/bin/sh\n"+text), 0o755))
	return root
}

// rig is a supervisor that runs and its client.
type rig struct {
	*Client
	t          *testing.T
	supervisor *Supervisor
	stop       func()
}

// start runs a supervisor until the test ends, or stop is called.
func start(t *testing.T, o Options) *rig {
	t.Helper()
	if o.RestartDelay == 0 {
		o.RestartDelay, o.MaxRestartDelay = time.Millisecond, time.Millisecond
	}
	s, err := NewSupervisor(o)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r := &rig{Client: New(s.Socket()), t: t, supervisor: s}
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("supervisor: %v", err)
		}
	}
	t.Cleanup(r.stop)
	select {
	case <-s.listening:
	case err := <-done:
		stopped = true
		t.Fatalf("supervisor ended: %v", err)
	}
	return r
}

func (r *rig) acquire(gpu string, claim types.UID) {
	r.t.Helper()
	if err := r.Acquire(r.t.Context(), gpu, claim); err != nil {
		r.t.Fatalf("acquire: %v", err)
	}
}

func (r *rig) release(gpu string, claim types.UID) {
	r.t.Helper()
	if err := r.Release(r.t.Context(), gpu, claim); err != nil {
		r.t.Fatalf("release: %v", err)
	}
}

// wantUsers compares the users with a line for each GPU: its UUID and claims.
func (r *rig) wantUsers(want ...string) {
	r.t.Helper()
	gpus, err := r.List(r.t.Context())
	must(r.t, err)
	var got []string
	for _, g := range gpus {
		line := g.UUID
		for _, claim := range g.Claims {
			line += " " + string(claim)
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Error(diff)
	}
}

// await waits until the GPU's daemon is as wanted, and returns its process.
func (r *rig) await(gpu string, want func(*daemon) bool) (pid int) {
	r.t.Helper()
	for {
		r.supervisor.mu.Lock()
		d := r.supervisor.daemons[gpu]
		if d == nil {
			r.supervisor.mu.Unlock()
			r.t.Fatalf("GPU %s has no daemon", gpu)
		}
		ok, changed, pid := want(d), d.changed, d.pid
		r.supervisor.mu.Unlock()
		if ok {
			return pid
		}
		select {
		case <-changed:
		case <-r.t.Context().Done():
			r.t.Fatal("the test ended before that")
		}
	}
}

func ready(d *daemon) bool { return d.state == StateReady }

// files are the names in a folder, without the supervisor's own.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		if name := e.Name(); name != SocketName && name != "lock" && name != "users.json" {
			names = append(names, name)
		}
	}
	return names
}

func gone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// tell asks the daemon of a GPU.
func (r *rig) tell(gpu, command string) string {
	r.t.Helper()
	out, err := r.supervisor.launcher(gpu).tell(r.t.Context(), command)
	must(r.t, err)
	return strings.TrimSpace(out)
}
