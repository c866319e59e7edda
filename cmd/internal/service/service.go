// Package service is what the programs that run until they are told to end have in
// common: flags, signals, logging, and where the API server and the driver are.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/cmd/internal/command"
)

// Options are a program's flags and what it does with them.
type Options interface {
	// AddFlags adds the program's own flags, whose defaults the options hold.
	AddFlags(*pflag.FlagSet)
	// Complete checks the flags and works out what depends on them. Its errors are
	// mistakes in how the program was called.
	Complete(context.Context) error
	// Run does the program's work until ctx ends.
	Run(context.Context) error
}

// Program is what a program says of itself, and its options.
type Program struct {
	Name, Short, Long, Example string
	Options                    Options
	// Commands are hidden commands with which the program calls itself.
	Commands []*cobra.Command
}

// Main runs the program until it ends or is told to by SIGINT or SIGTERM, and exits
// with its status.
func (p Program) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := p.Execute(ctx, os.Args[1:], os.LookupEnv, os.Stderr)
	stop()
	logs.FlushLogs()
	os.Exit(code)
}

// Execute is Main without the process: it returns the exit status.
func (p Program) Execute(ctx context.Context, args []string, environment func(string) (string, bool), stderr io.Writer) int {
	logging := logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use: p.Name, Short: p.Short, Example: p.Example, Args: command.NoArguments,
		Long: p.Long + `

Every flag can also be given as an environment variable: upper case, with "_" for "-"
and for ".", such as DRIVER_NAME for --driver-name.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.FromEnvironment(cmd.Flags(), environment); err != nil {
				return command.Usage(err)
			}
			ctx := klog.NewContext(cmd.Context(), klog.Background())
			if err := errors.Join(checkLogging(logging), p.Options.Complete(ctx)); err != nil {
				return command.Usage(err)
			}
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return command.Usage(fmt.Errorf("logging: %w", err))
			}
			return p.Options.Run(klog.NewContext(cmd.Context(), klog.Background()))
		},
	}
	p.Options.AddFlags(cmd.Flags())
	logsapi.AddFlags(logging, cmd.Flags())
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(p.Commands...)
	return command.Execute(ctx, cmd, args, stderr)
}

// checkLogging says what is wrong with the format, in the words of the flags.
func checkLogging(c *logsapi.LoggingConfiguration) error {
	if c.Format != logsapi.DefaultLogFormat && c.Format != logsapi.JSONLogFormat {
		return fmt.Errorf("--logging-format %q: known are %s and %s", c.Format, logsapi.DefaultLogFormat, logsapi.JSONLogFormat)
	}
	return nil
}

// Driver is where a program finds the driver's data and the NVIDIA driver on its node.
type Driver struct{ Name, PluginsDir, Root string }

// DefaultDriver is the driver as the chart installs it.
func DefaultDriver() Driver {
	// The folder is kubeletplugin.KubeletPluginsDir. Importing that package would make
	// programs that need nothing else of it 20 MB larger.
	return Driver{Name: "gpu.apportion.dev", PluginsDir: "/var/lib/kubelet/plugins", Root: "/driver-root"}
}

// AddFlags adds the driver's flags. use says what the program does with the driver's
// folder in that of --kubelet-plugins-directory-path.
func (d *Driver) AddFlags(flags *pflag.FlagSet, use string) {
	flags.StringVar(&d.Name, "driver-name", d.Name, "Name of the DRA driver, the same as that of apportion-kubelet-plugin.")
	flags.StringVar(&d.PluginsDir, "kubelet-plugins-directory-path", d.PluginsDir, "The kubelet's folder for plugins' data"+use)
	flags.StringVar(&d.Root, "container-driver-root", d.Root, "Folder under which this program sees the NVIDIA driver's installation.")
}

// Check returns all that is wrong with the driver's flags.
func (d *Driver) Check() error {
	err := CheckPaths(Path{"--kubelet-plugins-directory-path", d.PluginsDir}, Path{"--container-driver-root", d.Root})
	if d.Name == "" || d.Name != filepath.Base(d.Name) {
		err = errors.Join(err, fmt.Errorf("--driver-name %q cannot be the name of a driver: give a DNS name, such as gpu.apportion.dev", d.Name))
	}
	return err
}

// Folder is where the driver's kubelet plugin keeps its data.
func (d *Driver) Folder() string { return filepath.Join(d.PluginsDir, d.Name) }

// Path is the value of a flag that is a path.
type Path struct{ Flag, Value string }

// CheckPaths returns an error for each path that is not absolute.
func CheckPaths(paths ...Path) error {
	var errs []error
	for _, p := range paths {
		if !filepath.IsAbs(p.Value) {
			errs = append(errs, fmt.Errorf("%s %q: give an absolute path", p.Flag, p.Value))
		}
	}
	return errors.Join(errs...)
}

// CheckOptionalPaths is CheckPaths for flags that may be empty.
func CheckOptionalPaths(paths ...Path) error {
	return CheckPaths(slices.DeleteFunc(paths, func(p Path) bool { return p.Value == "" })...)
}
