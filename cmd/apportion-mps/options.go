package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/pkg/node/mps"
)

// folderName is the supervisor's folder in the driver's own one.
const folderName = "mps"

// options are the program's flags.
type options struct {
	driver       service.Driver
	sharedMemory resource.QuantityValue
	multiUser    bool

	// isolate is true outside of tests: see [mps.Options].
	isolate bool
}

func defaultOptions() *options {
	return &options{
		driver:       service.DefaultDriver(),
		sharedMemory: resource.QuantityValue{Quantity: resource.MustParse("1Gi")}, multiUser: true, isolate: true,
	}
}

// AddFlags adds the flags to a set.
func (o *options) AddFlags(flags *pflag.FlagSet) {
	o.driver.AddFlags(flags, `; must be the same path here as on the host. The socket, sockets of daemons and shared memory are below "mps" in the driver's folder there.`)
	flags.Var(&o.sharedMemory, "shared-memory", "Size of the shared memory of a GPU's clients, which is /dev/shm in their containers.")
	flags.BoolVar(&o.multiUser, "multi-user", o.multiUser, "Let clients that run as different users use a GPU at the same time; their work is then done as root. Otherwise a user's clients wait until those of the other have ended.")
}

// Complete checks the flags.
func (o *options) Complete(context.Context) error {
	err := o.driver.Check()
	if o.sharedMemory.Value() < 1<<20 {
		err = errors.Join(err, fmt.Errorf("--shared-memory %s: give 1Mi or more", &o.sharedMemory))
	}
	return err
}

// Run runs the daemons until ctx ends.
func (o *options) Run(ctx context.Context) error {
	settings := mps.Options{
		Dir:        filepath.Join(o.driver.Folder(), folderName),
		DriverRoot: o.driver.Root, MultiUser: o.multiUser,
		Isolate: o.isolate, SharedMemoryBytes: o.sharedMemory.Value(),
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
