package prepare

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/api/resource/v1alpha1"
	"apportion.dev/apportion/pkg/node/cdi"
)

// step is one thing done on the node for a claim. Both functions are
// idempotent: Undo of a step that was not taken, or only half, is right too.
type step struct {
	Name     string
	Do, Undo func(ctx context.Context) error
}

// steps works out what is to be done for a claim, in order. The steps complete its
// record. Nothing is changed yet. What can be known of the CDI spec before anything
// is done is worked out at once, so that a claim that cannot have one fails early.
func (p *Preparer) steps(ctx context.Context, r *Record) ([]step, error) {
	var steps []step
	early := true
	for i := range r.Devices {
		d := &r.Devices[i]
		if s, ok := p.partitionStep(d); ok {
			steps = append(steps, s)
			early = early && d.Placement == nil
		}
		if d.TimeSlice != "" {
			steps = append(steps, step{Name: "set the time slice", Do: func(ctx context.Context) error {
				return p.TimeSlices.Set(ctx, d.GPU, d.TimeSlice)
			}})
		}
	}
	var spec cdi.Spec
	render := func(ctx context.Context) (err error) {
		if spec, err = p.Specs.Render(ctx, p.specDevices(r)); err != nil {
			return fmt.Errorf("work out the CDI spec: %w", err)
		}
		r.SpecDigest = spec.Digest
		return nil
	}
	if early {
		if err := render(ctx); err != nil {
			return nil, err
		}
	}
	return append(steps, step{Name: "write CDI spec", Do: func(ctx context.Context) error {
		if !early {
			if err := render(ctx); err != nil {
				return err
			}
		}
		return p.Specs.Write(r.Claim.UID, spec)
	}}), nil
}

// partitionStep gives the GPU the form in which the device uses it: the partition
// made, or the GPU whole.
func (p *Preparer) partitionStep(d *Device) (step, bool) {
	switch {
	case d.Placement == nil:
		if target, _ := p.Resolve(d.Device); d.AdminAccess || !target.Modes {
			return step{}, false
		}
		return step{Name: "use the GPU whole", Do: func(ctx context.Context) error {
			return p.Partitions.EnsureWhole(ctx, d.GPU)
		}}, true
	case d.Placement.Given:
		return step{}, false
	case d.AdminAccess:
		return step{Name: "find the partition", Do: func(ctx context.Context) error {
			instance, found, err := p.Partitions.Find(ctx, d.partition())
			if err != nil {
				return err
			}
			if !found {
				return fmt.Errorf("partition %s does not exist while nobody uses it; ask for the whole GPU to look at it", d.Device)
			}
			d.MIG = &instance
			return nil
		}}, true
	}
	return step{Name: "make the partition", Do: func(ctx context.Context) error {
		instance, err := p.Partitions.Ensure(ctx, d.partition())
		if err != nil {
			return err
		}
		d.MIG = &instance
		return nil
	}}, true
}

// undoSteps lists what may have been done for a recorded claim, in order; its
// steps can only be undone. What another claim uses too stays.
func (p *Preparer) undoSteps(r *Record) ([]step, error) {
	var steps []step
	if slices.ContainsFunc(r.Devices, func(d Device) bool { return d.onDemand() || d.TimeSlice != "" }) {
		records, err := p.store.list()
		if err != nil {
			return nil, err
		}
		steps = p.undoGPUSteps(r, othersOf(records, r.Claim.UID))
	}
	return append(steps, step{
		Name: "write CDI spec",
		Undo: func(context.Context) error { return p.Specs.Remove(r.Claim.UID) },
	}), nil
}

func (p *Preparer) undoGPUSteps(r *Record, others []*Record) []step {
	usedByOther := func(same func(Device) bool) bool {
		return slices.ContainsFunc(others, func(o *Record) bool { return slices.ContainsFunc(o.Devices, same) })
	}
	var steps []step
	for _, d := range r.Devices {
		if d.onDemand() && !usedByOther(func(o Device) bool { return o.Device == d.Device && !o.AdminAccess }) {
			steps = append(steps, step{Name: "make the partition", Undo: func(ctx context.Context) error {
				return p.Partitions.Remove(ctx, d.partition())
			}})
		}
		if d.TimeSlice != "" && !usedByOther(func(o Device) bool { return o.GPU == d.GPU && o.TimeSlice != "" }) {
			steps = append(steps, step{Name: "set the time slice", Undo: func(ctx context.Context) error {
				return p.resetTimeSlice(ctx, d)
			}})
		}
	}
	return steps
}

// resetTimeSlice gives a GPU its default back. A GPU that is gone has none to set, and
// one that keeps the wrong interval is not worth a claim that cannot end. But a call
// that was given up says nothing of the GPU, and the next one tries again.
func (p *Preparer) resetTimeSlice(ctx context.Context, d Device) error {
	if target, ok := p.Resolve(d.Device); !ok || target.Problem != "" {
		return nil
	}
	err := p.TimeSlices.Set(ctx, d.GPU, string(v1alpha1.TimeSliceDefault))
	if err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The time slice of a GPU is not its default again", "gpu", d.GPU)
	}
	return nil
}

// specDevices lists the CDI devices of a claim, each once: two requests may see
// the same device with admin access.
func (p *Preparer) specDevices(r *Record) []cdi.Device {
	var out []cdi.Device
	seen := map[string]bool{}
	for _, d := range r.Devices {
		name := cdi.DeviceName(r.Claim.UID, d.Device, d.ShareID)
		if !seen[name] {
			seen[name] = true
			out = append(out, cdi.Device{Name: name, GPU: d.visible(), Edits: p.edits(d)})
		}
	}
	return out
}

// edits are what keeps a share within its limits.
func (p *Preparer) edits(d Device) specs.ContainerEdits {
	var edits specs.ContainerEdits
	if d.MPS != nil {
		edits = p.Compute.Edits(d.GPU, *d.MPS)
	}
	if d.MemoryLimit != nil {
		edits.Hooks = append(edits.Hooks, p.LimitHook(d.GPU, *d.MemoryLimit))
	}
	return edits
}
