package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/exporter-toolkit/web"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/metrics/exporter"
)

const (
	// writeTimeout is how long a scraper may take, which holds memory meanwhile.
	writeTimeout = 30 * time.Second
	// drain is how long scrapes that are under way may take when the program ends.
	drain = 5 * time.Second
)

// server serves an exporter's metrics.
type server struct {
	http      *http.Server
	listener  net.Listener
	webConfig string
}

func (o *options) listen(ctx context.Context, e *exporter.Exporter) (*server, error) {
	metrics, err := e.Handler()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := e.Healthy(); err != nil {
			http.Error(w, oneLine(err), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w; choose another --web.listen-address", err)
	}
	logger := klog.FromContext(ctx)
	logger.Info("Listening", "address", listener.Addr(), "ownership", o.ownershipSocket, "fields", len(o.fields))
	o.listening(listener.Addr())
	return &server{
		http: &http.Server{
			Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: 5 * time.Minute,
			ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(logger.V(2)), slog.LevelInfo),
		},
		listener: listener, webConfig: o.webConfig,
	}, nil
}

// serve answers scrapes while work is done. When either ends so does the other, and
// when ctx ends both do. It returns when nothing that it started is running.
func (s *server) serve(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		err := web.Serve(s.listener, s.http, &web.FlagConfig{WebConfigFile: &s.webConfig}, slog.New(logr.ToSlogHandler(klog.FromContext(ctx).V(2))))
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		served <- err
	}()
	worked := work(ctx)
	ending, ended := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer ended()
	if err := s.http.Shutdown(ending); err != nil {
		// Somebody reads slowly.
		worked = errors.Join(worked, s.http.Close())
	}
	if err := <-served; err != nil {
		return errors.Join(worked, fmt.Errorf("serve metrics: %w", err))
	}
	return worked
}
