// Command apportion-cdi-hook is what container runtimes run for containers with
// shares of a GPU, as their CDI specs say.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/cobra"

	"apportion.dev/apportion/cmd/internal/command"
	"apportion.dev/apportion/pkg/fakegpu"
	"apportion.dev/apportion/pkg/inventory"
	"apportion.dev/apportion/pkg/memlimit"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stderr)) }

// run is main without the process. If it fails the container does not start, and the
// runtime shows the one line on stderr.
func run(args []string, stdin io.Reader, stderr io.Writer) int {
	return command.Execute(context.Background(), newCommand(stdin), args, stderr)
}

func newCommand(stdin io.Reader) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apportion-cdi-hook",
		Short: "What container runtimes run for containers with shares of a GPU",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return command.Usage(fmt.Errorf("unknown command %q, see --help", args[0]))
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(limitMemoryCommand(stdin))
	return cmd
}

// limitMemory are the flags of limit-memory.
type limitMemory struct {
	gpu, soft, hard                      string
	driverRoot, nvmlLibrary, fakeMachine string
}

func limitMemoryCommand(stdin io.Reader) *cobra.Command {
	o := &limitMemory{}
	cmd := &cobra.Command{
		Use:   "limit-memory",
		Short: "Limit the memory of a GPU that a container may use",
		Long: `Limits the memory of a GPU for the cgroup of a container, through NVML. It is a
createRuntime hook: the container's state is read from standard input. Shares of the
same GPU in one container add up.`,
		Example: `  # As a CDI spec has it:
  apportion-cdi-hook limit-memory --gpu GPU-4f3a1b2c-0000-4000-8000-000000000001 --soft 10737418240 --hard 10737418240`,
		Args: command.NoArguments,
		RunE: func(*cobra.Command, []string) error { return o.run(stdin) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.gpu, "gpu", "", "UUID of the GPU.")
	flags.StringVar(&o.soft, "soft", "", "Memory that is guaranteed, in bytes.")
	flags.StringVar(&o.hard, "hard", "", "Memory that can be allocated at most, in bytes.")
	flags.StringVar(&o.driverRoot, "driver-root", "/", "Folder under which the NVIDIA driver is installed.")
	flags.StringVar(&o.nvmlLibrary, "nvml-library", "", "Path of libnvidia-ml.so.1; searched for under --driver-root if empty.")
	flags.StringVar(&o.fakeMachine, "fake-machine", "", "Folder of a fake machine, in place of the real one.")
	return cmd
}

var gpuUUID = regexp.MustCompile(`^GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func (o *limitMemory) run(stdin io.Reader) error {
	if !gpuUUID.MatchString(o.gpu) {
		return command.Usage(fmt.Errorf("--gpu %q is not the UUID of a GPU (GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)", o.gpu))
	}
	var limit memlimit.Limit
	for _, f := range []struct {
		flag, value string
		to          *uint64
	}{{"--soft", o.soft, &limit.Soft}, {"--hard", o.hard, &limit.Hard}} {
		n, err := strconv.ParseUint(f.value, 10, 64)
		if err != nil {
			return command.Usage(fmt.Errorf("%s %q is not a number of bytes", f.flag, f.value))
		}
		*f.to = n
	}
	if err := limit.Validate(); err != nil {
		return command.Usage(err)
	}
	library, err := o.library()
	if err != nil {
		return err
	}
	pid, err := memlimit.ReadState(stdin)
	if err != nil {
		return err
	}
	cgroups := memlimit.Cgroups{Root: os.DirFS("/"), V1: o.fakeMachine != ""}
	cgroup, err := cgroups.Of(strconv.Itoa(pid))
	if err != nil {
		return err
	}
	return memlimit.Apply(library, o.gpu, cgroup, limit)
}

func (o *limitMemory) library() (nvml.Interface, error) {
	if o.fakeMachine == "" {
		return inventory.OpenLibrary(o.nvmlLibrary, o.driverRoot), nil
	}
	machine, err := fakegpu.Open(o.fakeMachine)
	if err != nil {
		return nil, err
	}
	return machine.NVML(), nil
}
