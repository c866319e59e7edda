package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// loadFlags are the flags of "fake set".
type loadFlags struct {
	idle              bool
	utilization       uint32
	memoryUtilization uint32
	memoryUsed        string
	processes         []string
}

func (o *fakeOptions) setCommand() *cobra.Command {
	var f loadFlags
	cmd := o.addGPUFlag(&cobra.Command{
		Use:   "set",
		Short: "Set utilization, memory in use and processes of a GPU",
		Long: `Sets what runs on a GPU; what is not named stays as it is. --process may be given
several times, and then names all processes; its fields are pid, memory, type (compute
or graphics), mig (UUID of a MIG device) and name.`,
		Example: o.example(
			"%[1]s fake set --gpu 0 --utilization 80 --memory-used 20Gi",
			"%[1]s fake set --gpu 0 --process pid=4711,memory=10Gi,name=train",
			"%[1]s fake set --gpu 0 --idle",
		),
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := o.openGPU()
			if err != nil {
				return err
			}
			changes, err := f.changes(cmd)
			if err != nil {
				return err
			}
			err = m.UpdateLoad(o.gpu, func(l *fakegpu.Load) error {
				for _, change := range changes {
					change(l)
				}
				return nil
			})
			if err != nil {
				return err
			}
			return done(cmd, "load of GPU %s set", o.gpu)
		},
	})
	flags := cmd.Flags()
	flags.BoolVar(&f.idle, "idle", false, "Nothing runs: what other flags say comes after that.")
	flags.Uint32Var(&f.utilization, "utilization", 0, "Utilization of the GPU in percent.")
	flags.Uint32Var(&f.memoryUtilization, "memory-utilization", 0, "Utilization of its memory controller in percent.")
	flags.StringVar(&f.memoryUsed, "memory-used", "", "Memory in use, such as 20Gi.")
	flags.StringArrayVar(&f.processes, "process", nil, "A process: pid=NUMBER[,memory=AMOUNT][,type=compute|graphics][,mig=UUID][,name=NAME].")
	return cmd
}

// changes are what the flags that were given do to a load.
func (f *loadFlags) changes(cmd *cobra.Command) ([]func(*fakegpu.Load), error) {
	var changes []func(*fakegpu.Load)
	if f.idle {
		changes = append(changes, func(l *fakegpu.Load) { *l = fakegpu.Load{} })
	}
	if cmd.Flags().Changed("utilization") {
		changes = append(changes, func(l *fakegpu.Load) { l.GPUPercent = f.utilization })
	}
	if cmd.Flags().Changed("memory-utilization") {
		changes = append(changes, func(l *fakegpu.Load) { l.MemoryPercent = f.memoryUtilization })
	}
	if f.memoryUsed != "" {
		bytes, err := parseBytes(f.memoryUsed)
		if err != nil {
			return nil, usagef("--memory-used: %w", err)
		}
		changes = append(changes, func(l *fakegpu.Load) { l.MemoryBytes = bytes })
	}
	if len(f.processes) > 0 {
		processes, err := parseProcesses(f.processes)
		if err != nil {
			return nil, err
		}
		changes = append(changes, func(l *fakegpu.Load) { l.Processes = processes })
	}
	if len(changes) == 0 {
		return nil, usagef("nothing to set: give --utilization, --memory-utilization, --memory-used, --process or --idle")
	}
	return changes, nil
}

func parseBytes(text string) (uint64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return 0, usagef("%q is no amount of memory: write it as in 20Gi", text)
	}
	return uint64(q.Value()), nil
}

func parseProcesses(texts []string) ([]fakegpu.Process, error) {
	var processes []fakegpu.Process
	for _, text := range texts {
		p, err := parseProcess(text)
		if err != nil {
			return nil, usagef("--process %q: %w", text, err)
		}
		processes = append(processes, p)
	}
	return processes, nil
}

func parseProcess(text string) (fakegpu.Process, error) {
	var p fakegpu.Process
	for field := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "pid":
			pid, err := strconv.ParseUint(value, 10, 32)
			if err != nil || pid == 0 {
				return p, usagef("%q is no process id", value)
			}
			p.PID = uint32(pid)
		case "memory":
			bytes, err := parseBytes(value)
			if err != nil {
				return p, err
			}
			p.MemoryBytes = bytes
		case "type":
			if value != "compute" && value != "graphics" {
				return p, usagef("unknown type %q; known are: compute, graphics", value)
			}
			p.Graphics = value == "graphics"
		case "mig":
			p.MIGDevice = value
		case "name":
			p.Name = value
		default:
			return p, usagef("unknown field %q; known are: pid, memory, type, mig, name", key)
		}
	}
	if p.PID == 0 {
		return p, usagef("pid is missing")
	}
	return p, nil
}
