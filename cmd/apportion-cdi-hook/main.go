// Command apportion-cdi-hook is what container runtimes run for containers with
// shares of a GPU, as their CDI specs say.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/cobra"

	"apportion.dev/apportion/cmd/internal/command"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/memlimit"
)

func main() {
	open := func(nvmlLibrary, driverRoot string) nvml.Interface {
		return inventory.OpenLibrary(nvmlLibrary, driverRoot)
	}
	os.Exit(run(os.Args[1:], os.DirFS("/"), open, os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process. If it fails the container does not start, and the
// runtime shows the one line on stderr. root is the root folder, and open opens NVML.
func run(args []string, root fs.FS, open func(nvmlLibrary, driverRoot string) nvml.Interface, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := newCommand(&limitMemory{root: root, open: open})
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return command.Execute(context.Background(), cmd, args, stderr)
}

func newCommand(limit *limitMemory) *cobra.Command {
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
	cmd.AddCommand(limit.command())
	return cmd
}

// limitMemory are the flags of limit-memory, the root folder, and how NVML is opened.
type limitMemory struct {
	root                    fs.FS
	open                    func(nvmlLibrary, driverRoot string) nvml.Interface
	gpu, soft, hard         string
	driverRoot, nvmlLibrary string
}

func (o *limitMemory) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limit-memory",
		Short: "Limit the memory of a GPU that a container may use",
		Long: `Limits the memory of a GPU for the cgroup of a container, through NVML. It is a
createRuntime hook: the container's state is read from standard input. Shares of the
same GPU in one container add up. It fails, and the container does not start, unless
the limit holds.`,
		Example: `  # As a CDI spec has it:
  apportion-cdi-hook limit-memory --gpu GPU-4f3a1b2c-0000-4000-8000-000000000001 --soft 10737418240 --hard 10737418240`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.InOrStdin()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.gpu, "gpu", "", "UUID of the GPU.")
	flags.StringVar(&o.soft, "soft", "", "Memory that is guaranteed, in bytes.")
	flags.StringVar(&o.hard, "hard", "", "Memory that can be allocated at most, in bytes.")
	flags.StringVar(&o.driverRoot, "driver-root", "", "Folder under which the NVIDIA driver is installed; / if empty.")
	flags.StringVar(&o.nvmlLibrary, "nvml-library", "", "Path of libnvidia-ml.so.1, in place of searching for it under --driver-root.")
	return cmd
}

var gpuUUID = regexp.MustCompile(`^GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func (o *limitMemory) run(stdin io.Reader) error {
	limit, err := o.limit()
	if err != nil {
		return command.Usage(err)
	}
	pid, err := memlimit.ReadState(stdin)
	if err != nil {
		return err
	}
	cgroup, err := memlimit.OfContainer(o.root, pid)
	if err != nil {
		return err
	}
	return memlimit.Apply(o.open(o.nvmlLibrary, o.driverRoot), o.gpu, cgroup, limit)
}

// limit checks the flags.
func (o *limitMemory) limit() (memlimit.Limit, error) {
	if o.driverRoot != "" && o.nvmlLibrary != "" {
		return memlimit.Limit{}, errors.New("only one of --driver-root and --nvml-library can be given")
	}
	if !gpuUUID.MatchString(o.gpu) {
		return memlimit.Limit{}, fmt.Errorf("--gpu %q is not the UUID of a GPU (GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)", o.gpu)
	}
	soft, err := strconv.ParseUint(o.soft, 10, 64)
	if err != nil {
		return memlimit.Limit{}, fmt.Errorf("--soft %q is not a number of bytes", o.soft)
	}
	hard, err := strconv.ParseUint(o.hard, 10, 64)
	if err != nil {
		return memlimit.Limit{}, fmt.Errorf("--hard %q is not a number of bytes", o.hard)
	}
	limit := memlimit.Limit{Soft: soft, Hard: hard}
	return limit, limit.Validate()
}
