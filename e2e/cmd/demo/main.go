// Command demo shows the driver at work: it starts a cluster with fake GPUs,
// installs the driver, runs the manifests of the demo folder, and prints who has
// which GPU and what each pod sees of it.
//
//	go run ./cmd/demo up
//	go run ./cmd/demo up --cluster kind
//	go run ./cmd/demo down
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: demo up|down [--cluster local|kind]

  up     start the cluster, install the driver, run the demo's pods
  down   stop the cluster and remove all it made

Example:
  demo up --cluster local
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, "demo: ", err, "\n\n", usage)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// The fake GPUs of the demo's nodes: enough for all manifests at once, whichever
// GPUs those take that would do with any. Some want one that can be partitioned
// without a reset (Hopper), and some a driver that can limit memory (R615).
const (
	firstNodeGPUs = "h100-sxm5-80gb:8"
	otherNodeGPUs = "h100-sxm5-80gb:4,a100-sxm4-40gb:2"
	driverVersion = "615.43.02"
)

var errUsage = errors.New("wrong usage")

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	kind := flags.String("cluster", "local", "local or kind")
	if err := flags.Parse(args[1:]); err != nil || flags.NArg() > 0 {
		return errUsage
	}
	var b backend
	switch *kind {
	case "local":
		b = &localCluster{}
	case "kind":
		b = &kindCluster{}
	default:
		return fmt.Errorf("%w: --cluster %q is unknown, choose local or kind", errUsage, *kind)
	}
	switch args[0] {
	case "up":
		return up(ctx, b)
	case "down":
		return b.down(ctx)
	}
	return fmt.Errorf("%w: %q is unknown", errUsage, args[0])
}

// backend is a kind of cluster.
type backend interface {
	// up starts the cluster with the driver on it.
	up(ctx context.Context) error
	down(ctx context.Context) error
	// kubectl runs kubectl with input on the cluster and returns what it printed.
	kubectl(ctx context.Context, input []byte, args ...string) ([]byte, error)
	// howToCall is what a user types for kubectl on this cluster.
	howToCall() string
}
