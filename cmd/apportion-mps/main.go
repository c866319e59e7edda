// Command apportion-mps runs MPS control daemons for the GPUs of this node, in a
// container beside that of apportion-kubelet-plugin, which asks it for them.
package main

import (
	"github.com/spf13/cobra"

	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/pkg/node/mps"
)

// enterCommand is the command with which the program calls itself.
const enterCommand = "enter"

func main() { newProgram(defaultOptions()).Main() }

func newProgram(o *options) service.Program {
	return service.Program{
		Name:  "apportion-mps",
		Short: "Runs MPS control daemons for the GPUs of a node",
		Long: `Runs an MPS control daemon for each GPU for as long as claims use it, as
apportion-kubelet-plugin asks over a Unix socket.`,
		Example: `  # In a privileged container with the host's process ids, as the chart runs it:
  apportion-mps --container-driver-root /driver-root

  # With the driver of the fake GPUs that "apportion fake create" made:
  apportion-mps --container-driver-root /var/lib/apportion/fake/root`,
		Options: o,
		Commands: []*cobra.Command{{
			Use:    enterCommand + " DESCRIPTION",
			Short:  "Become a program in the mount namespace of this process; used by apportion-mps itself",
			Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return mps.Enter(args[0]) },
		}},
	}
}
