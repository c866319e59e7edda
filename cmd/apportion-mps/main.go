// Command apportion-mps runs MPS control daemons for the GPUs of this node, in a
// container beside that of apportion-kubelet-plugin, which asks it for them.
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

	"apportion.dev/apportion/pkg/mps"
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
	fmt.Fprintf(stderr, "apportion-mps: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

func newCommand(environment func(string) (string, bool)) *cobra.Command {
	o := defaultOptions()
	cmd := &cobra.Command{
		Use:   "apportion-mps",
		Short: "Runs MPS control daemons for the GPUs of a node",
		Long: `Runs an MPS control daemon for each GPU for as long as claims use it, as
apportion-kubelet-plugin asks over a Unix socket. Every flag can also be given as an
environment variable: upper case, with "_" for "-" (DRIVER_NAME for --driver-name).`,
		Example: `  # In a privileged container with the host's process ids, as the chart runs it:
  apportion-mps --container-driver-root /driver-root

  # With fake GPUs made by "apportion fake create":
  apportion-mps --fake-machine /var/lib/apportion/fake`,
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
			return o.run(klog.NewContext(cmd.Context(), klog.Background()))
		},
	}
	o.addFlags(cmd.Flags())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(&cobra.Command{
		Use:    enterCommand + " DESCRIPTION",
		Short:  "Become a program in the mount namespace of this process; used by apportion-mps itself",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return mps.Enter(args[0]) },
	})
	return cmd
}

// enterCommand is the command with which the program calls itself.
const enterCommand = "enter"

func noArguments(args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q: everything is given by flags, see --help", args[0])}
	}
	return nil
}
