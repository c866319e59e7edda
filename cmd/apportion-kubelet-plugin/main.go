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

  # On a machine without GPUs, with fake ones made by "apportion fake create":
  apportion-kubelet-plugin --node-name node-a --fake-machine /var/lib/apportion/fake`,
		Options: o,
	}
}
