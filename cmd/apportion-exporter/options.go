package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/metrics/exporter"
	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership/client"
)

const (
	// socketName is the ownership service's in the driver's folder.
	socketName = "ownership/ownership.sock"
	// minInterval is as often as NVML's values change.
	minInterval = 100 * time.Millisecond
)

// options are the program's flags.
type options struct {
	driver          service.Driver
	ownershipSocket string
	nodeName        string
	nvmlLibrary     string
	collectors      string
	interval        time.Duration
	retainEnded     time.Duration
	podLabels       []string
	address         string
	webConfig       string

	// fields are the names of those that are exported.
	fields []string
	// library is NVML; found by the flags if nil, as it is outside of tests.
	library nvml.Interface
	// listening is told where the program listens, once it does; tests wait for it.
	listening func(net.Addr)
}

func defaultOptions() *options {
	return &options{
		driver: service.DefaultDriver(), interval: time.Second, retainEnded: 5 * time.Minute, address: ":9400",
		listening: func(net.Addr) {},
	}
}

// AddFlags adds the flags to a set.
func (o *options) AddFlags(flags *pflag.FlagSet) {
	o.driver.AddFlags(flags, ", in which the driver's folder has the socket ownership/ownership.sock.")
	flags.StringVar(&o.ownershipSocket, "ownership-socket", "", "Socket at which the driver says who holds which device; that in --kubelet-plugins-directory-path if empty.")
	flags.StringVar(&o.nodeName, "node-name", "", "Name of this node, for the label Hostname; the host's own if empty.")
	flags.StringVar(&o.nvmlLibrary, "nvml-library", "", "Path of libnvidia-ml.so.1; searched for under --container-driver-root if empty.")
	flags.StringVarP(&o.collectors, "collectors", "f", "", `File with the fields to export, as lines "NAME, type, help" in DCGM's format; those of DCGM's default list that NVML can give if empty.`)
	flags.DurationVar(&o.interval, "collect-interval", o.interval, "How often the GPUs are read; when their owners change they are read at once.")
	flags.DurationVar(&o.retainEnded, "retain-ended", o.retainEnded, "How long the counters of an owner that has gone are still served, so that their last values are scraped.")
	flags.StringSliceVar(&o.podLabels, "pod-labels", nil, "Labels of pods, separated by commas, that the series of their devices get: app.kubernetes.io/name as label_app_kubernetes_io_name.")
	flags.StringVar(&o.address, "web.listen-address", o.address, "Where /metrics and /healthz are served.")
	flags.StringVar(&o.webConfig, "web.config.file", "", "File with settings for TLS and authentication, in the format of the Prometheus exporter toolkit; plain HTTP for all if empty.")
}

// Complete checks the flags and works out what depends on them.
func (o *options) Complete(ctx context.Context) error {
	errs := []error{o.driver.Check(), service.CheckOptionalPaths(service.Path{Flag: "--ownership-socket", Value: o.ownershipSocket})}
	if o.interval < minInterval {
		errs = append(errs, fmt.Errorf("--collect-interval %s: give at least %s", o.interval, minInterval))
	}
	if o.retainEnded <= 0 {
		errs = append(errs, fmt.Errorf("--retain-ended %s: give a duration above zero, longer than Prometheus' scrape interval", o.retainEnded))
	}
	if _, _, err := net.SplitHostPort(o.address); err != nil {
		errs = append(errs, fmt.Errorf("--web.listen-address %q: give host:port or :port", o.address))
	}
	for _, key := range o.podLabels {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--pod-labels %q is no label's key: %s", key, strings.Join(problems, "; ")))
		}
	}
	if err := web.Validate(o.webConfig); err != nil {
		errs = append(errs, fmt.Errorf("--web.config.file %s: %w", o.webConfig, err))
	}
	return errors.Join(append(errs, o.defaultNames(), o.readFields(ctx))...)
}

func (o *options) defaultNames() error {
	if o.ownershipSocket == "" {
		o.ownershipSocket = filepath.Join(o.driver.Folder(), socketName)
	}
	if o.nodeName != "" {
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("the host's name cannot be read, give --node-name: %w", err)
	}
	o.nodeName = name
	return nil
}

// readFields reads the list of fields. One made for DCGM has more than NVML can give.
func (o *options) readFields(ctx context.Context) error {
	if o.collectors == "" {
		o.fields = gpumetrics.Default()
		return nil
	}
	file, err := os.Open(o.collectors)
	if err != nil {
		return fmt.Errorf("--collectors: %w", err)
	}
	known, unknown, err := gpumetrics.ParseCSV(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("--collectors %s: %w", o.collectors, err)
	}
	if len(unknown) > 0 {
		klog.FromContext(ctx).Info("Fields that NVML cannot give are left out", "file", o.collectors, "fields", unknown)
	}
	if len(known) == 0 {
		return fmt.Errorf("--collectors %s: it has no field that NVML can give; docs/metrics.md lists them", o.collectors)
	}
	o.fields = known
	return nil
}

// Run wires the exporter and serves until ctx ends.
func (o *options) Run(ctx context.Context) (err error) {
	library := o.library
	if library == nil {
		library = inventory.OpenLibrary(o.nvmlLibrary, o.driver.Root)
	}
	reader, err := gpumetrics.NewReader(library, o.fields)
	if err != nil {
		return err
	}
	source := inventory.NewNVML(inventory.Options{Library: library, SysFS: inventory.SysFS(o.driver.Root)})
	// The hardware is let go when nobody uses it any more.
	defer func() { err = errors.Join(err, reader.Close(), source.Close()) }()
	e := exporter.New(exporter.Options{
		PodLabels: o.podLabels,
		Fields:    reader.Fields(), Hostname: o.nodeName, Interval: o.interval, RetainEnded: o.retainEnded,
		ContainerOf: exporter.ContainerOf(os.DirFS("/proc")),
	})
	server, err := o.listen(ctx, e)
	if err != nil {
		return err
	}
	return server.serve(ctx, func(ctx context.Context) error {
		return e.Run(ctx, source, reader, client.New(o.ownershipSocket))
	})
}

// oneLine is an error of several lines in one, for an HTTP answer.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
