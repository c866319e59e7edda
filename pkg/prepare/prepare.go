// Package prepare is a claim's life on the node: reserve, prepare, undo.
//
// For each claim there is one durable record, written before anything is done
// and removed after everything is undone. A crash at any moment leaves a record
// from which whoever comes next (the kubelet's retry, its Unprepare, or the
// driver's next start) finishes or undoes the work. Claims on different GPUs do
// not wait for each other.
//
// The package knows claims, their records and their CDI specs. It does not talk
// to the API server, and what an allocated device is on this node is told to it.
package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/atomicfile"
	"apportion.dev/apportion/pkg/cdi"
)

// Target is what an allocated device is on this node.
type Target struct {
	// GPU is the UUID of the physical GPU.
	GPU string
	// Capacity is what shares of the device may consume together.
	Capacity map[string]resource.Quantity
	// Problem says why the device cannot be used now; empty if it can.
	Problem string
}

// Specs keeps claims' CDI specs; *cdi.Writer does.
type Specs interface {
	Render(ctx context.Context, devices []cdi.Device) (cdi.Spec, error)
	Write(claim types.UID, spec cdi.Spec) error
	Intact(claim types.UID, digest string) (bool, error)
	Remove(claim types.UID) error
	Sweep(keep func(claim types.UID) bool) (removed []string, err error)
	QualifiedName(device string) string
}

// Options is what a Preparer needs. All fields but Damaged, Repaired and Observe
// must be set.
type Options struct {
	// Driver is the driver's name, Pool the name of this node's pool.
	Driver, Pool string
	// Dir is the driver's folder on the node. It must exist.
	Dir string
	// BootID identifies this boot of the machine.
	BootID string
	Specs  Specs
	// Resolve says what the device of that name is.
	Resolve func(device string) (Target, bool)
	// DriverVersion is the NVIDIA driver's version now.
	DriverVersion func() string

	// Damaged is told of a record that could not be read and was moved to path.
	Damaged func(claim types.UID, path string, reason error)
	// Repaired is told of a record or spec that was put right, and why.
	Repaired func(claim ClaimRef, reason string)
	// Observe is told how long each phase of a call took.
	Observe func(phase string, took time.Duration)
}

// Preparer prepares and unprepares claims. Its methods may be called
// concurrently; Reconcile must have returned before the first other call.
type Preparer struct {
	Options
	store  *store
	gpus   *gpuLocks
	claims claimLocks
}

// New makes the driver's folders for records and locks and returns a Preparer.
func New(o Options) (*Preparer, error) {
	records, locks := filepath.Join(o.Dir, "claims"), filepath.Join(o.Dir, "locks")
	for _, dir := range []string{records, locks} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("folder for claims: %w", err)
		}
	}
	if o.Observe == nil {
		o.Observe = func(string, time.Duration) {}
	}
	if o.Repaired == nil {
		o.Repaired = func(ClaimRef, string) {}
	}
	return &Preparer{Options: o, store: newStore(records, o.Damaged), gpus: newGPULocks(locks)}, nil
}

// Close waits for what is still waiting for locks. No calls may be under way.
func (p *Preparer) Close() { p.gpus.wg.Wait() }

// Prepare makes the claim's devices usable and returns them. It may be called
// again for a prepared claim: it then checks that what it promised is still
// there, and repairs it. An error names the claim's device and what to do.
func (p *Preparer) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]Device, error) {
	ref := ClaimRef{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	if err := checkUID(ref.UID); err != nil {
		return nil, err
	}
	devices, err := p.plan(claim)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	unlock, err := p.claims.forPrepare(ctx, ref.UID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	before, err := p.store.get(ref.UID)
	if err != nil {
		return nil, err
	}
	locked := gpus(devices)
	if before != nil {
		locked = append(locked, gpus(before.Devices)...)
	}
	release, err := p.gpus.lock(ctx, locked)
	if err != nil {
		return nil, err
	}
	defer release()
	p.Observe("lock", time.Since(started))
	// The kubelet may have given up while this call waited.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return p.prepareLocked(ctx, ref, devices)
}

// prepareLocked does Prepare's work while the claim and its GPUs are held.
func (p *Preparer) prepareLocked(ctx context.Context, ref ClaimRef, devices []Device) ([]Device, error) {
	records, err := p.store.list()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(records, func(r *Record) bool { return r.Claim.UID == ref.UID }); i >= 0 {
		before := records[i]
		if before.State == Prepared && sameDevices(before.Devices, devices) {
			return before.Devices, p.repair(ctx, before)
		}
		// An unfinished attempt, or one for an earlier allocation of the claim.
		if err := p.undo(ctx, before); err != nil {
			return nil, err
		}
	}
	if err := p.usable(devices); err != nil {
		return nil, err
	}
	if err := conflict(records, ref.UID, devices, p.capacity); err != nil {
		return nil, err
	}
	return devices, p.reserve(ctx, ref, devices)
}

// reserve records that the claim takes the devices, and prepares them.
func (p *Preparer) reserve(ctx context.Context, ref ClaimRef, devices []Device) error {
	record := &Record{
		Version: recordVersion, Claim: ref, State: Preparing, Since: time.Now().UTC(), Devices: devices,
		BootID: p.BootID, DriverVersion: p.DriverVersion(),
	}
	steps, err := p.steps(ctx, record)
	if err != nil {
		return err
	}
	if err := p.put(record); err != nil {
		return fmt.Errorf("record the claim before preparing it: %w", err)
	}
	// gofail: var prepareAfterIntent struct{}
	err = p.run(ctx, steps)
	// gofail: var prepareAfterSteps struct{}
	if err == nil {
		_, err = p.store.prepared(record)
	}
	if err != nil {
		return errors.Join(err, p.undo(context.WithoutCancel(ctx), record))
	}
	// gofail: var prepareAfterRecord struct{}
	return nil
}

// run takes the steps of a recorded claim.
func (p *Preparer) run(ctx context.Context, steps []step) error {
	started := time.Now()
	defer func() { p.Observe("steps", time.Since(started)) }()
	for _, step := range steps {
		if err := step.Do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
	}
	return nil
}

func (p *Preparer) put(record *Record) error {
	started := time.Now()
	defer func() { p.Observe("record", time.Since(started)) }()
	return p.store.put(record)
}

// undo takes back whatever was done for a recorded claim, then its record.
func (p *Preparer) undo(ctx context.Context, record *Record) error {
	for _, step := range slices.Backward(p.undoSteps(record)) {
		if err := step.Undo(ctx); err != nil {
			return fmt.Errorf("undo %s of claim %s: %w", step.Name, record.Claim, err)
		}
	}
	// gofail: var undoAfterSteps struct{}
	if err := p.store.remove(record.Claim.UID); err != nil {
		return fmt.Errorf("remove the record of claim %s: %w", record.Claim, err)
	}
	// gofail: var undoAfterRecord struct{}
	return nil
}

// Unprepare takes back what Prepare did. It succeeds for a claim that is not
// known, whose record is damaged or whose GPU is gone.
func (p *Preparer) Unprepare(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	started := time.Now()
	unlock, err := p.claims.forUnprepare(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	record, err := p.store.get(uid)
	if err != nil {
		return err
	}
	if record == nil {
		return p.Specs.Remove(uid)
	}
	release, err := p.gpus.lock(ctx, gpus(record.Devices))
	if err != nil {
		return err
	}
	defer release()
	p.Observe("lock", time.Since(started))
	// gofail: var unprepareLocked struct{}
	return p.undo(ctx, record)
}

// Reconcile brings the records and the node in line at start: unfinished claims
// are undone, what a reboot or a driver upgrade took from prepared ones is made
// again, and specs of unknown claims are removed. One claim's failure does not
// stop the others; all are returned together.
func (p *Preparer) Reconcile(ctx context.Context) error {
	if err := atomicfile.Sweep(p.store.dir); err != nil {
		return fmt.Errorf("remove unfinished records: %w", err)
	}
	records, err := p.store.list()
	if err != nil {
		return err
	}
	known := map[types.UID]bool{}
	var errs []error
	for _, r := range records {
		known[r.Claim.UID] = true
		if r.State == Prepared {
			continue
		}
		p.Repaired(r.Claim, "an unfinished preparation was undone")
		if err := p.undoClaim(ctx, r); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, p.Repair(ctx))
	removed, err := p.Specs.Sweep(func(uid types.UID) bool { return known[uid] })
	for _, file := range removed {
		klog.FromContext(ctx).Info("Removed the CDI spec of a claim that is not known", "file", file)
	}
	return errors.Join(append(errs, err)...)
}

func (p *Preparer) undoClaim(ctx context.Context, r *Record) error {
	release, err := p.gpus.lock(ctx, gpus(r.Devices))
	if err != nil {
		return err
	}
	defer release()
	return p.undo(ctx, r)
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
	for _, r := range records {
		if r.State != Prepared {
			continue
		}
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
	return p.repair(ctx, r)
}

// repair takes the steps of a prepared claim again if what it was promised is not
// there any more.
func (p *Preparer) repair(ctx context.Context, r *Record) error {
	reason, err := p.stale(r)
	if err != nil || reason == "" {
		return err
	}
	repaired := *r
	repaired.BootID, repaired.DriverVersion = p.BootID, p.DriverVersion()
	steps, err := p.steps(ctx, &repaired)
	if err == nil {
		err = p.run(ctx, steps)
	}
	if err != nil {
		return fmt.Errorf("prepare again because %s: %w", reason, err)
	}
	// Recorded last: until then the record still says that there is work to do.
	if err := p.put(&repaired); err != nil {
		return fmt.Errorf("record that the claim is prepared: %w", err)
	}
	p.Repaired(r.Claim, reason)
	return nil
}

// stale says in words why what a prepared claim was promised is not there any
// more; empty if it is.
func (p *Preparer) stale(r *Record) (string, error) {
	if r.BootID != p.BootID {
		return "the machine was restarted", nil
	}
	if now := p.DriverVersion(); r.DriverVersion != now {
		return fmt.Sprintf("the NVIDIA driver changed from %s to %s", r.DriverVersion, now), nil
	}
	intact, err := p.Specs.Intact(r.Claim.UID, r.SpecDigest)
	if err != nil || intact {
		return "", err
	}
	return "its CDI spec was missing or changed", nil
}

// Prepared returns the records of all prepared claims, by UID. They are shared:
// callers must not change them.
func (p *Preparer) Prepared() ([]*Record, error) {
	records, err := p.store.list()
	return slices.DeleteFunc(records, func(r *Record) bool { return r.State != Prepared }), err
}

// checkUID keeps a UID that is no file name away from the disk.
func checkUID(uid types.UID) error {
	s := string(uid)
	if s == "" || s[0] == '.' || len(s) > 128 || strings.ContainsAny(s, "/\\_\x00") {
		return fmt.Errorf("claim UID %q is not one that the API server makes", s)
	}
	return nil
}
