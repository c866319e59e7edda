package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/fakegpu"
	"apportion.dev/apportion/pkg/memlimit"
)

// errOutOfMemory ends the program with its own exit status.
var errOutOfMemory = errors.New("out of memory")

func (o *fakeOptions) allocateCommand() *cobra.Command {
	hold := false
	cmd := o.addGPUFlag(&cobra.Command{
		Use:   "allocate SIZE...",
		Short: "Allocate GPU memory as a program in a container does",
		Long: `Allocates amounts of the GPU's memory one after the other, for the cgroup that the
command runs in, and frees them at its end. It ends with exit status 3 at the first
amount that is refused: because of the cgroup's limit, or because the GPU is full. In
a container it needs the machine's folder and the GPU's device node.`,
		Example: o.example("%[1]s fake allocate --gpu 0 9Gi 2Gi"),
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := o.openGPU()
			if err != nil {
				return err
			}
			return allocate(cmd, m, o.gpu, args, hold)
		},
	})
	cmd.Flags().BoolVar(&hold, "hold", false, "Keep what was allocated until the program is told to end.")
	return cmd
}

func allocate(cmd *cobra.Command, m *fakegpu.Machine, gpu string, sizes []string, hold bool) (err error) {
	var amounts []uint64
	for _, size := range sizes {
		q, err := resource.ParseQuantity(size)
		if err != nil || q.Value() <= 0 {
			return usagef("%q is no amount of memory: write it as in 9Gi", size)
		}
		amounts = append(amounts, uint64(q.Value()))
	}
	if err := m.CheckDeviceNode(gpu); err != nil {
		return err
	}
	cgroup, err := memlimit.Cgroups{Root: os.DirFS("/")}.Name("self")
	if err != nil {
		return err
	}
	allocator, err := m.NewAllocator(gpu, cgroup)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, allocator.Close()) }()
	for i, bytes := range amounts {
		err := allocator.Allocate(bytes)
		if errors.Is(err, fakegpu.ErrOutOfMemory) {
			fmt.Fprintf(cmd.OutOrStdout(), "%v\n", err)
			return errOutOfMemory
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "allocated %s\n", sizes[i])
	}
	if hold {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		<-ctx.Done()
	}
	return nil
}
