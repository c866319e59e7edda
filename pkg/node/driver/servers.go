package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerpb "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// servers are the gRPC health service and the HTTP endpoints.
type servers struct {
	grpc *grpc.Server
	http []*http.Server
	wg   sync.WaitGroup
}

// startServers starts what is wanted. owners answers at OwnershipHTTPAddress.
func startServers(ctx context.Context, c Config, m *Metrics, owners http.Handler) (*servers, error) {
	s := &servers{}
	logger := klog.FromContext(ctx)
	if c.HealthcheckPort >= 0 {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", c.HealthcheckPort))
		if err != nil {
			return nil, fmt.Errorf("health service: %w; choose another --healthcheck-port", err)
		}
		s.grpc = grpc.NewServer()
		healthpb.RegisterHealthServer(s.grpc, &liveness{config: c})
		logger.V(1).Info("Health service listens", "address", listener.Addr())
		s.wg.Go(func() {
			if err := s.grpc.Serve(listener); err != nil {
				logger.Error(err, "Health service ended")
			}
		})
	}
	for _, endpoint := range []struct {
		what, flag, address string
		handler             http.Handler
	}{
		{"metrics", "--metrics-address", c.MetricsAddress, httpHandler(c, m)},
		{"ownership", "--ownership-http-address", c.OwnershipHTTPAddress, owners},
	} {
		if endpoint.address == "" {
			continue
		}
		listener, err := net.Listen("tcp", endpoint.address)
		if err != nil {
			s.stop()
			return nil, fmt.Errorf("%s: %w; choose another %s", endpoint.what, err, endpoint.flag)
		}
		s.serveHTTP(logger, listener, endpoint.handler)
	}
	return s, nil
}

func (s *servers) serveHTTP(logger klog.Logger, listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	s.http = append(s.http, server)
	logger.V(1).Info("HTTP endpoints listen", "address", listener.Addr())
	s.wg.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error(err, "HTTP endpoints ended")
		}
	})
}

func (s *servers) stop() {
	if s.grpc != nil {
		s.grpc.Stop()
	}
	for _, server := range s.http {
		_ = server.Close()
	}
	s.wg.Wait()
}

func httpHandler(c Config, m *Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics.HandlerFor(m.Registry, metrics.HandlerOpts{}))
	live := &liveness{config: c}
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := live.probe(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	if c.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// liveness answers the kubelet's probe by calling both of the driver's sockets
// as the kubelet does.
type liveness struct {
	healthpb.UnimplementedHealthServer
	config Config
}

// probeTimeout is below timeoutSeconds of the chart's probes, so that the probe
// says why it failed.
const probeTimeout = 4 * time.Second

func (l *liveness) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if r.Service != "" && r.Service != "liveness" {
		return nil, status.Errorf(codes.NotFound, "unknown service %q, known are \"\" and \"liveness\"", r.Service)
	}
	if err := l.probe(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The driver does not answer on its own sockets")
		return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func (l *liveness) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := withSocket(l.config.registrationSocket(), func(conn *grpc.ClientConn) error {
		_, err := registerpb.NewRegistrationClient(conn).GetInfo(ctx, &registerpb.InfoRequest{})
		return err
	}); err != nil {
		return fmt.Errorf("registration socket: %w", err)
	}
	if err := withSocket(l.config.pluginSocket(), func(conn *grpc.ClientConn) error {
		_, err := drapb.NewDRAPluginClient(conn).NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{})
		return err
	}); err != nil {
		return fmt.Errorf("plugin socket: %w", err)
	}
	return nil
}

func withSocket(path string, call func(*grpc.ClientConn) error) error {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	return errors.Join(call(conn), conn.Close())
}
