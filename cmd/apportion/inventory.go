package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// inventoryOptions are the flags of "inventory".
type inventoryOptions struct {
	nvmlLibrary string
	driverRoot  string
	fake        string
	machine     string
	nodeName    string
	driverName  string
	exclude     []string
	output      *outputFlag
}

func newInventoryCommand(name string) *cobra.Command {
	o := &inventoryOptions{output: newOutputFlag("table", "json", "yaml", "slices")}
	cmd := &cobra.Command{
		Use:   "inventory",
		Short: "Show what this node would publish, without a cluster",
		Long: `Reads the GPUs of this machine, or fake ones, and shows the devices that the node
driver would publish. -o json and -o yaml give the facts that were read; -o slices
gives the ResourceSlice objects.`,
		Example: lines(
			"# This machine's GPUs",
			name+" inventory",
			"# The ResourceSlices of a node with eight H100",
			name+" inventory --fake h100-sxm5-80gb:8 --node-name node-a -o slices",
			"# A fake machine, as it is now",
			name+" inventory --machine /var/lib/apportion/fake",
		),
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.nvmlLibrary, "nvml-library", "", "Path of libnvidia-ml.so.1; searched for under --driver-root if empty.")
	flags.StringVar(&o.driverRoot, "driver-root", "/", "Folder under which the NVIDIA driver is installed.")
	flags.StringVar(&o.fake, "fake", "", "Fake GPUs in place of this machine's, such as h100-sxm5-80gb:8.")
	flags.StringVar(&o.machine, "machine", environmentDefault(machineEnv), `Folder of a fake machine made by "fake create" (environment: `+machineEnv+`).`)
	flags.StringVar(&o.nodeName, "node-name", environmentDefault(nodeEnv), "Name of the node (environment: "+nodeEnv+"); that of the fake machine, or the host's, by default.")
	flags.StringVar(&o.driverName, "driver-name", "gpu.apportion.dev", "Name of the DRA driver.")
	flags.StringSliceVar(&o.exclude, "exclude-devices", nil, "GPUs that are not published: UUIDs, PCI addresses or product names, separated by commas.")
	flags.VarP(o.output, "output", "o", "Form of the output.")
	return cmd
}

// complete checks the flags and fills in what they leave open.
func (o *inventoryOptions) complete(cmd *cobra.Command) error {
	// A source that was asked for wins over the environment's machine.
	if !cmd.Flags().Changed("machine") && (o.fake != "" || o.nvmlLibrary != "") {
		o.machine = ""
	}
	sources := 0
	for _, source := range []string{o.fake, o.machine, o.nvmlLibrary} {
		if source != "" {
			sources++
		}
	}
	if sources > 1 {
		return usagef("give only one of --fake, --machine and --nvml-library")
	}
	if o.nodeName == "" && o.machine == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find this host's name (give --node-name): %w", err)
		}
		o.nodeName = strings.ToLower(host)
	}
	return nil
}

func (o *inventoryOptions) run(cmd *cobra.Command) (err error) {
	if err := o.complete(cmd); err != nil {
		return err
	}
	policy := devicemodel.Policy{Exclude: o.exclude}
	if err := policy.Validate(); err != nil {
		return usageError{err}
	}
	library, sysfs, cleanup, err := o.hardware()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanup()) }()
	node, err := read(cmd.Context(), library, sysfs)
	if err != nil {
		return err
	}
	if node.Problem != "" {
		return errors.New(node.Problem)
	}
	model := devicemodel.Build(node, policy)
	switch o.output.value {
	case "table":
		return printInventory(cmd.OutOrStdout(), o.nodeName, node, model)
	case "slices":
		return o.printSlices(cmd, model)
	}
	return printObject(cmd.OutOrStdout(), o.output.value, node)
}

// hardware gives the NVML and sysfs that the flags name, and what cleans up.
func (o *inventoryOptions) hardware() (nvml.Interface, fs.ReadLinkFS, func() error, error) {
	nothing := func() error { return nil }
	switch {
	case o.fake != "":
		return o.temporaryMachine()
	case o.machine != "":
		m, err := fakegpu.Open(o.machine)
		if err != nil {
			return nil, nil, nil, err
		}
		return m.NVML(), m.SysFS(), nothing, o.takeNodeName(m)
	}
	if o.nvmlLibrary != "" {
		if _, err := os.Stat(o.nvmlLibrary); err != nil {
			return nil, nil, nil, usagef("--nvml-library: %w", err)
		}
	}
	return inventory.OpenLibrary(o.nvmlLibrary, o.driverRoot), inventory.SysFS(o.driverRoot), nothing, nil
}

// takeNodeName names the node as the fake machine does, unless a flag does.
func (o *inventoryOptions) takeNodeName(m *fakegpu.Machine) error {
	if o.nodeName != "" {
		return nil
	}
	s, err := m.Summary()
	if err != nil {
		return err
	}
	o.nodeName = s.Node
	return nil
}

// temporaryMachine makes the machine of --fake in a folder that is removed at the
// end.
func (o *inventoryOptions) temporaryMachine() (nvml.Interface, fs.ReadLinkFS, func() error, error) {
	gpus, err := fakegpu.GPUsForNode(o.fake, o.nodeName)
	if err != nil {
		return nil, nil, nil, err
	}
	dir, err := os.MkdirTemp("", "apportion-inventory-")
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a fake machine: %w", err)
	}
	remove := func() error { return os.RemoveAll(dir) }
	m, err := fakegpu.Create(dir, fakegpu.Spec{Node: o.nodeName, GPUs: gpus})
	if err != nil {
		return nil, nil, nil, errors.Join(err, remove())
	}
	return m.NVML(), m.SysFS(), remove, nil
}

// read reads the node once.
func read(ctx context.Context, library nvml.Interface, sysfs fs.ReadLinkFS) (node inventory.Node, err error) {
	source := inventory.NewNVML(inventory.Options{Library: library, SysFS: sysfs})
	defer func() { err = errors.Join(err, source.Close()) }()
	return source.Snapshot(ctx)
}

// printSlices prints the ResourceSlices as the node driver would write them.
func (o *inventoryOptions) printSlices(cmd *cobra.Command, model *devicemodel.Model) error {
	slices := model.Slices()
	objects := make([]resourceapi.ResourceSlice, 0, len(slices))
	for i, slice := range slices {
		objects = append(objects, resourceapi.ResourceSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
			// The API server adds a random suffix.
			ObjectMeta: metav1.ObjectMeta{GenerateName: fmt.Sprintf("%05x-%s-%s-", i, o.driverName, o.nodeName)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: o.driverName,
				Pool: resourceapi.ResourcePool{
					Name: o.nodeName, Generation: 1, ResourceSliceCount: int64(len(slices)),
				},
				NodeName:       &o.nodeName,
				Devices:        slice.Devices,
				SharedCounters: slice.SharedCounters,
			},
		})
	}
	return printDocuments(cmd.OutOrStdout(), objects)
}
