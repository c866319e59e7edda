package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"apportion.dev/apportion/cmd/internal/apiserver"
	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/driver"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// options are the program's flags.
type options struct {
	config       driver.Config
	kubeconfig   string
	nvmlLibrary  string
	exclude      []string
	sharing      sharingOptions
	ignoreXIDs   []int
	pollInterval time.Duration
}

func defaultOptions() *options {
	return &options{
		config: driver.Config{
			DriverName: "gpu.apportion.dev", CDIRoot: "/var/run/cdi",
			PluginsDir: kubeletplugin.KubeletPluginsDir, RegistrarDir: kubeletplugin.KubeletRegistryDir,
			DriverRoot: "/driver-root", HostDriverRoot: "/", HookPath: "/usr/bin/nvidia-cdi-hook",
			LimitHookPath:   "/usr/bin/apportion-cdi-hook",
			HealthcheckPort: 51515, MetricsAddress: ":8080", Ownership: true,
		},
		pollInterval: 10 * time.Second,
	}
}

// AddFlags adds the flags to a set.
func (o *options) AddFlags(flags *pflag.FlagSet) {
	c := &o.config
	flags.StringVar(&c.NodeName, "node-name", c.NodeName, "Name of this node, and of its pool of devices. Required.")
	flags.StringVar(&c.DriverName, "driver-name", c.DriverName, "Name of the DRA driver in ResourceSlices and claims.")
	flags.StringVar(&c.CDIRoot, "cdi-root", c.CDIRoot, "Folder for CDI specs; the container runtime must read it.")
	flags.StringVar(&c.PluginsDir, "kubelet-plugins-directory-path", c.PluginsDir, "The kubelet's folder for plugins' data; must be the same path here as on the host.")
	flags.StringVar(&c.RegistrarDir, "kubelet-registrar-directory-path", c.RegistrarDir, "The kubelet's folder for plugins' registration sockets.")
	flags.StringVar(&c.HostDriverRoot, "nvidia-driver-root", c.HostDriverRoot, "Folder on the host under which the NVIDIA driver is installed.")
	flags.StringVar(&c.DriverRoot, "container-driver-root", c.DriverRoot, "The folder of --nvidia-driver-root as this program sees it.")
	flags.StringVar(&o.nvmlLibrary, "nvml-library", "", "Path of libnvidia-ml.so.1; searched for under --container-driver-root if empty.")
	flags.StringSliceVar(&o.exclude, "exclude-devices", nil, "GPUs that are not published: UUIDs, PCI addresses or product names, separated by commas.")
	flags.StringVar(&c.HookPath, "cdi-hook-path", c.HookPath, "The nvidia-cdi-hook program to install on the host; empty to use the one that is installed.")
	flags.StringVar(&c.LimitHookPath, "limit-hook-path", c.LimitHookPath, "The apportion-cdi-hook program to install on the host; empty to use the one that is installed.")
	flags.IntVar(&c.HealthcheckPort, "healthcheck-port", c.HealthcheckPort, "TCP port of the gRPC health service; -1 for none.")
	flags.StringVar(&c.MetricsAddress, "metrics-address", c.MetricsAddress, "Where /metrics and /healthz are served; empty for nowhere.")
	flags.BoolVar(&c.Pprof, "pprof", false, "Also serve /debug/pprof at --metrics-address.")
	flags.BoolVar(&c.Ownership, "ownership", c.Ownership, "Say on the socket ownership/ownership.sock in the driver's folder who holds which device.")
	flags.StringVar(&c.OwnershipHTTPAddress, "ownership-http-address", "", `Where GET /ownership says it too, such as "localhost:8081"; to everybody who can connect. Empty for nowhere.`)
	flags.StringVar(&c.DCGMJobMappingDir, "dcgm-job-mapping-dir", "", "Folder in which a dcgm-exporter finds the owners of GPUs (its DCGM_HPC_JOB_MAPPING_DIR); empty for none.")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig file; the pod's service account is used if empty.")
	o.sharing.addFlags(flags)
	flags.IntSliceVar(&o.ignoreXIDs, "ignore-xids", nil, "Xid errors after which a GPU is still used, beside those that are an application's own fault.")
	flags.DurationVar(&o.pollInterval, "poll-interval", o.pollInterval, "How often the hardware is read again when it sends no events.")
}

// Complete checks the flags and works out what depends on them.
func (o *options) Complete(context.Context) error {
	errs := []error{service.CheckPaths(
		service.Path{Flag: "--cdi-root", Value: o.config.CDIRoot},
		service.Path{Flag: "--kubelet-plugins-directory-path", Value: o.config.PluginsDir},
		service.Path{Flag: "--kubelet-registrar-directory-path", Value: o.config.RegistrarDir},
		service.Path{Flag: "--nvidia-driver-root", Value: o.config.HostDriverRoot},
		service.Path{Flag: "--container-driver-root", Value: o.config.DriverRoot},
	), service.CheckOptionalPaths(
		service.Path{Flag: "--dcgm-job-mapping-dir", Value: o.config.DCGMJobMappingDir},
	)}
	if o.pollInterval <= 0 {
		errs = append(errs, fmt.Errorf("--poll-interval %s: give a duration above zero, such as 10s", o.pollInterval))
	}
	o.config.Policy = devicemodel.Policy{Exclude: o.exclude, MemoryEnforcement: devicemodel.MemoryEnforcementNVML}
	errs = append(errs, o.sharing.apply(&o.config.Policy))
	o.config.LimitHookArgs = []string{"--driver-root", o.config.HostDriverRoot}
	return errors.Join(append(errs, o.config.Validate())...)
}

// Run wires the driver and serves until ctx ends.
func (o *options) Run(ctx context.Context) error {
	bootID, err := os.ReadFile(bootIDFile)
	if err != nil {
		return fmt.Errorf("identify this boot: %w", err)
	}
	o.config.BootID = strings.TrimSpace(string(bootID))
	metrics := driver.NewMetrics()
	metrics.ObserveClient()
	client, err := o.client()
	if err != nil {
		return err
	}
	library := inventory.OpenLibrary(o.nvmlLibrary, o.config.DriverRoot)
	source := inventory.NewNVML(inventory.Options{
		Library: library, SysFS: inventory.SysFS(o.config.DriverRoot), PollInterval: o.pollInterval, IgnoreXIDs: o.ignoreXIDs,
	})
	err = driver.New(o.config, driver.Providers{Source: source, Library: library, Client: client, Metrics: metrics}).Run(ctx)
	// The hardware is let go when nobody uses it any more.
	return errors.Join(err, source.Close())
}

// client returns a client without limits of its own: the API server's fairness
// does that job, and client-go's default would hold up a burst of pods.
func (o *options) client() (kubernetes.Interface, error) {
	config, err := apiserver.Config(o.kubeconfig, "apportion-kubelet-plugin")
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	return client, nil
}
