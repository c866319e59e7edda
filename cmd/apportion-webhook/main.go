// Command apportion-webhook is the admission webhook: it refuses ResourceClaims,
// ResourceClaimTemplates and DeviceClasses with parameters that the driver would
// refuse.
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
	fmt.Fprintf(stderr, "apportion-webhook: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
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
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unexpected argument %q: everything is given by flags, see --help", args[0])}
			}
			return nil
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags(), environment); err != nil {
				return usageError{err}
			}
			if err := o.complete(); err != nil {
				return usageError{err}
			}
			return o.run(klog.NewContext(cmd.Context(), klog.Background()))
		},
	}
	o.addFlags(cmd.Flags())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return cmd
}
