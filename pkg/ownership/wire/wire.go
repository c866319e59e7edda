// Package wire turns snapshots of pkg/ownership into the messages of the ownership
// service and back, and applies the changes that the service sends.
//
// It knows both forms and nothing else: no connection, and not when what is sent.
package wire

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	ownershipv1 "apportion.dev/apportion/api/ownership/v1"
	"apportion.dev/apportion/pkg/ownership"
)

// ErrOtherGeneration is wrapped by ApplyChange's error for a change that does not
// lead on from the snapshot: ask for a new one.
var ErrOtherGeneration = errors.New("the change belongs to another generation")

// SnapshotToProto is the message for a snapshot, with its owners in their order.
func SnapshotToProto(s ownership.Snapshot) *ownershipv1.Snapshot {
	return &ownershipv1.Snapshot{
		Instance: s.Instance, Generation: s.Generation, Time: timestamp(s.Time), Verified: timestamp(s.Verified),
		Problem: text(s.Problem), Owners: ownersToProto(s.Owners),
	}
}

// SnapshotFromProto is the snapshot of a message, sorted. It fails if a time in it is
// none.
func SnapshotFromProto(m *ownershipv1.Snapshot) (ownership.Snapshot, error) {
	owners, err := ownersFromProto(m.GetOwners())
	if err != nil {
		return ownership.Snapshot{}, fmt.Errorf("snapshot of generation %d: %w", m.GetGeneration(), err)
	}
	s := ownership.Snapshot{
		Instance: m.GetInstance(), Generation: m.GetGeneration(), Problem: m.GetProblem(),
		Owners: ownership.Apply(nil, owners, nil),
	}
	if err := errors.Join(setTime(&s.Time, m.GetTime()), setTime(&s.Verified, m.GetVerified())); err != nil {
		return ownership.Snapshot{}, fmt.Errorf("snapshot of generation %d: %w", m.GetGeneration(), err)
	}
	return s, nil
}

// ChangeToProto is the message that leads from one snapshot of an instance to a later
// one.
func ChangeToProto(before, after ownership.Snapshot) *ownershipv1.Change {
	changed, removed := ownership.Diff(before.Owners, after.Owners)
	m := &ownershipv1.Change{
		From: before.Generation, Generation: after.Generation, Time: timestamp(after.Time), Verified: timestamp(after.Verified),
		Problem: text(after.Problem), Changed: ownersToProto(changed),
	}
	for _, k := range removed {
		m.Removed = append(m.Removed, &ownershipv1.Key{
			Driver: k.Driver, Pool: k.Pool, Device: k.Device, ShareId: string(k.ShareID),
			ClaimUid: string(k.ClaimUID), Request: k.Request,
		})
	}
	return m
}

// ApplyChange is the snapshot to which a change leads from another, which stays as it
// is. It fails with ErrOtherGeneration unless the change was made for that snapshot,
// and if a time in it is none.
func ApplyChange(before ownership.Snapshot, m *ownershipv1.Change) (ownership.Snapshot, error) {
	if m.GetFrom() != before.Generation {
		return ownership.Snapshot{}, fmt.Errorf("change from generation %d to %d, known is %d: %w",
			m.GetFrom(), m.GetGeneration(), before.Generation, ErrOtherGeneration)
	}
	changed, err := ownersFromProto(m.GetChanged())
	if err != nil {
		return ownership.Snapshot{}, fmt.Errorf("change to generation %d: %w", m.GetGeneration(), err)
	}
	removed := make([]ownership.Key, 0, len(m.GetRemoved()))
	for _, k := range m.GetRemoved() {
		removed = append(removed, ownership.Key{
			Driver: k.GetDriver(), Pool: k.GetPool(), Device: k.GetDevice(), ShareID: types.UID(k.GetShareId()),
			ClaimUID: types.UID(k.GetClaimUid()), Request: k.GetRequest(),
		})
	}
	s := ownership.Snapshot{
		Instance: before.Instance, Generation: m.GetGeneration(), Problem: m.GetProblem(),
		Owners: ownership.Apply(before.Owners, changed, removed),
	}
	if err := errors.Join(setTime(&s.Time, m.GetTime()), setTime(&s.Verified, m.GetVerified())); err != nil {
		return ownership.Snapshot{}, fmt.Errorf("change to generation %d: %w", m.GetGeneration(), err)
	}
	return s, nil
}

// VerifiedToProto is the message that says that a snapshot is still true, or why it
// may not be.
func VerifiedToProto(s ownership.Snapshot) *ownershipv1.Verified {
	return &ownershipv1.Verified{Verified: timestamp(s.Verified), Problem: text(s.Problem)}
}

// ApplyVerified is a snapshot with what the message says of it. It fails if its time
// is none.
func ApplyVerified(before ownership.Snapshot, m *ownershipv1.Verified) (ownership.Snapshot, error) {
	after := before
	after.Problem = m.GetProblem()
	if err := setTime(&after.Verified, m.GetVerified()); err != nil {
		return ownership.Snapshot{}, err
	}
	return after, nil
}

func ownersToProto(owners []ownership.Owner) []*ownershipv1.Owner {
	out := make([]*ownershipv1.Owner, 0, len(owners))
	for i := range owners {
		out = append(out, ownerToProto(&owners[i]))
	}
	return out
}

func ownerToProto(o *ownership.Owner) *ownershipv1.Owner {
	d := o.Device
	m := &ownershipv1.Owner{
		Device: &ownershipv1.Device{
			Driver: d.Driver, Pool: d.Pool, Name: d.Name, Type: d.Type, Uuid: d.UUID, ParentUuid: d.ParentUUID,
			Profile: d.Profile, ShareId: string(d.ShareID), Fraction: d.Fraction,
		},
		Claim:   &ownershipv1.Claim{Namespace: o.Claim.Namespace, Name: o.Claim.Name, Uid: string(o.Claim.UID)},
		Request: o.Request, AdminAccess: o.AdminAccess, Consumed: o.Consumed, MemoryLimitBytes: o.MemoryLimitBytes,
		Since: timestamp(o.Since),
	}
	if d.GPUInstanceID != nil {
		m.Device.GpuInstanceId = ptr.To(int32(*d.GPUInstanceID))
	}
	for i := range o.Consumers {
		m.Consumers = append(m.Consumers, consumerToProto(&o.Consumers[i]))
	}
	return m
}

func consumerToProto(c *ownership.Consumer) *ownershipv1.Consumer {
	m := &ownershipv1.Consumer{
		Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID), Node: c.Node, State: string(c.State),
		Labels: c.Labels,
	}
	if w := c.Workload; w != nil {
		m.Workload = &ownershipv1.Workload{ApiVersion: text(w.APIVersion), Kind: text(w.Kind), Name: text(w.Name)}
	}
	for _, container := range c.Containers {
		m.Containers = append(m.Containers, &ownershipv1.Container{Name: container.Name, Kind: string(container.Kind), Id: container.ID, Started: container.Started})
	}
	return m
}

func ownersFromProto(messages []*ownershipv1.Owner) ([]ownership.Owner, error) {
	owners := make([]ownership.Owner, 0, len(messages))
	for _, m := range messages {
		o := ownerFromProto(m)
		if err := setTime(&o.Since, m.GetSince()); err != nil {
			return nil, fmt.Errorf("owner %s/%s of device %s: %w", o.Claim.Namespace, o.Claim.Name, o.Device.Name, err)
		}
		owners = append(owners, o)
	}
	return owners, nil
}

// ownerFromProto is the owner of a message without its time.
func ownerFromProto(m *ownershipv1.Owner) ownership.Owner {
	d, claim := m.GetDevice(), m.GetClaim()
	o := ownership.Owner{
		Device: ownership.Device{
			Driver: d.GetDriver(), Pool: d.GetPool(), Name: d.GetName(), Type: d.GetType(), UUID: d.GetUuid(),
			ParentUUID: d.GetParentUuid(), Profile: d.GetProfile(), ShareID: types.UID(d.GetShareId()), Fraction: d.GetFraction(),
		},
		Claim:   ownership.ClaimRef{Namespace: claim.GetNamespace(), Name: claim.GetName(), UID: types.UID(claim.GetUid())},
		Request: m.GetRequest(), AdminAccess: m.GetAdminAccess(),
	}
	if len(m.GetConsumed()) > 0 {
		o.Consumed = m.GetConsumed()
	}
	if d != nil && d.GpuInstanceId != nil {
		o.Device.GPUInstanceID = ptr.To(int(d.GetGpuInstanceId()))
	}
	if m != nil && m.MemoryLimitBytes != nil {
		o.MemoryLimitBytes = ptr.To(m.GetMemoryLimitBytes())
	}
	for _, consumer := range m.GetConsumers() {
		o.Consumers = append(o.Consumers, consumerFromProto(consumer))
	}
	return o
}

func consumerFromProto(m *ownershipv1.Consumer) ownership.Consumer {
	c := ownership.Consumer{
		Namespace: m.GetNamespace(), Name: m.GetName(), UID: types.UID(m.GetUid()), Node: m.GetNode(),
		State: ownership.PodState(m.GetState()), Labels: m.GetLabels(),
	}
	if w := m.GetWorkload(); w != nil {
		c.Workload = &ownership.Workload{APIVersion: w.GetApiVersion(), Kind: w.GetKind(), Name: w.GetName()}
	}
	for _, container := range m.GetContainers() {
		c.Containers = append(c.Containers, ownership.Container{
			Name: container.GetName(), Kind: ownership.ContainerKind(container.GetKind()), ID: container.GetId(), Started: container.GetStarted(),
		})
	}
	return c
}

// text is what a message can carry. Causes of errors may be any bytes, and so may what a
// pod says of its maker: the API server does not look at that, and one such pod would
// cost all watchers the whole message.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// timestamp is nil for the zero time.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// setTime sets t to a message's time in UTC, or to the zero time if it has none.
func setTime(t *time.Time, m *timestamppb.Timestamp) error {
	if m == nil {
		*t = time.Time{}
		return nil
	}
	if err := m.CheckValid(); err != nil {
		return fmt.Errorf("time: %w", err)
	}
	*t = m.AsTime()
	return nil
}
