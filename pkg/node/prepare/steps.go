package prepare

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/api/resource/v1alpha1"
	"apportion.dev/apportion/pkg/node/cdi"
)

// step is one thing done on the node for a claim, whose record is on disk before
// the first is taken. Both functions are idempotent: Undo of a step that was not
// taken, or only half, is right too. It is nil where there is nothing to take back.
type step struct {
	Name     string
	Do, Undo func(ctx context.Context) error
}

// steps are what is done for a claim, in order. The steps complete its record.
// What another claim uses too is not taken back.
func (p *Preparer) steps(r *Record) []step {
	others := sync.OnceValues(func() ([]*Record, error) {
		records, err := p.store.list()
		return othersOf(records, r.Claim.UID), err
	})
	// unlessUsed takes something back unless a device of another claim needs it.
	unlessUsed := func(needs func(Device) bool, undo func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			records, err := others()
			used := slices.ContainsFunc(records, func(o *Record) bool { return slices.ContainsFunc(o.Devices, needs) })
			if err != nil || used {
				return err
			}
			return undo(ctx)
		}
	}
	var steps []step
	for i := range r.Devices {
		d := &r.Devices[i]
		steps = append(steps, p.formSteps(d, unlessUsed)...)
		if d.TimeSlice != "" {
			steps = append(steps, step{
				Name: "set the time slice",
				Do:   func(ctx context.Context) error { return p.TimeSlices.Set(ctx, d.GPU, d.TimeSlice) },
				Undo: unlessUsed(
					func(o Device) bool { return o.GPU == d.GPU && o.TimeSlice != "" },
					func(ctx context.Context) error { return p.resetTimeSlice(ctx, *d) }),
			})
		}
	}
	return append(steps, step{
		Name: "write CDI spec",
		Do:   func(ctx context.Context) error { return p.writeSpec(ctx, r) },
		Undo: func(context.Context) error { return p.Specs.Remove(r.Claim.UID) },
	})
}

// formSteps give the GPU the form in which the device uses it: the partition made,
// or the GPU whole.
func (p *Preparer) formSteps(d *Device, unlessUsed func(func(Device) bool, func(context.Context) error) func(context.Context) error) []step {
	switch {
	case d.onDemand():
		return []step{{
			Name: "make the partition",
			Do: func(ctx context.Context) error {
				instance, err := p.Partitions.Ensure(ctx, d.partition())
				if err == nil {
					d.MIG = &instance
				}
				return err
			},
			Undo: unlessUsed(
				func(o Device) bool { return o.Device == d.Device && !o.AdminAccess },
				func(ctx context.Context) error { return p.Partitions.Remove(ctx, d.partition()) }),
		}}
	case d.Placement != nil && !d.Placement.Given:
		return []step{{Name: "find the partition", Do: func(ctx context.Context) error {
			instance, found, err := p.Partitions.Find(ctx, d.partition())
			if err == nil && !found {
				err = fmt.Errorf("partition %s does not exist while nobody uses it; ask for the whole GPU to look at it", d.Device)
			}
			if err == nil {
				d.MIG = &instance
			}
			return err
		}}}
	case d.Placement == nil && !d.AdminAccess && d.planned.target.Modes:
		return []step{{Name: "use the GPU whole", Do: func(ctx context.Context) error { return p.Partitions.EnsureWhole(ctx, d.GPU) }}}
	}
	return nil
}

// renderEarly works out the CDI spec of a claim before anything is done for it, so
// that a claim that cannot have one fails early. A partition must be there first.
func (p *Preparer) renderEarly(ctx context.Context, r *Record) error {
	if slices.ContainsFunc(r.Devices, func(d Device) bool { return d.Placement != nil && !d.Placement.Given }) {
		return nil
	}
	return p.render(ctx, r)
}

func (p *Preparer) render(ctx context.Context, r *Record) (err error) {
	if r.spec, err = p.Specs.Render(ctx, p.specDevices(r)); err != nil {
		return fmt.Errorf("work out the CDI spec: %w", err)
	}
	r.SpecDigest = r.spec.Digest
	return nil
}

func (p *Preparer) writeSpec(ctx context.Context, r *Record) error {
	if r.spec.Data == nil {
		if err := p.render(ctx, r); err != nil {
			return err
		}
	}
	err := p.Specs.Write(r.Claim.UID, r.spec)
	r.spec = cdi.Spec{}
	return err
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
		edits = p.MPSEdits(d.GPU, *d.MPS)
	}
	if d.MemoryLimit != nil {
		edits.Hooks = append(edits.Hooks, p.LimitHook(d.GPU, *d.MemoryLimit))
	}
	return edits
}
