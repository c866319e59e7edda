package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
)

// Path is where reviews are sent.
const Path = "/validate"

// MinCertificateLifetime is the shortest life of a certificate that leaves time to
// renew it.
const MinCertificateLifetime = time.Minute

// drain is how long reviews that are under way may take when the webhook ends.
const drain = 10 * time.Second

// Config is what the webhook must be told.
type Config struct {
	// DriverName is the driver whose parameters are checked.
	DriverName string
	// CertificateDir is a folder in which somebody else keeps the certificate and its
	// key, as tls.crt and tls.key. The webhook makes its own if it is empty, for which
	// it needs the four names that follow.
	CertificateDir string
	// Namespace is that of the Service and the Secret.
	Namespace string
	// ServiceName is the Service by which the API server calls the webhook.
	ServiceName string
	// SecretName is the Secret with the certificates. It must exist; the webhook
	// fills it.
	SecretName string
	// ConfigurationName is the ValidatingWebhookConfiguration that tells the API
	// server to call the Service. The webhook keeps its caBundle.
	ConfigurationName string
	// Address is where the webhook is served over TLS.
	Address string
	// MetricsAddress is where /metrics, /healthz and /readyz are served without
	// TLS; nowhere if empty.
	MetricsAddress string
	// CertificateLifetime is how long a serving certificate is valid; it is
	// renewed when a third of that is left.
	CertificateLifetime time.Duration
}

// Validate returns all that is wrong with the configuration, by the flags' names.
func (c Config) Validate() error {
	var errs []error
	type flag struct{ flag, value string }
	names := []flag{{"--driver-name", c.DriverName}}
	if c.CertificateDir == "" {
		names = append(names, flag{"--namespace", c.Namespace}, flag{"--service-name", c.ServiceName},
			flag{"--secret-name", c.SecretName}, flag{"--configuration-name", c.ConfigurationName})
	} else if !filepath.IsAbs(c.CertificateDir) {
		errs = append(errs, fmt.Errorf("--certificate-dir %q: give an absolute path", c.CertificateDir))
	}
	for _, name := range names {
		if name.value == "" {
			variable := strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(name.flag, "--"), "-", "_"))
			errs = append(errs, fmt.Errorf("%s is required (or the environment variable %s)", name.flag, variable))
		} else if problems := validation.IsDNS1123Subdomain(name.value); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s %q: %s", name.flag, name.value, strings.Join(problems, "; ")))
		}
	}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		errs = append(errs, fmt.Errorf("--address %q: give host:port or :port", c.Address))
	}
	if _, _, err := net.SplitHostPort(c.MetricsAddress); err != nil && c.MetricsAddress != "" {
		errs = append(errs, fmt.Errorf("--metrics-address %q: give host:port, :port, or nothing", c.MetricsAddress))
	}
	if c.CertificateLifetime < MinCertificateLifetime {
		errs = append(errs, fmt.Errorf("--certificate-lifetime %s: give at least %s", c.CertificateLifetime, MinCertificateLifetime))
	}
	return errors.Join(errs...)
}

// Server is one replica of the webhook.
type Server struct {
	config  Config
	metrics *Metrics
	// certificate is what a connection is served with; keep, if not nil, keeps it valid
	// until ctx ends.
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	keep        func(ctx context.Context)
	// listen is net.Listen; tests see by it which ports were chosen.
	listen func(network, address string) (net.Listener, error)
}

// New returns a server that has done nothing yet. It needs no client if somebody else
// keeps the certificate.
func New(c Config, client kubernetes.Interface, m *Metrics) *Server {
	s := &Server{config: c, metrics: m, listen: net.Listen}
	if c.CertificateDir != "" {
		s.certificate = (&folder{path: c.CertificateDir, metrics: m}).certificate
	} else {
		k := newKeeper(c, client, m)
		s.certificate, s.keep = k.certificate, k.run
	}
	return s
}

// Run serves until ctx ends; reviews that are under way then are still answered. It
// returns an error if it cannot serve.
func (s *Server) Run(ctx context.Context) error {
	if err := s.config.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reviews := http.NewServeMux()
	reviews.Handle(Path, newReviewer(s.config.DriverName, s.metrics))
	secure := s.server(ctx, reviews)
	secure.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.certificate}
	plain := s.server(ctx, s.statusHandler())

	ended := make(chan error, 2)
	var wg sync.WaitGroup
	start := func(what, address string, serve func(net.Listener) error) error {
		listener, err := s.listen("tcp", address)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		klog.FromContext(ctx).V(1).Info("Listening", "for", what, "address", listener.Addr())
		wg.Go(func() {
			if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
				ended <- fmt.Errorf("%s: %w", what, err)
			}
		})
		return nil
	}
	err := start("reviews", s.config.Address, func(l net.Listener) error { return secure.ServeTLS(l, "", "") })
	if err == nil && s.config.MetricsAddress != "" {
		err = start("metrics", s.config.MetricsAddress, plain.Serve)
	}
	if err == nil {
		if s.keep != nil {
			wg.Go(func() { s.keep(ctx) })
		}
		select {
		case <-ctx.Done():
		case err = <-ended:
		}
	}
	cancel()
	// The context that ended Run must not end the last reviews.
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer stop()
	err = errors.Join(err, secure.Shutdown(last), plain.Shutdown(last))
	wg.Wait()
	return err
}

func (s *Server) server(ctx context.Context, handler http.Handler) *http.Server {
	logger := klog.FromContext(ctx)
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// Who asked is known by the request's own context; this is for its logger.
		BaseContext: func(net.Listener) context.Context { return klog.NewContext(context.WithoutCancel(ctx), logger) },
		// Connections that end before TLS is agreed on, which every probe of a port is.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(logger.V(2)), slog.LevelInfo),
	}
}

// statusHandler serves what monitoring and the kubelet's probes ask for.
func (s *Server) statusHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics.HandlerFor(s.metrics.Registry, metrics.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := s.certificate(nil); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}
