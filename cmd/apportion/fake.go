package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// Environment variables in place of flags.
const (
	machineEnv = "FAKE_MACHINE"
	nodeEnv    = "NODE_NAME"
	libraryEnv = "FAKE_LIBRARY"
)

// fakeOptions are the flags that the commands of a fake machine share.
type fakeOptions struct {
	// name is how the program is called, for examples.
	name    string
	machine string
	gpu     string
}

func newFakeCommand(name string) *cobra.Command {
	o := &fakeOptions{name: name}
	cmd := group(&cobra.Command{
		Use:   "fake",
		Short: "Make and change a machine with fake GPUs",
		Long: `A fake machine is a folder that looks like a node with NVIDIA GPUs. The folder "root" in
it is its driver root, with an NVML library like NVIDIA's: the node driver publishes the
GPUs and hands them to pods as it does with real ones. A machine can be changed while it
is in use. GPUs are named by index, UUID or PCI address.`,
		Example: o.example(
			"# A machine with eight H100",
			"%[1]s fake create --machine /var/lib/apportion/fake --node node-a --gpus h100-sxm5-80gb:8",
			"# Let one of them fall off the bus",
			"export FAKE_MACHINE=/var/lib/apportion/fake",
			"%[1]s fake lose-gpu --gpu 3",
			"%[1]s fake show",
		),
	})
	cmd.PersistentFlags().StringVar(&o.machine, "machine", environmentDefault(machineEnv),
		"Folder of the fake machine (environment: "+machineEnv+").")
	cmd.AddCommand(
		o.createCommand(), o.showCommand(), o.productsCommand(),
		o.addCommand(), o.removeCommand(), o.loseCommand(), o.restoreCommand(), o.resetCommand(),
		o.failCommand(), o.healCommand(), o.xidCommand(), o.driverVersionCommand(), o.symbolsCommand(),
		o.setCommand(), o.migCommand(), o.allocateCommand(),
	)
	return cmd
}

// example formats the lines of an example, in which %[1]s is the program.
func (o *fakeOptions) example(text ...string) string {
	return strings.ReplaceAll(lines(text...), "%[1]s", o.name)
}

// open opens the machine.
func (o *fakeOptions) open() (*fakegpu.Machine, error) {
	if o.machine == "" {
		return nil, usagef("--machine is missing: the folder of the fake machine (or set %s)", machineEnv)
	}
	m, err := fakegpu.Open(o.machine)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("%w (are you root?)", err)
	}
	return m, err
}

// addGPUFlag adds --gpu to a command that changes one GPU.
func (o *fakeOptions) addGPUFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&o.gpu, "gpu", "", "The GPU: its index, UUID or PCI address.")
	return cmd
}

// openGPU opens the machine for a command on one GPU.
func (o *fakeOptions) openGPU() (*fakegpu.Machine, error) {
	m, err := o.open()
	if err == nil && o.gpu == "" {
		return nil, usagef("--gpu is missing: the GPU's index, UUID or PCI address")
	}
	return m, err
}

// done says what was done.
func done(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}

func (o *fakeOptions) createCommand() *cobra.Command {
	var node, gpus, version, library string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a fake machine; one that is there already is kept as it is",
		Long: `Makes a fake machine in a folder. --gpus is a list of products with numbers, or a
table with a list for each node, from which the entry of --node is taken ("*" is for
the nodes that have none). At most 16 GPUs. "none" is a machine without GPUs.
The same node gets the same machine every time. Where there is one already, only its
NVML library is replaced.`,
		Example: o.example(
			"%[1]s fake create --machine /tmp/machine --node node-a --gpus h100-sxm5-80gb:8",
			"%[1]s fake create --machine /tmp/machine --node node-a --gpus 'node-a=a100-sxm4-40gb:2;*=t4:1'",
		),
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.machine == "":
				return usagef("--machine is missing: the folder of the fake machine (or set %s)", machineEnv)
			case node == "":
				return usagef("--node is missing: the node's name (or set %s)", nodeEnv)
			case gpus == "":
				return usagef(`--gpus is missing: for example h100-sxm5-80gb:8, or "none"`)
			}
			list, err := fakegpu.GPUsForNode(gpus, node)
			if err != nil {
				return err
			}
			if library, err = findLibrary(library); err != nil {
				return err
			}
			m, err := fakegpu.Create(o.machine, fakegpu.Spec{Node: node, DriverVersion: version, GPUs: list, Library: library})
			if err != nil {
				return err
			}
			s, err := m.Summary()
			if err != nil {
				return err
			}
			return done(cmd, "fake machine %s in %s: %d GPUs, driver %s", s.Node, m.Dir(), len(s.GPUs), driverOrNone(s.DriverVersion))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&node, "node", environmentDefault(nodeEnv), "Name of the node (environment: "+nodeEnv+").")
	flags.StringVar(&gpus, "gpus", "", "Products with numbers, such as h100-sxm5-80gb:8,l4:2, or a table by node.")
	flags.StringVar(&version, "driver-version", fakegpu.DefaultDriverVersion, `Version of the NVIDIA driver, or "none".`)
	flags.StringVar(&library, "library", environmentDefault(libraryEnv),
		"The machine's NVML library; looked for beside this program if empty (environment: "+libraryEnv+").")
	return cmd
}

// findLibrary is the NVML library at a path or, if that is empty, beside this program:
// in its own folder, as "make build" puts it there, or where an image has it.
func findLibrary(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program (give --library): %w", err)
	}
	folder := filepath.Dir(program)
	candidates := []string{filepath.Join(folder, "libnvidia-ml.so"), filepath.Join(folder, "../lib/apportion/libnvidia-ml.so")}
	for _, candidate := range candidates {
		if _, err := os.Stat(candidate); err == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("no NVML library for fake GPUs is at %s: build it with \"make build\", and name it with --library (or %s)",
		strings.Join(candidates, " or "), libraryEnv)
}

func driverOrNone(version string) string {
	if version == "" {
		return "none"
	}
	return version
}

func (o *fakeOptions) showCommand() *cobra.Command {
	output := newOutputFlag("table", "json", "yaml")
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show the machine's GPUs, their partitions, load and faults",
		Example: o.example("%[1]s fake show --machine /tmp/machine", "%[1]s fake show --machine /tmp/machine -o yaml"),
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := o.open()
			if err != nil {
				return err
			}
			s, err := m.Summary()
			if err != nil {
				return err
			}
			if output.value != "table" {
				return printObject(cmd.OutOrStdout(), output.value, s)
			}
			return printMachine(cmd.OutOrStdout(), s)
		},
	}
	cmd.Flags().VarP(output, "output", "o", "Form of the output.")
	return cmd
}

func (o *fakeOptions) productsCommand() *cobra.Command {
	output := newOutputFlag("table", "json", "yaml")
	cmd := &cobra.Command{
		Use:     "products",
		Short:   "List the GPU products that a machine can have",
		Example: o.example("%[1]s fake products", "%[1]s fake products -o yaml"),
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			products := fakegpu.Products()
			if output.value != "table" {
				return printObject(cmd.OutOrStdout(), output.value, products)
			}
			return printProducts(cmd.OutOrStdout(), products)
		},
	}
	cmd.Flags().VarP(output, "output", "o", "Form of the output.")
	return cmd
}
