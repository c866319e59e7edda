package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// Exit codes.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitOutOfMemory = 3
	exitNotPlaced   = 3
)

// usageError is a mistake in how the program was called.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs the program with its arguments, the first of which is its own name,
// and gives the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	name := displayName(args[0])
	cmd := newRootCommand(name)
	cmd.SetArgs(args[1:])
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if errors.Is(err, errOutOfMemory) {
		return exitOutOfMemory // It was said on stdout.
	}
	if errors.Is(err, errNotPlaced) {
		return exitNotPlaced // So was this.
	}
	// One line, whatever the error has in it.
	fmt.Fprintf(stderr, "%s: %s\n", name, strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	var usage usageError
	var input *fakegpu.InputError
	if errors.As(err, &usage) || errors.As(err, &input) {
		return exitUsage
	}
	return exitFailure
}

// displayName is how the program is called: "kubectl apportion" for a plugin.
func displayName(program string) string {
	if plugin, ok := strings.CutPrefix(filepath.Base(program), "kubectl-"); ok {
		return "kubectl " + plugin
	}
	return "apportion"
}

func newRootCommand(name string) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "apportion",
		Short: "Look at GPUs and at who holds them, and make fake ones",
		Long: `Apportion is a Dynamic Resource Allocation driver for NVIDIA GPUs. This program
shows what a node would publish, without a cluster, who holds the GPUs of one, and which
nodes pods need, and makes fake GPUs.`,
		Example: lines(
			"# What would this node publish?",
			name+" inventory",
			"# Who holds the cluster's GPUs?",
			name+" owners",
			"# Which nodes would these pods need?",
			name+" simulate -f manifests/",
			"# What would a node with eight H100 publish?",
			name+" inventory --fake h100-sxm5-80gb:8",
		),
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: name},
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	})
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(newInventoryCommand(name), newFakeCommand(name), newOwnersCommand(name), newTemplatesCommand(name))
	cmd.AddCommand(newSimulateCommand(name), newExplainCommand(name))
	return cmd
}

// lines indents the lines of an example.
func lines(text ...string) string { return "  " + strings.Join(text, "\n  ") }

// group makes a command that only holds others: alone it shows its help, and a
// word that is none of them is a mistake.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var known []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.Name() != "help" {
				known = append(known, c.Name())
			}
		}
		return usagef("unknown command %q; known are: %s", args[0], strings.Join(known, ", "))
	}
	return cmd
}

// arguments checks the number of arguments; names are shown for those missing.
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usagef("%s is missing", names[len(args)])
		}
		return atMost(len(names), args)
	}
}

// optionalArguments allows up to a number of arguments.
func optionalArguments(most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error { return atMost(most, args) }
}

func atMost(most int, args []string) error {
	if len(args) > most {
		return usagef("unexpected argument %q", args[most])
	}
	return nil
}

// environmentDefault is the value of an environment variable, for a flag's
// default.
func environmentDefault(name string) string { return os.Getenv(name) }
