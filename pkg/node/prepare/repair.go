package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/internal/atomicfile"
)

// Reconcile brings the records and the node in line at start: unfinished claims
// are undone, what a reboot or a driver upgrade took from prepared ones is made
// again, and specs of unknown claims are removed. The spec of a claim whose record
// was set aside stays, because its pod may be running; its Unprepare removes it.
// One claim's failure does not stop the others; all are returned together.
func (p *Preparer) Reconcile(ctx context.Context) error {
	if err := atomicfile.Sweep(p.store.dir); err != nil {
		return fmt.Errorf("remove unfinished records: %w", err)
	}
	records, err := p.store.list()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range records {
		if r.State == Preparing {
			errs = append(errs, p.undoUnfinished(ctx, r))
		}
	}
	errs = append(errs, p.Repair(ctx), p.retainCompute(ctx))
	setAside, err := p.store.setAsideClaims()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	removed, err := p.Specs.Sweep(func(uid types.UID) bool {
		r, err := p.store.get(uid)
		return r != nil || err != nil || setAside[uid]
	})
	for _, file := range removed {
		klog.FromContext(ctx).Info("Removed the CDI spec of a claim that is not known", "file", file)
	}
	return errors.Join(append(errs, err)...)
}

// undoUnfinished takes back what a process that ended in the middle did. Another
// process that is only about to end holds the claim's GPUs while it works: so what
// the record says counts once they are free.
func (p *Preparer) undoUnfinished(ctx context.Context, r *Record) error {
	release, err := p.gpus.lock(ctx, gpus(r.Devices))
	if err != nil {
		return fmt.Errorf("undo the unfinished preparation of claim %s: %w", r.Claim, err)
	}
	defer release()
	now, err := p.store.get(r.Claim.UID)
	if err != nil || now == nil || now.State != Preparing {
		return err
	}
	if err := p.undo(ctx, opRepair, now); err != nil {
		return err
	}
	p.Repaired(now.Claim, "an unfinished preparation was undone")
	return nil
}

// Repair makes the specs of prepared claims again where they are missing or no
// longer fit the boot or the driver. Containers that start after a driver
// upgrade then get the libraries that are installed now.
func (p *Preparer) Repair(ctx context.Context) error {
	records, err := p.store.list()
	if err != nil {
		return err
	}
	var errs []error
	// Also those that are being prepared: they may still be getting the old driver.
	for _, r := range records {
		if err := p.repairClaim(ctx, r.Claim); err != nil {
			errs = append(errs, fmt.Errorf("repair claim %s: %w", r.Claim, err))
		}
	}
	return errors.Join(errs...)
}

func (p *Preparer) repairClaim(ctx context.Context, ref ClaimRef) error {
	unlock, err := p.claims.forPrepare(ctx, ref.UID)
	if errors.Is(err, errUnprepared) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	r, err := p.store.get(ref.UID)
	if err != nil || r == nil || r.State != Prepared {
		return err
	}
	release, err := p.gpus.lock(ctx, gpus(r.Devices))
	if err != nil {
		return err
	}
	defer release()
	devices := slices.Clone(r.Devices)
	for i := range devices {
		devices[i].planned.target, _ = p.Resolve(devices[i].Device)
	}
	_, err = p.repair(ctx, opRepair, r, devices)
	return err
}

// repair takes the steps of a prepared claim again if what it was promised is not
// there any more, and returns its record. devices are the record's, with what they
// are on this node now.
func (p *Preparer) repair(ctx context.Context, operation string, r *Record, devices []Device) (*Record, error) {
	reason, err := p.stale(ctx, r)
	if err != nil {
		return nil, err
	}
	if reason == "" {
		return r, nil
	}
	repaired := *r
	repaired.Devices = slices.Clone(r.Devices)
	for i := range repaired.Devices {
		repaired.Devices[i].planned = devices[i].planned
	}
	repaired.BootID, repaired.DriverVersion = p.BootID, p.DriverVersion()
	if err = p.renderEarly(ctx, &repaired); err == nil {
		err = p.run(ctx, operation, &repaired)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare again because %s: %w", reason, err)
	}
	// Recorded last: until then the record still says that there is work to do.
	if err := p.put(operation, &repaired, p.store.replace); err != nil {
		return nil, fmt.Errorf("record that the claim is prepared: %w", err)
	}
	p.Changed()
	p.Repaired(r.Claim, reason)
	return &repaired, nil
}

// stale says in words why what a prepared claim was promised is not there any
// more; empty if it is.
func (p *Preparer) stale(ctx context.Context, r *Record) (string, error) {
	if r.BootID != p.BootID {
		return "the machine was restarted", nil
	}
	if now := p.DriverVersion(); r.DriverVersion != now {
		return fmt.Sprintf("the NVIDIA driver changed from %s to %s", r.DriverVersion, now), nil
	}
	for _, d := range r.Devices {
		if !d.onDemand() {
			continue
		}
		instance, found, err := p.Partitions.Find(ctx, d.partition())
		switch {
		case err != nil:
			return "", fmt.Errorf("look for partition %s: %w", d.Device, err)
		case !found:
			return "somebody destroyed its partition " + d.Device, nil
		case d.MIG == nil || *d.MIG != instance:
			return fmt.Sprintf("its partition %s was destroyed and made again", d.Device), nil
		}
	}
	intact, err := p.Specs.Intact(r.Claim.UID, r.SpecDigest)
	if err != nil || intact {
		return "", err
	}
	return "its CDI spec was missing or changed", nil
}
