// Command apportion is for people at a terminal: what a node would publish, and
// fake GPUs to try things with. Installed as kubectl-apportion it is a plugin of
// kubectl.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
