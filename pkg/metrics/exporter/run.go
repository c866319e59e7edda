package exporter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// Reader reads the values of a node's devices, as gpumetrics.Reader does.
type Reader interface {
	Read(ctx context.Context, node inventory.Node, now time.Time) gpumetrics.Sample
}

// Owners is where owners come from, as from the ownership service's client.
type Owners interface {
	// Run calls changed with the first owners and whenever they have changed, one call
	// after the other, until the context ends.
	Run(ctx context.Context, changed func(ownership.Snapshot))
	// Current is the last good answer.
	Current() (ownership.Snapshot, error)
	// Errors counts failures to get one.
	Errors() uint64
}

// ErrRestart says that only a new process can read the hardware.
var ErrRestart = errors.New("the NVIDIA driver was replaced while this process held its library: it must be started again")

// hungAfter is how long a sample may take before the hardware is taken for hung. NVML's
// calls take up to seconds while a GPU is being reset.
const hungAfter = 60 * time.Second

// Run takes samples until the context ends, and returns when all that it started has
// ended. Samples are taken at each interval, and at once when the devices or their
// owners have changed. The error is nil, or ErrRestart.
func (e *Exporter) Run(ctx context.Context, source inventory.Source, reader Reader, owners Owners) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	r := &runner{exporter: e, source: source, reader: reader, owners: owners, wake: make(chan struct{}, 1)}
	wg.Go(func() {
		source.Watch(ctx, func(node inventory.Node) {
			r.node.Store(&node)
			r.signal()
		})
	})
	wg.Go(func() {
		owners.Run(ctx, func(s ownership.Snapshot) {
			e.SetOwners(s, time.Now())
			r.logProblem(ctx, s.Problem)
			r.signal()
		})
	})
	return r.loop(ctx)
}

// Healthy says why the exporter does not do its work; nil if it does.
func (e *Exporter) Healthy() error {
	taken := e.current.Load().taken
	if taken.IsZero() {
		taken = e.started
	}
	if age := time.Since(taken); age > e.o.Interval+hungAfter {
		return fmt.Errorf("the hardware was not read for %s", age.Round(time.Second))
	}
	return nil
}

// runner is one Run.
type runner struct {
	exporter *Exporter
	source   inventory.Source
	reader   Reader
	owners   Owners
	// wake has room for one signal: if it is full, a sample follows already.
	wake chan struct{}

	// node is nil before the first.
	node atomic.Pointer[inventory.Node]

	// looked is the state for which the node was last read again. It belongs to loop.
	looked wanted

	// problem is the owners' last one. It belongs to Owners.Run.
	problem string
}

// wanted is a state in which owners hold devices that the node does not have.
type wanted struct {
	holdings *holdings
	node     *inventory.Node
}

func (r *runner) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *runner) loop(ctx context.Context) error {
	ticker := time.NewTicker(r.exporter.o.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-r.wake:
		}
		if err := r.sample(ctx); err != nil {
			return err
		}
	}
}

// sample reads the hardware and publishes what it says.
func (r *runner) sample(ctx context.Context) error {
	current, _ := r.owners.Current()
	r.exporter.SetOwnership(current.Verified, r.owners.Errors())
	node := r.lookForDevices(ctx)
	switch {
	case node == nil:
		return nil
	case node.RestartNeeded:
		return ErrRestart
	}
	sample := r.reader.Read(ctx, *node, time.Now())
	if ctx.Err() == nil {
		r.exporter.Update(sample)
	}
	return nil
}

// lookForDevices is the node, read again if owners hold a partition that it does not
// have: one that was made just now. It is nil before the first.
func (r *runner) lookForDevices(ctx context.Context) *inventory.Node {
	node := r.node.Load()
	if node == nil {
		return nil
	}
	r.exporter.mu.Lock()
	h := r.exporter.holdings
	r.exporter.mu.Unlock()
	if h == nil || r.looked == (wanted{h, node}) || !h.missing(node) {
		return node
	}
	fresh, err := r.source.Snapshot(ctx)
	if err != nil {
		return node // The context has ended.
	}
	r.node.Store(&fresh)
	r.looked = wanted{h, &fresh}
	return &fresh
}

// missing says whether there are owners of partitions that the node does not have, on
// GPUs that it has.
func (h *holdings) missing(node *inventory.Node) bool {
	has := map[string]bool{}
	for i := range node.GPUs {
		gpu := &node.GPUs[i]
		has[gpu.UUID] = true
		for _, m := range gpu.MIG.Instances {
			has[m.UUID], has[placeOf(gpu.UUID, m.ID)] = true, true
		}
	}
	for i := range h.owners {
		o := &h.owners[i]
		if key := deviceOfOwner(o); o.Device.IsPartition() && key != "" && has[o.Device.ParentUUID] && !has[key] {
			return true
		}
	}
	return false
}

func (r *runner) logProblem(ctx context.Context, problem string) {
	if problem == r.problem {
		return
	}
	r.problem = problem
	logger := klog.FromContext(ctx)
	if problem == "" {
		logger.Info("Owners are right again")
		return
	}
	logger.Info("Owners may be stale or lack pods", "problem", problem)
}
