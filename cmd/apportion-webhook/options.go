package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"apportion.dev/apportion/cmd/internal/apiserver"
	"apportion.dev/apportion/pkg/admission"
)

// options are the program's flags.
type options struct {
	config     admission.Config
	kubeconfig string
}

func defaultOptions() *options {
	return &options{
		config: admission.Config{
			DriverName: "gpu.apportion.dev", Address: ":8443", MetricsAddress: ":8080",
			CertificateLifetime: 90 * 24 * time.Hour,
		},
	}
}

// AddFlags adds the flags to a set.
func (o *options) AddFlags(flags *pflag.FlagSet) {
	c := &o.config
	flags.StringVar(&c.DriverName, "driver-name", c.DriverName, "Name of the DRA driver whose parameters are checked.")
	flags.StringVar(&c.CertificateDir, "certificate-dir", "", "Folder in which somebody else, such as cert-manager, keeps the certificate as tls.crt and tls.key. If empty the webhook makes its own, and needs --namespace, --service-name, --secret-name and --configuration-name.")
	flags.StringVar(&c.Namespace, "namespace", "", "Namespace of the Service and the Secret.")
	flags.StringVar(&c.ServiceName, "service-name", "", "Service by which the API server calls this program.")
	flags.StringVar(&c.SecretName, "secret-name", "", "Secret with the certificates; it must exist, and may be empty.")
	flags.StringVar(&c.ConfigurationName, "configuration-name", "", "ValidatingWebhookConfiguration whose caBundle is kept.")
	flags.StringVar(&c.Address, "address", c.Address, "Where reviews are answered, over TLS, at "+admission.Path+".")
	flags.StringVar(&c.MetricsAddress, "metrics-address", c.MetricsAddress, "Where /metrics, /healthz and /readyz are served; empty for nowhere.")
	flags.DurationVar(&c.CertificateLifetime, "certificate-lifetime", c.CertificateLifetime, "How long a serving certificate is valid; it is renewed when a third of that is left. Not used with --certificate-dir.")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig file; the pod's service account is used if empty.")
}

// Complete checks the flags.
func (o *options) Complete(context.Context) error { return o.config.Validate() }

// Run serves until ctx ends.
func (o *options) Run(ctx context.Context) error {
	if o.config.CertificateDir != "" {
		return admission.New(o.config, nil, admission.NewMetrics()).Run(ctx)
	}
	config, err := apiserver.Config(o.kubeconfig, "apportion-webhook")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	return admission.New(o.config, client, admission.NewMetrics()).Run(ctx)
}
