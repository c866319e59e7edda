// Command apportion-kubelet-plugin is the node driver: it publishes the node's
// GPUs as ResourceSlices and prepares claims for the kubelet.
package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/cmd/internal/command"
	"apportion.dev/apportion/cmd/internal/service"
)

func main() { service.Main(run) }

// run is main without the process.
func run(ctx context.Context, args []string, environment func(string) (string, bool), stderr io.Writer) int {
	return command.Execute(ctx, newCommand(environment), args, stderr)
}

func newCommand(environment func(string) (string, bool)) *cobra.Command {
	o := defaultOptions()
	cmd := &cobra.Command{
		Use:   "apportion-kubelet-plugin",
		Short: "DRA driver for NVIDIA GPUs: the part that runs on each node",
		Long: `Publishes the GPUs of this node as ResourceSlices and prepares ResourceClaims for
the kubelet. Every flag can also be given as an environment variable: upper case,
with "_" for "-" (NODE_NAME for --node-name).`,
		Example: `  # On a node, as the chart runs it:
  apportion-kubelet-plugin --node-name "$(hostname)" --container-driver-root /driver-root

  # On a machine without GPUs, with fake ones made by "apportion fake create":
  apportion-kubelet-plugin --node-name node-a --fake-machine /var/lib/apportion/fake`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.FromEnvironment(cmd.Flags(), environment); err != nil {
				return command.Usage(err)
			}
			if err := o.complete(); err != nil {
				return command.Usage(err)
			}
			ctx := klog.NewContext(cmd.Context(), klog.Background())
			return o.run(ctx)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}
