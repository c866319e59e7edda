// Package report shows who holds which GPUs of a cluster or a node: as a table, as sums,
// and as JSON or YAML, once or whenever it changes.
//
// It reads the API server or a node's ownership service through clients that it is given.
// It knows no flags, and what a terminal is it is told.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"apportion.dev/apportion/internal/display"
	"apportion.dev/apportion/pkg/ownership"
)

// Options say what is shown, and how.
type Options struct {
	// Driver is the DRA driver's name.
	Driver string
	// Namespace, Node, Pod and GPU limit what is shown; empty for all. Pod is a name or
	// NAMESPACE/NAME with the namespace of Namespace, GPU a UUID or a device's name.
	Namespace, Node, Pod, GPU string
	// By is what to sum up by, empty for no sums; Output is the form.
	By, Output string
	// Program is what the program is called, for hints.
	Program string
	// Now is the time from which ages are counted.
	Now func() time.Time
	// Terminal gives the size in characters of the terminal that is written to; ok is
	// false for what is none.
	Terminal func(io.Writer) (width, height int, ok bool)
}

// What can be summed up by.
const (
	ByNamespace = "namespace"
	ByWorkload  = "workload"
	ByNode      = "node"
)

// Forms of the output.
const (
	Table = "table"
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
)

// Source is where it is known who holds what.
type Source interface {
	// Read gives what holds now.
	Read(ctx context.Context) (View, error)
	// Follow calls show with what holds now, and again whenever it may have changed,
	// one call after the other, until the context ends, or show or the source fails.
	Follow(ctx context.Context, show func(View) error) error
}

// View is who holds what at one moment.
type View struct {
	// owners are those of the driver, the namespace and the node that were asked for.
	owners []ownership.Owner
	// hardware is nil where it is not known which GPUs there are.
	hardware *hardware
	// partial is true if others may hold something of the same hardware.
	partial bool
	// hasPod says whether a pod is there; nil where that is not known.
	hasPod func(namespace, name string) bool
	// problem says why something may be stale or missing, empty if nothing is.
	problem string
}

// Watch shows what there is, and again whenever it has changed, until the context ends.
func (o *Options) Watch(ctx context.Context, source Source, out io.Writer) error {
	shown := &screen{options: o, out: out}
	shown.width, shown.height, shown.terminal = o.Terminal(out)
	err := source.Follow(ctx, shown.show)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil // That is how a watch ends.
	}
	return err
}

// Show prints what there is, and on notes what else there is to say, so that out has the
// table alone.
func (o *Options) Show(ctx context.Context, source Source, out, notes io.Writer) error {
	v, err := source.Read(ctx)
	if err != nil {
		return err
	}
	owners := o.selected(v)
	if len(owners) == 0 {
		if err := o.checkNames(v); err != nil {
			return err
		}
	}
	width, _, _ := o.Terminal(out)
	if err := o.render(out, v, o.Now(), width); err != nil {
		return err
	}
	said := []string{o.problem(v)}
	if len(owners) == 0 && o.forPeople() && o.By == "" {
		said = append(said, o.nothing())
	}
	for _, note := range said {
		if note == "" {
			continue
		}
		if _, err := fmt.Fprintln(notes, display.Visible(note)); err != nil {
			return err
		}
	}
	return nil
}

// forPeople is false for the forms that programs read.
func (o *Options) forPeople() bool { return o.Output == Table || o.Output == Wide }

// nothing says that there is nothing to show.
func (o *Options) nothing() string {
	switch {
	case o.Pod != "":
		return fmt.Sprintf("Pod %s holds no GPU", o.Pod)
	case o.GPU != "":
		return fmt.Sprintf("Nobody holds %s", o.GPU)
	case o.Namespace != "":
		return fmt.Sprintf("Nobody holds a GPU in namespace %s", o.Namespace)
	}
	return "Nobody holds a GPU"
}
