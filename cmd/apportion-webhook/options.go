package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	logsapi "k8s.io/component-base/logs/api/v1"

	"apportion.dev/apportion/pkg/webhook"
)

// options are the program's flags.
type options struct {
	config     webhook.Config
	kubeconfig string
	logging    *logsapi.LoggingConfiguration
}

func defaultOptions() *options {
	return &options{
		config: webhook.Config{
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
	flags.StringVar(&c.Address, "address", c.Address, "Where reviews are answered, over TLS, at "+webhook.Path+".")
	flags.StringVar(&c.MetricsAddress, "metrics-address", c.MetricsAddress, "Where /metrics, /healthz and /readyz are served; empty for nowhere.")
	flags.DurationVar(&c.CertificateLifetime, "certificate-lifetime", c.CertificateLifetime, "How long a serving certificate is valid; it is renewed when a third of that is left. That of its authority is valid 12 times as long.")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig file; the pod's service account is used if empty.")
	logsapi.AddFlags(o.logging, flags)
}

// fromEnvironment sets flags that were not given from the environment.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" {
			return
		}
		name := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value, ok := lookup(name); ok {
			if err := flags.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
			}
		}
	})
	return errors.Join(errs...)
}

// complete checks the flags.
func (o *options) complete() error {
	var errs []error
	if f := o.logging.Format; f != logsapi.DefaultLogFormat && f != logsapi.JSONLogFormat {
		errs = append(errs, fmt.Errorf("--logging-format %q: known are %s and %s", f, logsapi.DefaultLogFormat, logsapi.JSONLogFormat))
	}
	errs = append(errs, o.config.Validate())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
		return fmt.Errorf("logging: %w", err)
	}
	return nil
}

// run serves until ctx ends.
func (o *options) run(ctx context.Context) error {
	var config *rest.Config
	var err error
	if o.kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	}
	if err != nil {
		return fmt.Errorf("find the API server: %w; run in a pod or give --kubeconfig", err)
	}
	config.UserAgent = "apportion-webhook"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	return webhook.New(o.config, client, webhook.NewMetrics()).Run(ctx)
}
