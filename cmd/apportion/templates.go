package main

import (
	"fmt"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/plan/catalog"
)

// templatesOptions are the flags of "templates".
type templatesOptions struct {
	instanceTypes             []string
	typeFiles                 []string
	policy                    catalog.Policy
	noEnforcement             bool
	minMemory, reservedMemory string
	output                    *outputFlag
}

func newTemplatesCommand(name string) *cobra.Command {
	o := &templatesOptions{output: newOutputFlag("table", "json", "yaml")}
	cmd := &cobra.Command{
		Use:   "templates",
		Short: "Show what nodes of an instance type will publish, before there is one",
		Long: `Lists the instance types that are known or, with --instance-type, prints the ResourceSlices
that nodes of a type will publish, without what only the running node knows: names of
devices are placeholders (gpu-00000000 is the first GPU), and UUIDs, PCI addresses, PCIe
roots and NUMA nodes are absent. The annotation ` + catalog.BindingsAnnotation + ` says
which devices will have equal ones.

The slices are not for an API server. "simulate" reads them.`,
		Example: lines(
			"# Which instance types are known?",
			name+" templates",
			"# What will a p5.48xlarge publish?",
			name+" templates --instance-type p5.48xlarge --driver-version 580.95.05 --cuda-driver-version 13.0 -o yaml",
			"# And one of my own?",
			name+" templates --types my-types.yaml --instance-type dgx-h100",
		),
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.instanceTypes, "instance-type", nil, "Names of instance types to show, separated by commas; all are listed if empty.")
	flags.StringSliceVar(&o.typeFiles, "types", nil, "Files of more instance types. One with the name of a known type takes its place.")
	flags.StringVar(&o.policy.DriverName, "driver-name", catalog.DefaultDriverName, "Name of the DRA driver.")
	flags.StringVar(&o.policy.DriverVersion, "driver-version", "", "Version of the NVIDIA driver on the nodes, such as 580.95.05; devices say nothing of it if empty.")
	flags.StringVar(&o.policy.CUDADriverVersion, "cuda-driver-version", "", "CUDA version of that driver, such as 13.0; devices say nothing of it if empty.")
	flags.BoolVar(&o.policy.MIGMode, "mig-mode", false, "GPUs that need a reset to change their MIG mode (Ampere) are in the mode: they are offered in partitions instead of whole.")
	flags.BoolVar(&o.policy.Devices.NoPartitions, "no-partitions", false, "The node driver offers no MIG partitions on demand.")
	flags.BoolVar(&o.policy.Devices.NoShares, "no-shares", false, "The node driver offers no shares.")
	flags.BoolVar(&o.noEnforcement, "no-memory-enforcement", false, "The nodes have cgroups of version 1, so that the memory of shares is not limited.")
	flags.IntVar(&o.policy.Devices.Sharing.MaxShares, "sharing-max-shares", 0, "The node driver's setting of that name.")
	flags.StringVar(&o.minMemory, "sharing-min-memory", "", "The node driver's setting of that name.")
	flags.StringVar(&o.reservedMemory, "sharing-reserved-memory", "", "The node driver's setting of that name.")
	flags.VarP(o.output, "output", "o", "Form of the output; that of slices is yaml by default.")
	return cmd
}

func (o *templatesOptions) run(cmd *cobra.Command) error {
	types, err := o.types()
	if err != nil {
		return err
	}
	if len(o.instanceTypes) == 0 {
		return o.list(cmd, types)
	}
	if o.output.value == "table" {
		if cmd.Flags().Changed("output") {
			return usagef("-o table is for the list of instance types; slices are yaml or json")
		}
		o.output.value = "yaml"
	}
	if err := o.completePolicy(); err != nil {
		return err
	}
	var objects []*resourceapi.ResourceSlice
	for _, name := range o.instanceTypes {
		more, err := o.slices(types, name)
		if err != nil {
			return usageError{err}
		}
		objects = append(objects, more...)
	}
	return o.print(cmd, objects)
}

// types are all that are known, with those of files.
func (o *templatesOptions) types() ([]catalog.InstanceType, error) {
	types := catalog.Types()
	for _, path := range o.typeFiles {
		own, err := catalog.LoadFile(path)
		if err != nil {
			return nil, usageError{err}
		}
		types = catalog.Merge(types, own)
	}
	return types, nil
}

func (o *templatesOptions) completePolicy() error {
	devices := &o.policy.Devices
	if o.noEnforcement {
		devices.MemoryEnforcement = devicemodel.MemoryEnforcementNone
	}
	var err error
	if devices.Sharing.MinMemory, err = memoryFlag("--sharing-min-memory", o.minMemory); err != nil {
		return err
	}
	devices.Sharing.ReservedMemory, err = memoryFlag("--sharing-reserved-memory", o.reservedMemory)
	return err
}

func memoryFlag(name, value string) (int64, error) {
	if value == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return 0, usagef("%s %q is no amount of memory; write it as in 2Gi", name, value)
	}
	return q.Value(), nil
}

// slices are those of one instance type.
func (o *templatesOptions) slices(types []catalog.InstanceType, name string) ([]*resourceapi.ResourceSlice, error) {
	t, err := catalog.Find(types, name)
	if err != nil {
		return nil, fmt.Errorf("%w (--types)", err)
	}
	templates, err := catalog.Templates(t, o.policy)
	if err != nil {
		return nil, err
	}
	var objects []*resourceapi.ResourceSlice
	for _, template := range templates {
		more, err := catalog.Objects(t.Name, template)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// print prints slices: as documents of YAML, or as a list in JSON, which has no
// documents.
func (o *templatesOptions) print(cmd *cobra.Command, objects []*resourceapi.ResourceSlice) error {
	out := cmd.OutOrStdout()
	if o.output.value == "json" {
		list := struct {
			metav1.TypeMeta `json:",inline"`
			Items           []*resourceapi.ResourceSlice `json:"items"`
		}{metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, objects}
		return printObject(out, "json", list)
	}
	return printDocuments(out, objects)
}
