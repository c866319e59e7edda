// Command apportion-kubelet-plugin is the node driver: it publishes the node's
// GPUs as ResourceSlices and prepares claims for the kubelet.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.LookupEnv, os.Stderr)
	stop()
	logs.FlushLogs()
	os.Exit(code)
}

// usageError is a mistake in how the program was called.
type usageError struct{ error }

// run returns the exit status: 0 when the program was told to end, 2 for a mistake
// in how it was called, 1 for all else. Whatever is wrong is one line on stderr.
func run(ctx context.Context, args []string, environment func(string) (string, bool), stderr io.Writer) int {
	cmd := newCommand(environment)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "apportion-kubelet-plugin: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
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
		Args:          func(_ *cobra.Command, args []string) error { return noArguments(args) },
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags(), environment); err != nil {
				return usageError{err}
			}
			if err := o.complete(); err != nil {
				return usageError{err}
			}
			ctx := klog.NewContext(cmd.Context(), klog.Background())
			return o.run(ctx)
		},
	}
	o.addFlags(cmd.Flags())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return cmd
}

func noArguments(args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q: everything is given by flags, see --help", args[0])}
	}
	return nil
}
