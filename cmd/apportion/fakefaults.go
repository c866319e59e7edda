package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

func (o *fakeOptions) addCommand() *cobra.Command {
	slot := -1
	cmd := &cobra.Command{
		Use:   "add-gpu [PRODUCT]",
		Short: "Plug a GPU in",
		Long: `Plugs a GPU into the first free slot, or into --slot. Without a product the GPU that
was last in that slot comes back.`,
		Example: o.example("%[1]s fake add-gpu h100-sxm5-80gb", "%[1]s fake add-gpu --slot 3"),
		Args:    optionalArguments(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := o.open()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("slot") && slot < 0 {
				return usagef("--slot %d: slots are 0 to %d", slot, fakegpu.MaxGPUs-1)
			}
			uuid, err := m.AddGPU(strings.Join(args, ""), slot)
			if err != nil {
				return err
			}
			return done(cmd, "added %s", uuid)
		},
	}
	cmd.Flags().IntVar(&slot, "slot", slot, "The slot, 0 to 15; the first free one by default.")
	return cmd
}

// gpuCommand is a command that does one thing to one GPU.
func (o *fakeOptions) gpuCommand(use, short, long, word string, do func(*fakegpu.Machine, string) error) *cobra.Command {
	return o.addGPUFlag(&cobra.Command{
		Use:     use,
		Short:   short,
		Long:    long,
		Example: o.example("%[1]s fake " + use + " --gpu 0"),
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := o.openGPU()
			if err != nil {
				return err
			}
			if err := do(m, o.gpu); err != nil {
				return err
			}
			return done(cmd, "GPU %s %s", o.gpu, word)
		},
	})
}

func (o *fakeOptions) removeCommand() *cobra.Command {
	return o.gpuCommand("remove-gpu", "Pull a GPU out",
		`Pulls a GPU out of the machine, with its partitions. "add-gpu" puts it back.`,
		"removed", (*fakegpu.Machine).RemoveGPU)
}

func (o *fakeOptions) loseCommand() *cobra.Command {
	return o.gpuCommand("lose-gpu", "Let a GPU fall off the bus",
		`The GPU is still counted, but every call on it fails with "GPU is lost". XID 79 is
raised. "restore-gpu" brings it back.`,
		"lost", (*fakegpu.Machine).LoseGPU)
}

func (o *fakeOptions) restoreCommand() *cobra.Command {
	return o.gpuCommand("restore-gpu", "Bring a lost GPU back",
		"Brings back a GPU that was lost, as it was before.",
		"restored", (*fakegpu.Machine).RestoreGPU)
}

func (o *fakeOptions) resetCommand() *cobra.Command {
	return o.gpuCommand("reset-gpu", "Reset a GPU",
		`Resets a GPU that no process uses: a lost one comes back, a pending MIG mode is
applied, and partitions are gone.`,
		"reset", (*fakegpu.Machine).ResetGPU)
}

func (o *fakeOptions) failCommand() *cobra.Command {
	code := fakegpu.DefaultFailure
	cmd := o.addGPUFlag(&cobra.Command{
		Use:   "fail PROPERTY",
		Short: "Let one property of a GPU fail",
		Long: `The calls that read the property return an error, all others work. Properties are:
` + wrap(fakegpu.Properties()) + `
Codes are:
` + wrap(fakegpu.FailureCodes()),
		Example: o.example("%[1]s fake fail memory --gpu 2", "%[1]s fake fail mig-create --gpu 2 --code in-use"),
		Args:    arguments("PROPERTY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := o.openGPU()
			if err != nil {
				return err
			}
			if err := m.Fail(o.gpu, args[0], code); err != nil {
				return err
			}
			return done(cmd, "%s of GPU %s fails (%s)", args[0], o.gpu, code)
		},
	})
	cmd.Flags().StringVar(&code, "code", code, "What the calls return.")
	return cmd
}

// wrap writes words as a list of indented lines.
func wrap(words []string) string {
	const width = 80
	var text strings.Builder
	line := " "
	for i, word := range words {
		if i < len(words)-1 {
			word += ","
		}
		if len(line)+1+len(word) > width {
			text.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	return text.String() + line
}

func (o *fakeOptions) healCommand() *cobra.Command {
	return o.addGPUFlag(&cobra.Command{
		Use:     "heal [PROPERTY]",
		Short:   "End the failure of a property of a GPU, or of all",
		Example: o.example("%[1]s fake heal memory --gpu 2", "%[1]s fake heal --gpu 2"),
		Args:    optionalArguments(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := o.openGPU()
			if err != nil {
				return err
			}
			property := strings.Join(args, "")
			if err := m.Heal(o.gpu, property); err != nil {
				return err
			}
			if property == "" {
				property = "everything"
			}
			return done(cmd, "%s of GPU %s works", property, o.gpu)
		},
	})
}

func (o *fakeOptions) xidCommand() *cobra.Command {
	instance := -1
	cmd := o.addGPUFlag(&cobra.Command{
		Use:     "xid NUMBER",
		Short:   "Raise an XID error on a GPU, or in one of its GPU instances",
		Long:    "Raises an XID. Whoever waits for NVML's events, in any process, is woken.",
		Example: o.example("%[1]s fake xid 48 --gpu 1"),
		Args:    arguments("NUMBER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := o.openGPU()
			if err != nil {
				return err
			}
			xid, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil {
				return usagef("%q is no XID: give a number", args[0])
			}
			if instance < 0 {
				if err := m.RaiseXID(o.gpu, xid); err != nil {
					return err
				}
				return done(cmd, "XID %d on GPU %s", xid, o.gpu)
			}
			if err := m.RaiseInstanceXID(o.gpu, xid, instance); err != nil {
				return err
			}
			return done(cmd, "XID %d in GPU instance %d of GPU %s", xid, instance, o.gpu)
		},
	})
	cmd.Flags().IntVar(&instance, "gpu-instance", instance, "Id of the GPU instance in which it is raised; -1 for the whole GPU.")
	return cmd
}

func (o *fakeOptions) driverVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "driver-version VERSION",
		Short: "Install another NVIDIA driver, or none",
		Long: `Installs another version of the driver: the libraries and nvidia-smi in the driver
root follow. "none" unloads the driver.`,
		Example: o.example("%[1]s fake driver-version 570.124.06", "%[1]s fake driver-version none"),
		Args:    arguments("VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := o.open()
			if err != nil {
				return err
			}
			if err := m.SetDriverVersion(args[0]); err != nil {
				return err
			}
			return done(cmd, "driver %s", args[0])
		},
	}
}

func (o *fakeOptions) symbolsCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "symbols",
		Short:   "Hide functions of the NVML library, as if it were older",
		Example: o.example("%[1]s fake symbols hide nvmlDeviceGetMigMode", "%[1]s fake symbols show"),
	})
	change := func(use, short, example string, most int, do func(*fakegpu.Machine, ...string) error) *cobra.Command {
		return &cobra.Command{
			Use:     use,
			Short:   short,
			Example: o.example(example),
			Args:    optionalArguments(most),
			RunE: func(cmd *cobra.Command, args []string) error {
				m, err := o.open()
				if err != nil {
					return err
				}
				if err := do(m, args...); err != nil {
					return err
				}
				s, err := m.Summary()
				if err != nil {
					return err
				}
				return done(cmd, "missing functions: %s", orDash(strings.Join(s.MissingSymbols, ", ")))
			},
		}
	}
	const many = 100
	hide := change("hide FUNCTION...", "Take functions out of the library",
		"%[1]s fake symbols hide nvmlDeviceGetMigMode", many, (*fakegpu.Machine).HideSymbols)
	allowed := hide.Args
	hide.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("FUNCTION is missing")
		}
		return allowed(cmd, args)
	}
	show := change("show [FUNCTION...]", "Put functions back; all if none is named",
		"%[1]s fake symbols show", many, (*fakegpu.Machine).ShowSymbols)
	cmd.AddCommand(hide, show)
	return cmd
}
