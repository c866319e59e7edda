package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/catalog"
	"apportion.dev/apportion/pkg/plan/simulate"
	"apportion.dev/apportion/pkg/plan/simulate/manifests"
	"apportion.dev/apportion/pkg/plan/simulate/report"
	"apportion.dev/apportion/pkg/plan/simulate/typefile"
)

// errNotPlaced is for pods that have no place, which was said on stdout.
var errNotPlaced = errors.New("not everything has a place")

// planFlags are the flags that "simulate" and "explain" have in common.
type planFlags struct {
	kubeconfig    string
	context       string
	namespace     string
	files         []string
	recursive     bool
	instanceTypes []string
	zones         []string
	driverName    string
	driverVersion string
	cudaVersion   string
	migMode       bool
	policy        *outputFlag
	output        *outputFlag

	// connect makes the clients of the cluster that the flags name.
	connect func(kubeconfig, context string) (*clients, error)
}

func newPlanFlags(connect func(kubeconfig, context string) (*clients, error)) planFlags {
	return planFlags{
		connect: connect, output: newOutputFlag("text", "json", "yaml"),
		policy: newOutputFlag(string(allocator.Predict), string(allocator.BestFit)),
	}
}

func (o *planFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of the kubeconfig file (environment: KUBECONFIG).")
	flags.StringVar(&o.context, "context", "", "Context of the kubeconfig file.")
	flags.StringSliceVarP(&o.files, "filename", "f", nil, "File or folder of manifests, - for standard input. May be given several times.")
	flags.BoolVarP(&o.recursive, "recursive", "R", false, "Read the folders in folders, too.")
	flags.StringSliceVar(&o.instanceTypes, "instance-types", nil, `What new nodes may become: names or patterns of the catalog ("p5*"), and files of instance types; all of the catalog by default.`)
	flags.StringSliceVar(&o.zones, "zones", nil, "Zones in which new nodes can be had, for instance types whose zones no file gives.")
	flags.StringVar(&o.driverName, "driver-name", catalog.DefaultDriverName, "Name of the DRA driver of new nodes.")
	flags.StringVar(&o.driverVersion, "driver-version", "", "Version of NVIDIA's driver on new nodes, such as 580.95.05.")
	flags.StringVar(&o.cudaVersion, "cuda-driver-version", "", "CUDA version of that driver, such as 13.0.")
	flags.BoolVar(&o.migMode, "mig-mode", false, "GPUs that need a reset to change their MIG mode (Ampere) are in the mode on new nodes.")
	flags.Var(o.policy, "policy", "How devices are chosen: as kube-scheduler will, or so that least is wasted.")
	flags.VarP(o.output, "output", "o", "Form of the output.")
}

// types are the instance types that the flags and templates among the files name.
func (o *planFlags) types(files *manifests.Objects) ([]*simulate.InstanceType, error) {
	types, err := typefile.Load(o.instanceTypes, typefile.Options{Zones: o.zones, Policy: catalog.Policy{
		DriverName: o.driverName, DriverVersion: o.driverVersion, CUDADriverVersion: o.cudaVersion, MIGMode: o.migMode,
	}})
	if err != nil {
		return nil, usageError{err}
	}
	templates, err := catalog.FromObjects(files.Templates)
	if err != nil {
		return nil, usageError{err}
	}
	return typefile.AddTemplates(types, templates, o.zones), nil
}

// read loads the files.
func (o *planFlags) read(cmd *cobra.Command, known []*schedulingv1.PriorityClass) (*manifests.Objects, error) {
	namespace := o.namespace
	if namespace == "" {
		namespace = "default"
	}
	files, err := manifests.Load(o.files, manifests.Options{
		Stdin: cmd.InOrStdin(), Recursive: o.recursive, Namespace: namespace, PriorityClasses: known,
	})
	if err != nil {
		return nil, usageError{err}
	}
	return files, nil
}

// input puts together files, instance types and, if wanted, what the cluster has.
func (o *planFlags) input(cmd *cobra.Command, cluster bool) (*simulate.Input, []string, error) {
	in := &simulate.Input{}
	var warnings []string
	var priorities []*schedulingv1.PriorityClass
	if cluster {
		c, err := o.connect(o.kubeconfig, o.context)
		if err != nil {
			return nil, nil, err
		}
		state, err := readCluster(cmd.Context(), c)
		if err != nil {
			return nil, nil, err
		}
		in, priorities, warnings = state.input, state.priorities, state.warnings
	}
	files, err := o.read(cmd, priorities)
	if err != nil {
		return nil, nil, err
	}
	if !cluster {
		files.AddClasses(manifests.DriverClasses(o.driverName))
	}
	files.MergeInto(in)
	in.InstanceTypes, err = o.types(files)
	if err != nil {
		return nil, nil, err
	}
	if err := in.Validate(); err != nil {
		return nil, nil, usageError{err}
	}
	return in, append(warnings, files.Warnings()...), nil
}

// simulateOptions are the flags of "simulate".
type simulateOptions struct {
	planFlags
	cluster bool
}

func newSimulateCommand(name string) *cobra.Command { return newSimulateCommandIn(name, connect) }

func newSimulateCommandIn(name string, connect func(kubeconfig, context string) (*clients, error)) *cobra.Command {
	o := &simulateOptions{planFlags: newPlanFlags(connect)}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Plan which nodes pending pods need, and which devices they get",
		Long: `Places the pods of manifests, or those that are pending in a cluster, on nodes that
exist and on new ones, and shows the new nodes: what they may become, the pods on them,
their devices, and what stays unused. For a pod without a place it shows why.

Deployments, StatefulSets, ReplicaSets and Jobs count as the pods that they make. Without
--cluster, the DeviceClasses of the driver need not be among the files.

With policy predict, devices are those that kube-scheduler will choose. With best-fit, pods
go where they leave least, and never need more nodes.

The exit status is 3 if a pod has no place.`,
		Example: lines(
			"# Which nodes would these manifests need?",
			name+" simulate -f manifests/ --instance-types 'p5*,g6*'",
			"# The same with prices, zones and CPUs of instance types in a file",
			name+" simulate -f manifests/ --instance-types types.yaml --policy best-fit",
			"# What does the cluster need for its pending pods, and for this one beside them?",
			name+" simulate --cluster -f pod.yaml",
		),
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error { return harmless(o.run(cmd)) },
	}
	o.add(cmd)
	cmd.Flags().BoolVar(&o.cluster, "cluster", false, "Start from what the cluster has now.")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "Namespace of objects in files that name none (default: default).")
	return cmd
}

func (o *simulateOptions) run(cmd *cobra.Command) error {
	if len(o.files) == 0 && !o.cluster {
		return usagef("nothing to simulate: give manifests with -f, or --cluster")
	}
	in, warnings, err := o.input(cmd, o.cluster)
	if err != nil {
		return err
	}
	plan, err := simulate.Make(cmd.Context(), in, simulate.Options{Policy: allocator.Policy(o.policy.value)})
	if err != nil {
		return err
	}
	if err := warn(cmd.ErrOrStderr(), append(warnings, plan.Warnings...)); err != nil {
		return err
	}
	if o.output.value == "text" {
		err = report.Plan(cmd.OutOrStdout(), plan)
	} else {
		err = printHarmless(cmd.OutOrStdout(), o.output.value, plan)
	}
	if err == nil && plan.Totals.NotPlaced > 0 {
		return errNotPlaced
	}
	return err
}

// warn says on stderr what else there is to know.
func warn(stderr io.Writer, warnings []string) error {
	for _, warning := range warnings {
		if _, err := fmt.Fprintln(stderr, visible(strings.ReplaceAll(warning, "\n", "; "))); err != nil {
			return err
		}
	}
	return nil
}
