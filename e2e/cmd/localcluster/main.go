// Command localcluster starts and stops the local Kubernetes cluster that the
// demo and the end-to-end tests use: no Docker and no registry of images needed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"apportion.dev/apportion/e2e/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "localcluster:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var dir string
	root := &cobra.Command{
		Use:           "localcluster",
		Short:         "A real Kubernetes cluster on this machine, without Docker",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().StringVar(&dir, "dir", cluster.DefaultDir, "folder of the cluster; there can be one cluster in each")
	root.AddCommand(upCommand(&dir), downCommand(&dir), statusCommand(&dir))
	return root
}

func upCommand(dir *string) *cobra.Command {
	var options cluster.Options
	var nodes string
	var driver bool
	up := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or go on with the one that is up",
		Long: `Builds Kubernetes, etcd and containerd (minutes the first time, nothing later),
starts a control plane and the nodes, and installs the driver from this
repository with fake GPUs. Needs root.`,
		Example: `  localcluster up
  localcluster up --nodes node-a=h100-sxm5-80gb:8,node-b=a100-sxm4-40gb:1+t4:1
  localcluster up --driver=false --feature-gates DRAListTypeAttributes=true`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			options.Dir, options.Log = *dir, cmd.ErrOrStderr()
			if nodes != "" {
				if options.Nodes, err = cluster.ParseNodes(nodes); err != nil {
					return err
				}
			}
			return runUp(cmd, options, driver)
		},
	}
	flags := up.Flags()
	flags.StringVar(&nodes, "nodes", "", "nodes with their fake GPUs, such as node-a=h100-sxm5-80gb:2,node-b=t4:1 (default: "+defaultNodes()+")")
	flags.BoolVar(&driver, "driver", true, "install the driver")
	flags.Var(newGates(&options.FeatureGates), "feature-gates", "feature gates of Kubernetes, such as DRAListTypeAttributes=true")
	flags.StringVar(&options.BinDir, "bin-dir", "", "folder in which the built programs are kept (default: e2e/.bin of the repository)")
	flags.StringVar(&options.SourceDir, "source", "", "root of the repository (default: the one around the current folder)")
	return up
}

func runUp(cmd *cobra.Command, options cluster.Options, driver bool) error {
	c, err := cluster.Up(cmd.Context(), options)
	if err != nil {
		return err
	}
	if driver {
		if err := c.InstallDriver(cmd.Context(), nil); err != nil {
			return err
		}
	}
	if err := c.WriteStatus(cmd.Context(), cmd.OutOrStdout()); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), `
Use it:   %s get nodes
or:       export KUBECONFIG=%s
Stop it:  localcluster down
`, c.Kubectl(), c.Kubeconfig())
	return nil
}

func downCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove all it left on this machine but the built programs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cluster.Down(cmd.Context(), *dir, cmd.ErrOrStderr()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "no cluster is up in %s\n", *dir)
			return nil
		},
	}
}

func statusCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the cluster's programs, nodes and published devices",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cluster.Attach(*dir)
			if err == nil {
				err = c.WriteStatus(cmd.Context(), cmd.OutOrStdout())
			}
			if errors.Is(err, os.ErrPermission) {
				err = fmt.Errorf("%w: run it again with sudo", err)
			}
			return err
		},
	}
}
