// Command apportion-webhook is the admission webhook: it refuses ResourceClaims,
// ResourceClaimTemplates and DeviceClasses with parameters that the driver would
// refuse.
package main

import "apportion.dev/apportion/cmd/internal/service"

func main() { newProgram(defaultOptions()).Main() }

func newProgram(o *options) service.Program {
	return service.Program{
		Name:  "apportion-webhook",
		Short: "Admission webhook for the parameters of the DRA driver for NVIDIA GPUs",
		Long: `Refuses ResourceClaims, ResourceClaimTemplates and DeviceClasses whose parameters
for this driver are wrong, with the path of each wrong field. It makes its own
certificate, shares it with other replicas in a Secret, renews it, and gives it to the
API server, or serves with one that somebody else keeps in a folder.`,
		Example: `  # As the chart runs it:
  apportion-webhook --namespace apportion-system --service-name apportion-webhook \
    --secret-name apportion-webhook --configuration-name apportion-webhook`,
		Options: o,
	}
}
