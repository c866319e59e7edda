package mps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// GPU is a GPU with a daemon.
type GPU struct {
	UUID  string `json:"uuid"`
	State State  `json:"state"`
	// PID is the daemon's process, as the supervisor sees it; 0 while there is none.
	PID int `json:"pid,omitempty"`
	// Claims are the users, sorted.
	Claims []types.UID `json:"claims"`
	// Error is why the daemon ended the last time.
	Error string `json:"error,omitempty"`
}

// The protocol: PUT and DELETE of a claim of a GPU acquire and release, GET of all
// GPUs lists. What failed is a failure with a status that is no success.
const (
	gpusPath  = "/v1/gpus"
	claimPath = gpusPath + "/{gpu}/claims/{claim}"
)

// failure is the body of an answer that is no success.
type failure struct {
	Error string `json:"error"`
	// Unavailable says that the error is ErrUnavailable.
	Unavailable bool `json:"unavailable,omitempty"`
}

// maxSocketPath is the longest path that a Unix socket can be bound to.
const maxSocketPath = 107

// listen listens at a socket that only root reaches. One that a process that was
// killed left is replaced; the caller knows that no other process listens there.
func listen(path string) (*net.UnixListener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the socket %s has a path of %d bytes, at most %d are possible: choose a shorter folder", path, len(path), maxSocketPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket of MPS: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket of MPS: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket of MPS: %w", err), l.Close())
	}
	return l, nil
}

// serve answers requests until ctx ends and those under way have been answered.
func (s *Supervisor) serve(ctx context.Context, l *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var err error
	select {
	case err = <-served:
		return fmt.Errorf("serve %s: %w", s.Socket(), errors.Join(err, server.Close()))
	case <-ctx.Done():
	}
	// Requests under way end with ctx.
	err = server.Shutdown(context.WithoutCancel(ctx))
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	if err != nil {
		return fmt.Errorf("serve %s: %w", s.Socket(), err)
	}
	return nil
}

func (s *Supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	of := func(do func(context.Context, string, types.UID) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			reply(w, r, nil, do(r.Context(), r.PathValue("gpu"), types.UID(r.PathValue("claim"))))
		}
	}
	mux.HandleFunc("PUT "+claimPath, of(s.Acquire))
	mux.HandleFunc("DELETE "+claimPath, of(s.Release))
	mux.HandleFunc("GET "+gpusPath, func(w http.ResponseWriter, r *http.Request) {
		reply(w, r, s.List(), nil)
	})
	return mux
}

func reply(w http.ResponseWriter, r *http.Request, body any, err error) {
	status := http.StatusOK
	switch {
	case err == nil:
	case errors.Is(err, errName):
		status = http.StatusBadRequest
	case errors.Is(err, ErrUnavailable):
		status = http.StatusServiceUnavailable
	default:
		status = http.StatusInternalServerError
	}
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Request failed", "method", r.Method, "path", r.URL.Path)
		body = failure{Error: err.Error(), Unavailable: errors.Is(err, ErrUnavailable)}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		// The client is gone and asks again.
		klog.FromContext(r.Context()).V(2).Info("Answer was not sent", "path", r.URL.Path, "err", err)
	}
}
