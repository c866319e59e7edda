// Command apportion-exporter publishes measurements of the GPUs, partitions and shares
// of this node for Prometheus, with the pods that hold them.
package main

import "apportion.dev/apportion/cmd/internal/service"

func main() { newProgram(defaultOptions()).Main() }

func newProgram(o *options) service.Program {
	return service.Program{
		Name:  "apportion-exporter",
		Short: "Prometheus exporter of GPUs, with the pods that hold them",
		Long: `Reads the GPUs of this node through NVML, asks apportion-kubelet-plugin who holds
them, and serves both at /metrics.`,
		Example: `  # On a node, with the host's process ids, as the chart runs it:
  apportion-exporter --node-name "$(hostname)" --container-driver-root /driver-root

  # With the driver of the fake GPUs that "apportion fake create" made, and a list of
  # fields in DCGM's format:
  apportion-exporter --container-driver-root /var/lib/apportion/fake/root -f fields.csv`,
		Options: o,
	}
}
