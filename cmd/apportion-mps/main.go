// Command apportion-mps runs MPS control daemons for the GPUs of this node, in a
// container beside that of apportion-kubelet-plugin, which asks it for them.
package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/cmd/internal/command"
	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/pkg/node/mps"
)

func main() { service.Main(run) }

// run is main without the process.
func run(ctx context.Context, args []string, environment func(string) (string, bool), stderr io.Writer) int {
	return command.Execute(ctx, newCommand(environment), args, stderr)
}

func newCommand(environment func(string) (string, bool)) *cobra.Command {
	o := defaultOptions()
	cmd := &cobra.Command{
		Use:   "apportion-mps",
		Short: "Runs MPS control daemons for the GPUs of a node",
		Long: `Runs an MPS control daemon for each GPU for as long as claims use it, as
apportion-kubelet-plugin asks over a Unix socket. Every flag can also be given as an
environment variable: upper case, with "_" for "-" (DRIVER_NAME for --driver-name).`,
		Example: `  # In a privileged container with the host's process ids, as the chart runs it:
  apportion-mps --container-driver-root /driver-root

  # With fake GPUs made by "apportion fake create":
  apportion-mps --fake-machine /var/lib/apportion/fake`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.FromEnvironment(cmd.Flags(), environment); err != nil {
				return command.Usage(err)
			}
			if err := o.complete(); err != nil {
				return command.Usage(err)
			}
			return o.run(klog.NewContext(cmd.Context(), klog.Background()))
		},
	}
	o.addFlags(cmd.Flags())
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(&cobra.Command{
		Use:    enterCommand + " DESCRIPTION",
		Short:  "Become a program in the mount namespace of this process; used by apportion-mps itself",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return mps.Enter(args[0]) },
	})
	return cmd
}

// enterCommand is the command with which the program calls itself.
const enterCommand = "enter"
