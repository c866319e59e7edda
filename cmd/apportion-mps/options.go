package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/node/mps"
)

// folderName is the supervisor's folder in the driver's own one.
const folderName = "mps"

// options are the program's flags.
type options struct {
	driverName   string
	pluginsDir   string
	driverRoot   string
	fakeMachine  string
	sharedMemory resource.QuantityValue
	multiUser    bool
	logging      *logsapi.LoggingConfiguration
}

func defaultOptions() *options {
	return &options{
		driverName: "gpu.apportion.dev", pluginsDir: kubeletplugin.KubeletPluginsDir, driverRoot: "/driver-root",
		sharedMemory: resource.QuantityValue{Quantity: resource.MustParse("1Gi")}, multiUser: true,
		logging: logsapi.NewLoggingConfiguration(),
	}
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.driverName, "driver-name", o.driverName, "Name of the DRA driver, the same as that of apportion-kubelet-plugin.")
	flags.StringVar(&o.pluginsDir, "kubelet-plugins-directory-path", o.pluginsDir, `The kubelet's folder for plugins' data; must be the same path here as on the host. The socket, sockets of daemons and shared memory are below "mps" in the driver's folder there.`)
	flags.StringVar(&o.driverRoot, "container-driver-root", o.driverRoot, "Folder under which this program sees the NVIDIA driver's installation.")
	flags.StringVar(&o.fakeMachine, "fake-machine", "", `Folder of a fake machine made by "apportion fake create": its driver is used, and nothing is mounted.`)
	flags.Var(&o.sharedMemory, "shared-memory", "Size of the shared memory of a GPU's clients, which is /dev/shm in their containers.")
	flags.BoolVar(&o.multiUser, "multi-user", o.multiUser, "Let clients that run as different users use a GPU at the same time; their work is then done as root. Otherwise a user's clients wait until those of the other have ended.")
	logsapi.AddFlags(o.logging, flags)
}

// complete checks the flags.
func (o *options) complete() error {
	var errs []error
	for _, f := range []struct{ flag, path string }{
		{"--kubelet-plugins-directory-path", o.pluginsDir}, {"--container-driver-root", o.driverRoot},
	} {
		if !filepath.IsAbs(f.path) {
			errs = append(errs, fmt.Errorf("%s %q: give an absolute path", f.flag, f.path))
		}
	}
	if o.fakeMachine != "" && !filepath.IsAbs(o.fakeMachine) {
		errs = append(errs, fmt.Errorf("--fake-machine %q: give an absolute path", o.fakeMachine))
	}
	if o.driverName == "" || o.driverName != filepath.Base(o.driverName) {
		errs = append(errs, fmt.Errorf("--driver-name %q cannot be the name of a driver: give a DNS name, such as gpu.apportion.dev", o.driverName))
	}
	if o.sharedMemory.Value() < 1<<20 {
		errs = append(errs, fmt.Errorf("--shared-memory %s: give 1Mi or more", &o.sharedMemory))
	}
	errs = append(errs, service.CheckLogging(o.logging))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return service.ApplyLogging(o.logging)
}

// run runs the daemons until ctx ends.
func (o *options) run(ctx context.Context) error {
	settings := mps.Options{
		Dir:        filepath.Join(o.pluginsDir, o.driverName, folderName),
		DriverRoot: o.driverRoot, MultiUser: o.multiUser,
		Isolate: true, SharedMemoryBytes: o.sharedMemory.Value(),
	}
	if o.fakeMachine != "" {
		machine, err := fakegpu.Open(o.fakeMachine)
		if err != nil {
			return fmt.Errorf("fake machine: %w", err)
		}
		settings.DriverRoot, settings.Isolate = machine.DriverRoot(), false
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	settings.Self = []string{self, enterCommand}
	supervisor, err := mps.NewSupervisor(settings)
	if err != nil {
		return err
	}
	return supervisor.Run(ctx)
}
