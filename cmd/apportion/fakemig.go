package main

import (
	"github.com/spf13/cobra"
)

func (o *fakeOptions) migCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "mig",
		Short: "Partition a GPU as an administrator does by hand",
		Example: o.example(
			"%[1]s fake mig create 1g.10gb --gpu 0",
			"%[1]s fake mig destroy all --gpu 0",
			"%[1]s fake mig mode off --gpu 0",
		),
	})
	cmd.AddCommand(o.migModeCommand(), o.migCreateCommand(), o.migDestroyCommand())
	return cmd
}

func (o *fakeOptions) migModeCommand() *cobra.Command {
	return o.addGPUFlag(&cobra.Command{
		Use:   "mode on|off",
		Short: "Turn the MIG mode of a GPU on or off",
		Long: `Turns the MIG mode on or off. On a product that must be reset for it, the mode stays
pending while processes use the GPU, until "reset-gpu".`,
		Example: o.example("%[1]s fake mig mode on --gpu 0"),
		Args:    arguments("on or off"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "on" && args[0] != "off" {
				return usagef("unknown mode %q; known are: on, off", args[0])
			}
			m, err := o.openGPU()
			if err != nil {
				return err
			}
			if err := m.SetMIGMode(o.gpu, args[0] == "on"); err != nil {
				return err
			}
			return done(cmd, "MIG mode of GPU %s: %s", o.gpu, args[0])
		},
	})
}

func (o *fakeOptions) migCreateCommand() *cobra.Command {
	start := -1
	cmd := o.addGPUFlag(&cobra.Command{
		Use:   "create PROFILE",
		Short: "Make a partition; the MIG mode is turned on if it is off",
		Long: `Makes a GPU instance with one compute instance that fills it, under the placement
rules of the product. "apportion fake products" lists the profiles.`,
		Example: o.example("%[1]s fake mig create 1g.10gb --gpu 0", "%[1]s fake mig create 3g.40gb --gpu 0 --start 4"),
		Args:    arguments("PROFILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := o.openGPU()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("start") && start < 0 {
				return usagef("--start %d: give the number of a memory slice", start)
			}
			uuid, err := m.CreateMIG(o.gpu, args[0], start)
			if err != nil {
				return err
			}
			return done(cmd, "made %s", uuid)
		},
	})
	cmd.Flags().IntVar(&start, "start", start, "First memory slice; the last place where it fits by default.")
	return cmd
}

func (o *fakeOptions) migDestroyCommand() *cobra.Command {
	return o.addGPUFlag(&cobra.Command{
		Use:   "destroy PARTITION",
		Short: "Remove a partition, or all of a GPU",
		Long: `Removes a partition, named by the UUID of its MIG device, or by the id of its GPU
instance with --gpu. "all" with --gpu removes all.`,
		Example: o.example("%[1]s fake mig destroy MIG-1c7dbb0e-9bb2-5a68-8a0d-2a1f2b6f6a0e", "%[1]s fake mig destroy all --gpu 0"),
		Args:    arguments("PARTITION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := o.open()
			if err != nil {
				return err
			}
			if err := m.DestroyMIG(o.gpu, args[0]); err != nil {
				return err
			}
			return done(cmd, "destroyed %s", args[0])
		},
	})
}
