package main

import (
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/simulate"
	"apportion.dev/apportion/pkg/plan/simulate/report"
)

func newExplainCommand(name string) *cobra.Command { return newExplainCommandIn(name, connect) }

func newExplainCommandIn(name string, connect func(kubeconfig, context string) (*clients, error)) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "explain",
		Short: "Say where something fits, and where not and why",
		Example: lines(
			"# Why is this pod pending?",
			name+" explain pod train-0 -n team-a",
		),
	})
	cmd.AddCommand(newExplainPodCommand(name, connect))
	return cmd
}

// explainOptions are the flags of "explain pod".
type explainOptions struct{ planFlags }

func newExplainPodCommand(name string, connect func(kubeconfig, context string) (*clients, error)) *cobra.Command {
	o := &explainOptions{planFlags: newPlanFlags(connect)}
	cmd := &cobra.Command{
		Use:   "pod NAME",
		Short: "Say where a pending pod fits, and where not and why",
		Long: `Looks at every node of the cluster and at every instance type for one pending pod, and
says whether its claims, and all else that it requests, could be met there now, and if
not, the first thing that is missing. Other pending pods do not count.

The exit status is 0 if the pod fits somewhere and 3 if it fits nowhere.`,
		Example: lines(
			"# Why is this pod pending?",
			name+" explain pod train-0 -n team-a",
			"# Would it fit on a new node of these types?",
			name+" explain pod train-0 -n team-a --instance-types 'p5*'",
		),
		Args: arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error { return harmless(o.run(cmd, args[0])) },
	}
	o.add(cmd)
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "default", "Namespace of the pod.")
	return cmd
}

func (o *explainOptions) run(cmd *cobra.Command, name string) error {
	in, warnings, err := o.input(cmd, true)
	if err != nil {
		return err
	}
	pod, err := o.pod(in.Pods, name)
	if err != nil {
		return err
	}
	explanation, err := simulate.Explain(cmd.Context(), in, pod, simulate.Options{
		Policy: allocator.Policy(o.policy.value), KeepTerminating: true,
	})
	if err != nil {
		return err
	}
	if err := warn(cmd.ErrOrStderr(), append(warnings, explanation.Warnings...)); err != nil {
		return err
	}
	if o.output.value == "text" {
		err = report.Explanation(cmd.OutOrStdout(), explanation)
	} else {
		err = printHarmless(cmd.OutOrStdout(), o.output.value, explanation)
	}
	if err == nil && !explanation.Fits() {
		return errNotPlaced
	}
	return err
}

// pod finds the pod, which must wait for a node.
func (o *explainOptions) pod(pods []*corev1.Pod, name string) (*corev1.Pod, error) {
	for _, pod := range pods {
		if pod.Namespace != o.namespace || pod.Name != name {
			continue
		}
		switch {
		case pod.Spec.NodeName != "":
			return nil, fmt.Errorf("pod %s/%s is not pending: it is on node %s", o.namespace, name, pod.Spec.NodeName)
		case !simulate.Pending(pod):
			return nil, fmt.Errorf("pod %s/%s is not pending: it is finished or being deleted", o.namespace, name)
		}
		return pod, nil
	}
	return nil, fmt.Errorf("there is no pod %q in namespace %s: give its namespace with -n", name, o.namespace)
}
