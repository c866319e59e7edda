package driver

import (
	"context"

	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/node/follow"
	"apportion.dev/apportion/pkg/node/prepare"
)

// view is what the kubelet's calls and all others beside the loop go by. replaced is
// closed when there is another.
type view struct {
	follow.View
	replaced chan struct{}
}

func newView(v follow.View) *view { return &view{View: v, replaced: make(chan struct{})} }

func (d *Driver) driverVersion() string { return d.seen.Load().Node.DriverVersion.Raw }

// send hands the loop something. It returns when the loop has taken it, or ctx ends.
func send[T any](ctx context.Context, to chan<- T, what T) {
	select {
	case to <- what:
	case <-ctx.Done():
	}
}

// claimsChanged has the loop look at the claims again. It does not wait: a pod does.
func (d *Driver) claimsChanged() {
	select {
	case d.claimed <- struct{}{}:
	default: // The loop will look anyway.
	}
}

// loop takes events and does what package follow says comes of them, until the driver
// ends. It returns why: the cause of ctx where that ended.
func (d *Driver) loop(ctx context.Context) error {
	for {
		var event follow.Event
		select {
		case <-ctx.Done():
			event = follow.Stop{Err: context.Cause(ctx)}
		case node := <-d.found:
			event = follow.Found{Node: node, Records: d.held(ctx)}
		case <-d.claimed:
			event = follow.ClaimsChanged{}
		case event = <-d.happened:
		}
		if end := d.handle(ctx, event); end != nil {
			return end.Err
		}
	}
}

// handle takes one step and does its effects. It returns the one that ends the driver.
func (d *Driver) handle(ctx context.Context, event follow.Event) *follow.End {
	var effects []follow.Effect
	d.state, effects = follow.Step(d.state, event)
	for _, effect := range effects {
		switch effect := effect.(type) {
		case follow.Show:
			d.show(ctx, effect.View)
		case follow.ReadAgain:
			if reading, ok := d.readAgain(ctx); ok {
				return d.handle(ctx, reading)
			}
		case follow.Publish:
			d.publishing.Go(func() { d.publish(ctx, effect.Slices) })
		case follow.Reconcile:
			if err := d.preparer.Reconcile(ctx); err != nil {
				// One claim's trouble must not keep the node from serving the others;
				// the kubelet's next call for that claim meets it again.
				klog.FromContext(ctx).Error(err, "Some claims could not be brought in line; they are tried again when the kubelet asks")
			}
		case follow.Repair:
			klog.FromContext(ctx).Info("The NVIDIA driver changed", "from", effect.From, "to", effect.To)
			if err := d.preparer.Repair(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Some claims could not be brought in line with the new driver")
			}
		case follow.RenewStatus:
			d.renewStatus(ctx)
		case follow.Warn:
			d.events.node(effect.Reason, "%s", effect.Message)
		case follow.End:
			return &effect
		}
	}
	return nil
}

func (d *Driver) show(ctx context.Context, v follow.View) {
	before := d.seen.Swap(newView(v))
	close(before.replaced)
	d.owners.Changed()
	d.Metrics.setDevices(v.Model)
	d.reportProblems(ctx, before.View, v)
}

// readAgain reads between two looks at the records, the second of which also has what
// was unprepared since the first. It returns false if ctx ended.
func (d *Driver) readAgain(ctx context.Context) (follow.Reread, bool) {
	released := d.preparer.NoteReleased()
	before := d.held(ctx)
	node, err := d.Source.Snapshot(ctx)
	after := d.held(ctx)
	return follow.Reread{Node: node, Before: before, After: append(after, released()...)}, err == nil
}

func (d *Driver) held(ctx context.Context) []prepare.HeldPartition {
	held, err := d.preparer.Held()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The records of claims could not be read; their partitions may be taken for somebody else's")
	}
	return held
}

// publish hands devices to the helper, which writes what differs.
func (d *Driver) publish(ctx context.Context, published []devicemodel.Slice) {
	var pool resourceslice.Pool
	for _, s := range published {
		pool.Slices = append(pool.Slices, resourceslice.Slice{SharedCounters: s.SharedCounters, Devices: s.Devices})
	}
	err := d.helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{d.config.NodeName: pool}})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Devices could not be published")
	}
	send[follow.Event](ctx, d.happened, follow.Published{Err: err})
}

// renewStatus has the status of all prepared claims written. One that is the same as
// before costs the API server no write.
func (d *Driver) renewStatus(ctx context.Context) {
	prepared, err := d.preparer.Prepared()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Status of prepared claims is not written again")
	}
	for _, record := range prepared {
		d.status.set(record, d.seen.Load().Model)
	}
}
