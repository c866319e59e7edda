package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"k8s.io/klog/v2"

	ownershipv1 "apportion.dev/apportion/api/ownership/v1"
)

const (
	// socketMode lets root alone connect: that takes the permission to write.
	socketMode = 0o600
	// longestPath is what fits into a Unix socket's address (sun_path in unix(7)).
	longestPath = 107
	// A request says a generation; what is far larger is not one.
	largestRequest = 64 << 10
	// A process that is stopped keeps its connection, and what waits to be sent to
	// it. After quiet for the first it is asked, and has the second to answer.
	keepaliveAfter   = 30 * time.Second
	keepaliveTimeout = 20 * time.Second
)

// Serve answers on a Unix socket, which only root can connect to, until the context
// ends. The socket's folder has to exist. A socket that is there already is replaced:
// it was left by a process that died, or belongs to one that is about to end.
func (s *Server) Serve(ctx context.Context, socketPath string) error {
	listener, socket, err := listen(ctx, socketPath)
	if err != nil {
		return fmt.Errorf("ownership service: %w", err)
	}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(largestRequest),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveAfter, Timeout: keepaliveTimeout}),
		grpc.WaitForHandlers(true),
	)
	ownershipv1.RegisterOwnershipServer(server, s)
	klog.FromContext(ctx).V(1).Info("Ownership service listens", "socket", socketPath)

	var stopping sync.WaitGroup
	ctx, end := context.WithCancel(ctx)
	stopping.Go(func() {
		<-ctx.Done()
		server.Stop()
	})
	err = server.Serve(listener)
	end()
	stopping.Wait()
	if errors.Is(err, grpc.ErrServerStopped) {
		// The context ended before it began.
		err = nil
	}
	if err := errors.Join(err, removeSocket(socketPath, socket)); err != nil {
		return fmt.Errorf("ownership service: %w", err)
	}
	return nil
}

// listen makes the socket with its mode: there is no moment at which others than root
// can connect, and the process's umask, which all its threads share, stays as it is.
func listen(ctx context.Context, path string) (net.Listener, fs.FileInfo, error) {
	if len(path) > longestPath {
		return nil, nil, fmt.Errorf("%s has %d characters and a socket's path at most %d: choose a shorter folder", path, len(path), longestPath)
	}
	if err := removeStale(path); err != nil {
		return nil, nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, connection syscall.RawConn) error {
		// Linux makes the file with the mode that the socket has when it is bound,
		// less the umask (unix_bind_bsd in net/unix/af_unix.c). Only afterwards can
		// somebody connect.
		var err error
		return errors.Join(connection.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), socketMode) }), err)
	}}
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, nil, err
	}
	// The path may be another process's socket when this one ends.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Perm()&^socketMode != 0 {
		err = fmt.Errorf("%s has mode %o, more than %o: the file system does not keep modes; choose another folder", path, info.Mode().Perm(), socketMode)
	}
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, info, nil
}

// removeStale removes a socket, and nothing else that may be there.
func removeStale(path string) error {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is in the way and is not a socket: remove it", path)
	}
	return os.Remove(path)
}

// removeSocket removes the path if it still leads to the socket.
func removeSocket(path string, socket fs.FileInfo) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, socket) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// Handler answers GET /ownership with the snapshot as JSON (ownership.Snapshot), and
// with status 503 while it is not known.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ownership", func(w http.ResponseWriter, r *http.Request) {
		snapshot := s.Snapshot()
		if snapshot.Generation == 0 {
			http.Error(w, "who holds what is not known yet: the driver is starting; ask again", http.StatusServiceUnavailable)
			return
		}
		data, err := json.Marshal(snapshot)
		if err != nil {
			klog.FromContext(r.Context()).Error(err, "Ownership cannot be written as JSON")
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(append(data, '\n'))
	})
	return mux
}
