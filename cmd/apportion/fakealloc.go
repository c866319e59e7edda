package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/node/memlimit"
)

// errOutOfMemory ends the program with its own exit status.
var errOutOfMemory = errors.New("out of memory")

func (o *fakeOptions) allocateCommand() *cobra.Command {
	p := allocateProbe{dev: "/dev", root: os.DirFS("/")}
	checkDevice := true
	cmd := o.addGPUFlag(&cobra.Command{
		Use:   "allocate SIZE...",
		Short: "Allocate GPU memory, and compute, as a program in a container does",
		Long: `Allocates amounts of the GPU's memory one after the other, for the cgroup that the
command runs in, and frees them at its end. It ends with exit status 3 at the first
amount that is refused: because of the cgroup's limit, or because the GPU is full. In
a container it needs the machine's folder, writable, and the GPU's device node.
--gpu may also be the UUID of a MIG device, or "visible": the first GPU or MIG device
whose device nodes are in /dev. With --sm-percent it keeps the device busy as long as
it runs, for which no SIZE is needed.`,
		Example: o.example(
			"%[1]s fake allocate --gpu 0 9Gi 2Gi",
			"%[1]s fake allocate --gpu visible --sm-percent 40 --hold 9Gi",
		),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && p.smPercent == 0 {
				return usagef("SIZE is missing: an amount of memory such as 9Gi")
			}
			if p.smPercent > 100 {
				return usagef("--sm-percent is at most 100, not %d", p.smPercent)
			}
			m, err := o.openGPU()
			if err != nil {
				return err
			}
			if !checkDevice {
				p.dev = ""
			}
			return p.run(cmd.Context(), cmd.OutOrStdout(), m, o.gpu, args)
		},
	})
	cmd.Flags().BoolVar(&checkDevice, "device-check", checkDevice, "Refuse to run where the GPU's device node is not in /dev, as CUDA does.")
	cmd.Flags().BoolVar(&p.hold, "hold", false, "Keep what was allocated until the program is told to end.")
	cmd.Flags().Uint32Var(&p.smPercent, "sm-percent", 0, "Keep the multiprocessors busy for this part of the time.")
	return cmd
}

// allocateProbe is a program that allocates memory, and where it runs.
type allocateProbe struct {
	// dev is the folder with device nodes, empty not to look for the GPU's.
	dev string
	// root is the root folder, in which the program's cgroup is found.
	root fs.FS
	hold bool
	// smPercent is the part of the time for which it keeps the multiprocessors busy.
	smPercent uint32
}

// visibleGPU stands for the first device whose nodes are there.
const visibleGPU = "visible"

// device is the device that is meant, after a look at its nodes.
func (p allocateProbe) device(m *fakegpu.Machine, gpu string) (string, error) {
	if gpu != visibleGPU {
		if p.dev == "" {
			return gpu, nil
		}
		return gpu, m.CheckDeviceNode(p.dev, gpu)
	}
	if p.dev == "" {
		return "", usagef("--gpu %s needs the device check", visibleGPU)
	}
	devices, err := m.VisibleDevices(p.dev)
	if err != nil {
		return "", err
	}
	if len(devices) == 0 {
		return "", fmt.Errorf("no device: no nodes of a GPU or MIG device are in %s", p.dev)
	}
	return devices[0], nil
}

func (p allocateProbe) run(ctx context.Context, out io.Writer, m *fakegpu.Machine, gpu string, sizes []string) (err error) {
	amounts, err := amountsOf(sizes)
	if err != nil {
		return err
	}
	if gpu, err = p.device(m, gpu); err != nil {
		return err
	}
	cgroup, err := memlimit.Of(p.root, "self")
	if err != nil {
		return err
	}
	// From here on a signal must not end the program before it has freed all.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	allocator, err := m.NewAllocator(gpu, cgroup)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := allocator.Close(); closeErr != nil && errors.Is(err, errOutOfMemory) {
			err = closeErr // That there was no memory is on stdout.
		} else {
			err = errors.Join(err, closeErr)
		}
	}()
	if p.smPercent > 0 {
		if err := allocator.Work(p.smPercent); err != nil {
			return err
		}
	}
	for i, bytes := range amounts {
		err := allocator.Allocate(bytes)
		var noMemory *fakegpu.OutOfMemoryError
		if errors.As(err, &noMemory) {
			_, printErr := fmt.Fprintln(out, noMemory.Text(sizeOf))
			return errors.Join(errOutOfMemory, printErr)
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "allocated %s\n", sizes[i]); err != nil {
			return err
		}
	}
	if p.hold {
		<-ctx.Done()
	}
	return nil
}

// amountsOf gives bytes for sizes such as 9Gi.
func amountsOf(sizes []string) ([]uint64, error) {
	var amounts []uint64
	for _, size := range sizes {
		q, err := resource.ParseQuantity(size)
		if err != nil || q.Value() <= 0 {
			return nil, usagef("%q is no amount of memory: write it as in 9Gi", size)
		}
		amounts = append(amounts, uint64(q.Value()))
	}
	return amounts, nil
}

// sizeOf writes bytes as people give them: 9Gi.
func sizeOf(bytes uint64) string {
	return resource.NewQuantity(int64(min(bytes, math.MaxInt64)), resource.BinarySI).String()
}
