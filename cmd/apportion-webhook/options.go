package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	logsapi "k8s.io/component-base/logs/api/v1"

	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/pkg/admission"
)

// options are the program's flags.
type options struct {
	config     admission.Config
	kubeconfig string
	logging    *logsapi.LoggingConfiguration
}

func defaultOptions() *options {
	return &options{
		config: admission.Config{
			DriverName: "gpu.apportion.dev", Address: ":8443", MetricsAddress: ":8080",
			CertificateLifetime: 90 * 24 * time.Hour,
		},
		logging: logsapi.NewLoggingConfiguration(),
	}
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	c := &o.config
	flags.StringVar(&c.DriverName, "driver-name", c.DriverName, "Name of the DRA driver whose parameters are checked.")
	flags.StringVar(&c.Namespace, "namespace", "", "Namespace of the Service and the Secret. Required.")
	flags.StringVar(&c.ServiceName, "service-name", "", "Service by which the API server calls this program. Required.")
	flags.StringVar(&c.SecretName, "secret-name", "", "Secret with the certificates; it must exist, and may be empty. Required.")
	flags.StringVar(&c.ConfigurationName, "configuration-name", "", "ValidatingWebhookConfiguration whose caBundle is kept. Required.")
	flags.StringVar(&c.Address, "address", c.Address, "Where reviews are answered, over TLS, at "+admission.Path+".")
	flags.StringVar(&c.MetricsAddress, "metrics-address", c.MetricsAddress, "Where /metrics, /healthz and /readyz are served; empty for nowhere.")
	flags.DurationVar(&c.CertificateLifetime, "certificate-lifetime", c.CertificateLifetime, "How long a serving certificate is valid; it is renewed when a third of that is left. That of its authority is valid 12 times as long.")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig file; the pod's service account is used if empty.")
	logsapi.AddFlags(o.logging, flags)
}

// complete checks the flags.
func (o *options) complete() error {
	var errs []error
	errs = append(errs, service.CheckLogging(o.logging))
	errs = append(errs, o.config.Validate())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return service.ApplyLogging(o.logging)
}

// run serves until ctx ends.
func (o *options) run(ctx context.Context) error {
	config, err := service.APIServer(o.kubeconfig, "apportion-webhook")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	return admission.New(o.config, client, admission.NewMetrics()).Run(ctx)
}
