package server

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	ownershipv1 "apportion.dev/apportion/api/ownership/v1"
	"apportion.dev/apportion/pkg/ownership"
)

// listens is closed by the log line that says that the service listens.
type listens struct {
	klog.LogSink
	once func()
}

func (l listens) Init(klog.RuntimeInfo)  {}
func (l listens) Enabled(level int) bool { return true }

func (l listens) Info(_ int, message string, _ ...any) {
	if message == "Ownership service listens" {
		l.once()
	}
}

// serve runs a server, which listens when serve returns, until the returned function
// ends it, which says how.
func serve(t *testing.T, s *Server, socket string) (stop func() error) {
	t.Helper()
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Background().WithSink(listens{once: sync.OnceFunc(func() { close(ready) })})))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, socket) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	return stop
}

func dial(t *testing.T, socket string) ownershipv1.OwnershipClient {
	t.Helper()
	// A window that does not grow says how much a client takes in without reading.
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return ownershipv1.NewOwnershipClient(conn)
}

func watch(t *testing.T, socket string) grpc.ServerStreamingClient[ownershipv1.WatchResponse] {
	t.Helper()
	stream, err := dial(t, socket).Watch(t.Context(), &ownershipv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func next(t *testing.T, stream grpc.ServerStreamingClient[ownershipv1.WatchResponse], want string) {
	t.Helper()
	event, err := stream.Recv()
	if err != nil {
		t.Fatalf("%v, want %q", err, want)
	}
	if got := text(t, event); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestServe(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := New()
	stop := serve(t, s, socket)
	// Watchers may come before anything is known.
	stream := watch(t, socket)
	s.Set(owners(owner("a", "1", "p")), "", noon)
	next(t, stream, "snapshot 1: a=1/p")
	s.Set(owners(owner("a", "1", "p"), owner("b", "2", "q")), "", noon)
	next(t, stream, "change 1-2: +b=2/q")
	s.Set(nil, "pods: gone", noon)
	next(t, stream, "change 2-3: -a -b (pods: gone)")
	s.Set(nil, "", noon)
	next(t, stream, "verified 12:00:00")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("the watch goes on after the server has ended")
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// Whoever makes pods writes any bytes into their owner references.
func TestWatchersHearOfAPodWithAMakerThatIsNoText(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := New()
	serve(t, s, socket)
	stream := watch(t, socket)
	s.Set(owners(owner("a", "1", "p")), "", noon)
	next(t, stream, "snapshot 1: a=1/p")
	strange := owner("b", "2", "q")
	strange.Consumers[0].Workload = &ownership.Workload{APIVersion: "\xff/v1", Kind: "Th\xffing", Name: "\xfe"}
	s.Set(owners(owner("a", "1", "p"), strange), "", noon)
	next(t, stream, "change 1-2: +b=2/q")
	response, err := dial(t, socket).List(t.Context(), &ownershipv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	w := response.GetSnapshot().GetOwners()[1].GetConsumers()[0].GetWorkload()
	if got, want := w.GetApiVersion()+" "+w.GetKind()+" "+w.GetName(), "\uFFFD/v1 Th\uFFFDing \uFFFD"; got != want {
		t.Errorf("the workload is %q, want %q", got, want)
	}
}

// A watcher that reads nothing holds up neither Set nor the other watchers, and hears
// that it missed something.
func TestSlowWatcher(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := New()
	stop := serve(t, s, socket)
	s.Set(owners(owner("a", "1", "p")), "", noon)
	slow, quick := watch(t, socket), watch(t, socket)
	next(t, slow, "snapshot 1: a=1/p")
	next(t, quick, "snapshot 1: a=1/p")
	// 4 KiB each are far more in all than the connection takes in.
	long := strings.Repeat("x", 4<<10)
	const sets = 2 * historyLength
	for i := range sets {
		s.Set(owners(owner("a", "1", fmt.Sprint(i, long))), "", noon)
		next(t, quick, fmt.Sprintf("change %d-%d: +a=1/%d%s", i+1, i+2, i, long))
	}
	generation := uint64(1)
	for {
		event, err := slow.Recv()
		if err != nil {
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "watch again") {
				t.Errorf("the watch ended with %v", err)
			}
			break
		}
		if event.GetChange().GetFrom() != generation {
			t.Fatalf("got %q after generation %d", text(t, event), generation)
		}
		generation++
	}
	if generation > sets-historyLength {
		t.Errorf("the slow watcher heard of %d generations", generation)
	}
	next(t, watch(t, socket), fmt.Sprintf("snapshot %d: a=1/%d%s", sets+1, sets-1, long))
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Ending does not wait for a watcher that reads nothing.
func TestStopWithASlowWatcher(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := New()
	stop := serve(t, s, socket)
	s.Set(nil, "", noon)
	next(t, watch(t, socket), "snapshot 1:")
	for i := range historyLength {
		s.Set(owners(owner("a", "1", fmt.Sprint(i, strings.Repeat("x", 4<<10)))), "", noon)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestOnlyRootCanConnect(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	umask := syscall.Umask(0)
	listener, info, err := listen(t.Context(), socket)
	syscall.Umask(umask)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if got := info.Mode(); got != fs.ModeSocket|0o600 {
		t.Errorf("the socket's mode is %v", got)
	}
}

func TestSocketInTheWay(t *testing.T) {
	for _, test := range []struct {
		name string
		// prepare makes what is at the path before.
		prepare func(t *testing.T, path string)
		wantErr string
	}{
		{name: "nothing", prepare: func(*testing.T, string) {}},
		{name: "the socket of a dead process", prepare: func(t *testing.T, path string) {
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err != nil {
				t.Fatal(err)
			}
			listener.SetUnlinkOnClose(false)
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "the socket of a process that still runs", prepare: func(t *testing.T, path string) {
			serve(t, New(), path)
		}},
		{name: "a file", wantErr: "is not a socket: remove it", prepare: func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "a link to a file", wantErr: "is not a socket: remove it", prepare: func(t *testing.T, path string) {
			if err := os.Symlink("/dev/null", path); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			test.prepare(t, socket)
			before, _ := os.Lstat(socket)
			s := New()
			s.Set(owners(owner("a", "1", "p")), "", noon)
			if test.wantErr != "" {
				if err := s.Serve(t.Context(), socket); err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got error %v", err)
				}
				if after, err := os.Lstat(socket); err != nil || !os.SameFile(before, after) {
					t.Errorf("what was there is gone: %v", err)
				}
				return
			}
			stop := serve(t, s, socket)
			next(t, watch(t, socket), "snapshot 1: a=1/p")
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// During an update the old process ends after the new one has started.
func TestAnOldServerLeavesTheNewOnesSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	old := New()
	stopOld := serve(t, old, socket)
	old.Set(owners(owner("a", "1", "p")), "", noon)
	watcher := watch(t, socket)
	next(t, watcher, "snapshot 1: a=1/p")
	listener, info, err := listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if err := stopOld(); err != nil {
		t.Error(err)
	}
	if now, err := os.Lstat(socket); err != nil || !os.SameFile(now, info) {
		t.Errorf("the new socket is gone: %v", err)
	}
}

func TestServeAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	socket := filepath.Join(t.TempDir(), "s")
	for range 20 {
		if err := New().Serve(ctx, socket); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(socket); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
	}
}

func TestServeFails(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct{ name, path, want string }{
		{"no folder", filepath.Join(dir, "none", "s"), "no such file or directory"},
		{"a long path", "/" + strings.Repeat("x", 107), "has 108 characters and a socket's path at most 107: choose a shorter folder"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := New().Serve(t.Context(), test.path)
			if err == nil || !strings.Contains(err.Error(), "ownership service: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v", err)
			}
		})
	}
}
