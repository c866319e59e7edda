// Command apportion-kubelet-plugin is the node driver: it publishes the node's
// GPUs as ResourceSlices and prepares claims for the kubelet.
package main

import "apportion.dev/apportion/cmd/internal/service"

func main() { newProgram(defaultOptions()).Main() }

func newProgram(o *options) service.Program {
	return service.Program{
		Name:  "apportion-kubelet-plugin",
		Short: "DRA driver for NVIDIA GPUs: the part that runs on each node",
		Long: `Publishes the GPUs of this node as ResourceSlices and prepares ResourceClaims for
the kubelet.`,
		Example: `  # On a node, as the chart runs it:
  apportion-kubelet-plugin --node-name "$(hostname)" --container-driver-root /driver-root

  # With the driver of the fake GPUs that "apportion fake create" made:
  apportion-kubelet-plugin --node-name node-a --nvidia-driver-root /var/lib/apportion/fake/root \
    --container-driver-root /var/lib/apportion/fake/root`,
		Options: o,
	}
}
