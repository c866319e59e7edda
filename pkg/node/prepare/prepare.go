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
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/cdi"
	"apportion.dev/apportion/pkg/node/mig"
)

// Target is what an allocated device is on this node.
type Target struct {
	// GPU is the UUID of the physical GPU.
	GPU string
	// Placement is where a partition lies; nil for a whole GPU. MIGDevice is the
	// UUID of one that an administrator made.
	Placement *Placement
	MIGDevice string
	// Capacity is what shares of the device may consume together. CheckShare says
	// what is wrong with the amounts of one share.
	Capacity   map[string]resource.Quantity
	CheckShare func(consumed map[resourceapi.QualifiedName]resource.Quantity) error
	// LimitsMemory says whether NVML can limit the memory of a share.
	LimitsMemory bool
	// Modes says whether the GPU can be used whole and partitioned by turns, so that
	// its MIG mode has to be made right for a whole use.
	Modes bool
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

// Partitions makes and removes MIG partitions; *mig.Manager does.
type Partitions interface {
	Ensure(ctx context.Context, p inventory.Partition) (mig.Instance, error)
	Find(ctx context.Context, p inventory.Partition) (mig.Instance, bool, error)
	Remove(ctx context.Context, p inventory.Partition) error
	EnsureWhole(ctx context.Context, gpu string) error
}

// Compute runs an MPS daemon for each GPU for as long as claims use it.
type Compute interface {
	// Acquire returns when the daemon answers.
	Acquire(ctx context.Context, gpu string, claim types.UID) error
	Release(ctx context.Context, gpu string, claim types.UID) error
	// Retain drops the claims for which keep is false.
	Retain(ctx context.Context, keep func(gpu string, claim types.UID) bool) error
}

// TimeSlices sets how long a process may run on a GPU before another one does.
type TimeSlices interface {
	Set(ctx context.Context, gpu, interval string) error
}

// Options is what a Preparer needs. All fields but Damaged, Repaired, Changed and
// Observe must be set.
type Options struct {
	// Driver is the driver's name, Pool the name of this node's pool.
	Driver, Pool string
	// Dir is the driver's folder on the node. It must exist.
	Dir string
	// BootID identifies this boot of the machine.
	BootID string
	Specs  Specs

	Partitions Partitions
	Compute    Compute
	TimeSlices TimeSlices
	// LimitHook is the hook that sets a share's memory limit for a container.
	LimitHook func(gpu string, limit MemoryLimit) *specs.Hook
	// MPSEdits are what a container needs to use the GPU's MPS daemon.
	MPSEdits func(gpu string, m MPS) specs.ContainerEdits

	// Resolve says what the device of that name is.
	Resolve func(device string) (Target, bool)
	// DriverVersion is the NVIDIA driver's version now.
	DriverVersion func() string

	// Damaged is told of a record that could not be read and was moved to path.
	Damaged func(claim types.UID, path string, reason error)
	// Repaired is told of a record or spec that was put right, and why.
	Repaired func(claim ClaimRef, reason string)
	// Changed is told that a claim was prepared, repaired or unprepared: Prepared
	// answers otherwise now. It must not block, and must not call the Preparer.
	Changed func()
	// Observe is told how long each phase of an operation took, and how it ended.
	// Operations are prepare, unprepare and repair. Phases are lock (waiting for
	// the claim and its GPUs), record (writing the claim's record), steps (what is
	// done for the claim) and undo (taking it back, with the record).
	Observe func(operation, phase string, took time.Duration, err error)
}

// The operations that Options.Observe is told of.
const (
	opPrepare   = "prepare"
	opUnprepare = "unprepare"
	opRepair    = "repair"
)

// Preparer prepares and unprepares claims. Its methods may be called
// concurrently; Reconcile must have returned before the first other call.
type Preparer struct {
	Options
	store  *store
	gpus   *gpuLocks
	claims claimLocks
	// undoing has the UIDs of the claims that are being undone, whose records are still
	// there.
	undoing  sync.Map
	releases releases
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
		o.Observe = func(string, string, time.Duration, error) {}
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Repaired == nil {
		o.Repaired = func(ClaimRef, string) {}
	}
	return &Preparer{Options: o, store: newStore(records, o.Damaged), gpus: newGPULocks(locks)}, nil
}

// Close waits for what is still waiting for locks. No calls may be under way.
func (p *Preparer) Close() { p.gpus.wg.Wait() }

// Prepare makes the claim's devices usable and returns its record, which is
// shared: callers must not change it. It may be called again for a prepared claim:
// it then checks that what it promised is still there, and repairs it. An error
// names the device, where there is one, and what to do.
func (p *Preparer) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (*Record, error) {
	ref := ClaimRef{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	if err := checkUID(ref.UID); err != nil {
		return nil, err
	}
	devices, err := p.plan(claim)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	unlockClaim, err := p.claims.forPrepare(ctx, ref.UID)
	if err != nil {
		p.Observe(opPrepare, "lock", time.Since(started), err)
		return nil, err
	}
	defer unlockClaim()
	before, err := p.store.get(ref.UID)
	if err != nil {
		return nil, err
	}
	record, err := p.acquireAndPrepare(ctx, ref, before, devices)
	// Also when it succeeded: the record may be an older one, without MPS, or it may
	// take the place of one with a daemon on another GPU.
	if err = errors.Join(err, p.releaseUnused(ctx, ref.UID, before, devices)); err != nil {
		return nil, err
	}
	return record, nil
}

// acquireAndPrepare does Prepare's work while the claim is held. before is its record,
// if it has one.
func (p *Preparer) acquireAndPrepare(ctx context.Context, ref ClaimRef, before *Record, devices []Device) (*Record, error) {
	// A daemon takes its time to start, and nobody else waits for it: the GPUs are
	// not held yet.
	if err := p.acquireCompute(ctx, ref.UID, devices); err != nil {
		return nil, err
	}
	started := time.Now()
	unlock, err := p.lockForPrepare(ctx, before, devices)
	p.Observe(opPrepare, "lock", time.Since(started), err)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return p.prepareLocked(ctx, ref, devices)
}

// lockForPrepare takes the GPUs that the claim is to have or has.
func (p *Preparer) lockForPrepare(ctx context.Context, before *Record, devices []Device) (unlock func(), err error) {
	locked := gpus(devices)
	if before != nil {
		locked = append(locked, gpus(before.Devices)...)
	}
	release, err := p.gpus.lock(ctx, locked)
	if err == nil && ctx.Err() != nil {
		// The kubelet gave up while this call waited.
		release()
		err = ctx.Err()
	}
	return release, err
}

// prepareLocked does Prepare's work while the claim and its GPUs are held.
func (p *Preparer) prepareLocked(ctx context.Context, ref ClaimRef, devices []Device) (*Record, error) {
	records, err := p.store.list()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(records, func(r *Record) bool { return r.Claim.UID == ref.UID }); i >= 0 {
		before := records[i]
		if before.State == Prepared && sameDevices(before.Devices, devices) {
			if err := stillGiven(before.Devices, devices); err != nil {
				return nil, err
			}
			return p.repair(ctx, opPrepare, before, devices)
		}
		// An unfinished attempt, or one for an earlier allocation of the claim.
		if err := p.undo(ctx, opPrepare, before); err != nil {
			return nil, err
		}
	}
	if err := usable(devices); err != nil {
		return nil, err
	}
	others := othersOf(records, ref.UID)
	if err := conflict(others, ref.UID, devices); err != nil {
		return nil, err
	}
	if err := incompatible(others, devices); err != nil {
		return nil, err
	}
	return p.reserve(ctx, ref, devices)
}

// reserve records that the claim takes the devices, and prepares them.
func (p *Preparer) reserve(ctx context.Context, ref ClaimRef, devices []Device) (*Record, error) {
	record := &Record{
		Version: recordVersion, Claim: ref, State: Preparing, Since: time.Now().UTC(), Devices: devices,
		BootID: p.BootID, DriverVersion: p.DriverVersion(),
	}
	if err := p.renderEarly(ctx, record); err != nil {
		return nil, err
	}
	giveUp := func(err error) error {
		return errors.Join(err, p.undo(context.WithoutCancel(ctx), opPrepare, record))
	}
	if err := p.put(opPrepare, record, p.store.put); err != nil {
		// It may be there all the same, only not for sure.
		return nil, giveUp(fmt.Errorf("record the claim before preparing it: %w", err))
	}
	// gofail: var prepareAfterIntent struct{}
	intent := record.SpecDigest
	if err := p.run(ctx, opPrepare, record); err != nil {
		return nil, giveUp(err)
	}
	// gofail: var prepareAfterSteps struct{}
	if record.SpecDigest != intent {
		// The steps found out what the devices are.
		if err := p.put(opPrepare, record, p.store.replace); err != nil {
			return nil, giveUp(fmt.Errorf("record what was prepared: %w", err))
		}
	}
	for i := range record.Devices {
		record.Devices[i].planned = planned{}
	}
	done, err := p.store.prepared(record)
	if err != nil {
		return nil, giveUp(fmt.Errorf("record that the claim is prepared: %w", err))
	}
	// gofail: var prepareAfterRecord struct{}
	p.Changed()
	return done, nil
}

// run takes the steps of a recorded claim.
func (p *Preparer) run(ctx context.Context, operation string, record *Record) (err error) {
	started := time.Now()
	defer func() { p.Observe(operation, "steps", time.Since(started), err) }()
	for _, step := range p.steps(record) {
		if err := step.Do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
	}
	return nil
}

func (p *Preparer) put(operation string, record *Record, write func(*Record) error) error {
	started := time.Now()
	err := write(record)
	p.Observe(operation, "record", time.Since(started), err)
	return err
}

// undo takes back whatever was done for a recorded claim, then its record.
func (p *Preparer) undo(ctx context.Context, operation string, record *Record) (err error) {
	started := time.Now()
	defer func() { p.Observe(operation, "undo", time.Since(started), err) }()
	p.undoing.Store(record.Claim.UID, true)
	defer p.undoing.Delete(record.Claim.UID)
	for _, step := range slices.Backward(p.steps(record)) {
		if step.Undo == nil {
			continue
		}
		if err := step.Undo(ctx); err != nil {
			return fmt.Errorf("undo %s of claim %s: %w", step.Name, record.Claim, err)
		}
	}
	// gofail: var undoAfterSteps struct{}
	p.releases.note(record)
	if err := p.store.remove(record.Claim.UID); err != nil {
		return fmt.Errorf("remove the record of claim %s: %w", record.Claim, err)
	}
	// gofail: var undoAfterRecord struct{}
	p.Changed()
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
		p.Observe(opUnprepare, "lock", time.Since(started), err)
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
	if err := p.releaseCompute(ctx, record); err != nil {
		return err
	}
	release, err := p.gpus.lock(ctx, gpus(record.Devices))
	p.Observe(opUnprepare, "lock", time.Since(started), err)
	if err != nil {
		return err
	}
	defer release()
	// gofail: var unprepareLocked struct{}
	return p.undo(ctx, opUnprepare, record)
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
