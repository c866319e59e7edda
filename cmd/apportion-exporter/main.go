// Command apportion-exporter publishes measurements of the GPUs, partitions and shares
// of this node for Prometheus, with the pods that hold them.
package main

import (
	"context"
	"io"
	"strings"

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
		Use:   "apportion-exporter",
		Short: "Prometheus exporter of GPUs, with the pods that hold them",
		Long: `Reads the GPUs of this node through NVML, asks apportion-kubelet-plugin who holds
them, and serves both at /metrics. Every flag can also be given as an environment
variable: upper case, with "_" for "-" and "." (WEB_LISTEN_ADDRESS for
--web.listen-address).`,
		Example: `  # On a node, with the host's process ids, as the chart runs it:
  apportion-exporter --node-name "$(hostname)" --container-driver-root /driver-root

  # With fake GPUs made by "apportion fake create", and a list of fields in DCGM's format:
  apportion-exporter --fake-machine /var/lib/apportion/fake -f fields.csv`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.FromEnvironment(cmd.Flags(), withoutDots(environment)); err != nil {
				return command.Usage(err)
			}
			ctx := klog.NewContext(cmd.Context(), klog.Background())
			if err := o.complete(ctx); err != nil {
				return command.Usage(err)
			}
			if err := service.ApplyLogging(o.logging); err != nil {
				return err
			}
			return o.run(ctx)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// withoutDots looks up variables that a shell can set.
func withoutDots(environment func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) { return environment(strings.ReplaceAll(name, ".", "_")) }
}
