package client

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/server"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// owner is of a GPU by a claim, which one container of a pod uses.
func owner(device, claim, pod string) ownership.Owner {
	return ownership.Owner{
		Device:  ownership.Device{Driver: "gpu.apportion.dev", Pool: "node", Name: device, Type: "gpu", UUID: "GPU-" + device, Fraction: 1},
		Claim:   ownership.ClaimRef{Namespace: "team", Name: claim, UID: types.UID(claim + "-uid")},
		Request: "gpu",
		Since:   noon,
		Consumers: []ownership.Consumer{{
			Namespace: "team", Name: pod, UID: types.UID(pod + "-uid"), State: ownership.Running,
			Containers: []ownership.Container{{Name: "main", Kind: ownership.RegularContainer}},
		}},
	}
}

func owners(owners ...ownership.Owner) []ownership.Owner { return owners }

// text describes a snapshot: "2 a=1/p b=2/q (problem)".
func text(s ownership.Snapshot) string {
	var b strings.Builder
	fmt.Fprint(&b, s.Generation)
	for _, o := range s.Owners {
		fmt.Fprintf(&b, " %s=%s/%s", o.Device.Name, o.Claim.Name, o.Consumers[0].Name)
	}
	if s.Problem != "" {
		fmt.Fprintf(&b, " (%s)", s.Problem)
	}
	return b.String()
}

// logs passes on what is logged: "listens", or the error with which something failed.
type logs struct {
	klog.LogSink
	listens func()
	failed  chan<- error
}

func (l logs) Init(klog.RuntimeInfo)  {}
func (l logs) Enabled(level int) bool { return true }

func (l logs) Info(_ int, message string, _ ...any) {
	if message == "Ownership service listens" && l.listens != nil {
		l.listens()
	}
}

func (l logs) Error(err error, _ string, _ ...any) {
	if l.failed != nil {
		l.failed <- err
	}
}

func socketPath(t testing.TB) string { return filepath.Join(t.TempDir(), "s") }

// serve runs a server, which listens when serve returns, until the returned function
// ends it.
func serve(t testing.TB, s *server.Server, socket string) (stop func()) {
	t.Helper()
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Background().WithSink(logs{listens: sync.OnceFunc(func() { close(ready) })})))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, socket) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	return stop
}

// running is a client that runs.
type running struct {
	*Client
	t testing.TB
	// changes are what changed was called with, failures what was logged.
	changes  chan ownership.Snapshot
	failures chan error
	stop     func()
}

// run runs a client until the test ends or it is stopped.
func run(t testing.TB, c *Client) *running {
	r := &running{Client: c, t: t, changes: make(chan ownership.Snapshot, 1000), failures: make(chan error, 1000)}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Background().WithSink(logs{failed: r.failures})))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx, func(s ownership.Snapshot) { r.changes <- s })
	}()
	r.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(r.stop)
	return r
}

// next waits until changed is called.
func (r *running) next(want string) ownership.Snapshot {
	r.t.Helper()
	s := <-r.changes
	if got := text(s); got != want {
		r.t.Fatalf("changed to %q, want %q", got, want)
	}
	current, err := r.Current()
	if err != nil {
		r.t.Errorf("after %q the current snapshot is said to be stale: %v", want, err)
	}
	if len(r.changes) == 0 && current.Generation != s.Generation {
		r.t.Errorf("after %q the current snapshot is %q", want, text(current))
	}
	return s
}

// stale waits until the client says that it does not follow the service, for a reason.
func (r *running) stale(reason, want string) {
	r.t.Helper()
	<-r.failures
	s, err := r.Current()
	if err == nil || !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), r.socket) {
		r.t.Errorf("the error is %v, want %q of %s", err, reason, r.socket)
	}
	if got := text(s); got != want {
		r.t.Errorf("the last good snapshot is %q, want %q", got, want)
	}
}

// serverSocket tells a process of the test to be a server.
const serverSocket = "OWNERSHIP_TEST_SERVER"

func TestMain(m *testing.M) {
	if socket := os.Getenv(serverSocket); socket != "" {
		beServer(socket)
	}
	os.Exit(m.Run())
}

// beServer serves until it is killed. Each line on standard input is a pod that has
// the GPU from then on. Standard output has a line when it listens, and for each pod.
func beServer(socket string) {
	s := server.New()
	ctx := klog.NewContext(context.Background(), klog.Background().WithSink(logs{listens: func() { fmt.Println("listens") }}))
	go func() {
		pods := bufio.NewScanner(os.Stdin)
		for pods.Scan() {
			s.Set(owners(owner("a", "1", pods.Text())), "", noon)
			fmt.Println(pods.Text())
		}
	}()
	fmt.Fprintln(os.Stderr, s.Serve(ctx, socket))
	os.Exit(1)
}

// process is a server in a process of its own.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	send func(pod string)
}

func startProcess(t *testing.T, socket string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), serverSocket+"="+socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	expect := func(line string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != line {
			t.Fatalf("the server says %q, want %q: %v", lines.Text(), line, lines.Err())
		}
	}
	expect("listens")
	p := &process{t: t, cmd: cmd, send: func(pod string) {
		t.Helper()
		if _, err := fmt.Fprintln(in, pod); err != nil {
			t.Fatal(err)
		}
		expect(pod)
	}}
	t.Cleanup(p.kill)
	return p
}

// kill ends the process as if it had crashed.
func (p *process) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Error(err)
	}
	_ = p.cmd.Wait()
}
