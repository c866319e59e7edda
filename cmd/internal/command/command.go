// Package command is how the programs of this repository are called: flags, each
// also an environment variable, one line on stderr for whatever is wrong, and an exit
// status that tells a bad call from other trouble. It knows nothing of what they do.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// UsageError is a mistake in how the program was called.
type UsageError struct{ error }

// Usage makes an error one in how the program was called; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err}
}

// Execute runs the command with the arguments and returns the exit status: 0 when the
// program was told to end, 2 for a mistake in how it was called, 1 for all else.
// Whatever is wrong is one line on stderr, after the program's name.
func Execute(ctx context.Context, cmd *cobra.Command, args []string, stderr io.Writer) int {
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %s\n", cmd.Name(), strings.ReplaceAll(err.Error(), "\n", "; "))
	var usage UsageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

// NoArguments is a [cobra.PositionalArgs] for programs that take flags alone.
func NoArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Errorf("unexpected argument %q: everything is given by flags, see --help", args[0]))
	}
	return nil
}

// FromEnvironment sets flags that were not given from the environment. There is one
// rule for all of them, so KUBECONFIG, which other programs read too, is --kubeconfig.
func FromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" {
			return
		}
		name := environmentName(f.Name)
		if value, ok := lookup(name); ok {
			if err := flags.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
			}
		}
	})
	return errors.Join(errs...)
}

// environmentName is the environment variable of a flag.
func environmentName(flag string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(flag))
}
