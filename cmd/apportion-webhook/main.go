// Command apportion-webhook is the admission webhook: it refuses ResourceClaims,
// ResourceClaimTemplates and DeviceClasses with parameters that the driver would
// refuse.
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
		Use:   "apportion-webhook",
		Short: "Admission webhook for the parameters of the DRA driver for NVIDIA GPUs",
		Long: `Refuses ResourceClaims, ResourceClaimTemplates and DeviceClasses whose parameters
for this driver are wrong, with the path of each wrong field. It makes its own
certificate, shares it with other replicas by a Secret, renews it, and tells the API
server of it. Every flag can also be given as an environment variable: upper case,
with "_" for "-" (SERVICE_NAME for --service-name).`,
		Example: `  # As the chart runs it:
  apportion-webhook --namespace apportion-system --service-name apportion-webhook \
    --secret-name apportion-webhook --configuration-name apportion-webhook`,
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
	return cmd
}
