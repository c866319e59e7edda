package wire

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/ptr"

	ownershipv1 "apportion.dev/apportion/api/ownership/v1"
	"apportion.dev/apportion/pkg/ownership"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 5, time.UTC)

func owner(device string, consumers ...ownership.Consumer) ownership.Owner {
	return ownership.Owner{
		Device: ownership.Device{Driver: "d", Pool: "p", Name: device},
		Claim:  ownership.ClaimRef{Namespace: "ns", Name: "c-" + device, UID: "uid-of-c"}, Request: "r", Consumers: consumers,
	}
}

// full has something in every field.
func full() ownership.Snapshot {
	share := owner("a", ownership.Consumer{
		Namespace: "ns", Name: "pod", UID: "p1", Node: "node", State: ownership.Running,
		Workload:   &ownership.Workload{APIVersion: "apps/v1", Kind: "Deployment", Name: "w"},
		Labels:     map[string]string{"app": "train"},
		Containers: []ownership.Container{{Name: "init", Kind: ownership.Sidecar, ID: "id", Started: true}, {Name: "main", Kind: ownership.RegularContainer}},
	}, ownership.Consumer{Namespace: "ns", Name: "pod-2", UID: "p2", State: ownership.Gone})
	share.Device.Type, share.Device.UUID, share.Device.ParentUUID = "mig", "MIG-1", "GPU-1"
	share.Device.Profile, share.Device.GPUInstanceID, share.Device.ShareID, share.Device.Fraction = "1g.10gb", ptr.To(0), "s", 0.0625
	share.AdminAccess, share.Consumed, share.MemoryLimitBytes = true, map[string]string{"memory": "5Gi", "shares": "1"}, ptr.To[int64](5<<30)
	share.Since = noon.Add(-time.Hour)
	return ownership.Snapshot{
		Instance: "i", Generation: 7, Time: noon, Verified: noon.Add(time.Second), Problem: "pods: connection refused",
		Owners: []ownership.Owner{share, owner("b")},
	}
}

// overTheWire encodes and decodes a message.
func overTheWire[M proto.Message](t *testing.T, from, to M) M {
	t.Helper()
	data, err := proto.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(data, to); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestSnapshotThereAndBack(t *testing.T) {
	for name, want := range map[string]ownership.Snapshot{
		"full":  full(),
		"empty": {Owners: []ownership.Owner{}},
	} {
		got, err := SnapshotFromProto(overTheWire(t, SnapshotToProto(want), &ownershipv1.Snapshot{}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The message is written out by hand here: other programs read it.
func TestSnapshotMessage(t *testing.T) {
	const text = `{
"instance": "i", "generation": "7", "time": "2026-01-02T12:00:00.000000005Z", "verified": "2026-01-02T12:00:01.000000005Z",
"problem": "pods: connection refused",
"owners": [{
  "device": {"driver": "d", "pool": "p", "name": "a", "type": "mig", "uuid": "MIG-1", "parentUuid": "GPU-1", "profile": "1g.10gb", "gpuInstanceId": 0, "shareId": "s", "fraction": 0.0625},
  "claim": {"namespace": "ns", "name": "c-a", "uid": "uid-of-c"}, "request": "r", "adminAccess": true,
  "consumed": {"memory": "5Gi", "shares": "1"}, "memoryLimitBytes": "5368709120", "since": "2026-01-02T11:00:00.000000005Z",
  "consumers": [
    {"namespace": "ns", "name": "pod", "uid": "p1", "node": "node", "state": "Running", "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}, "labels": {"app": "train"},
     "containers": [{"name": "init", "kind": "sidecar", "id": "id", "started": true}, {"name": "main", "kind": "regular"}]},
    {"namespace": "ns", "name": "pod-2", "uid": "p2", "state": "Gone"}]
}, {
  "device": {"driver": "d", "pool": "p", "name": "b"}, "claim": {"namespace": "ns", "name": "c-b", "uid": "uid-of-c"}, "request": "r"
}]}`
	want := &ownershipv1.Snapshot{}
	if err := protojson.Unmarshal([]byte(text), want); err != nil {
		t.Fatal(err)
	}
	if got := SnapshotToProto(full()); !proto.Equal(want, got) {
		t.Errorf("the message is\n%s", protojson.Format(got))
	}
}

func TestChangeThereAndBack(t *testing.T) {
	before := ownership.Snapshot{
		Instance: "i", Generation: 3, Time: noon, Verified: noon, Problem: "claims: not found",
		Owners: []ownership.Owner{owner("a"), owner("b"), owner("c")},
	}
	after := ownership.Snapshot{
		Instance: "i", Generation: 4, Time: noon.Add(time.Second), Verified: noon.Add(time.Minute),
		Owners: []ownership.Owner{owner("a"), owner("aa"), owner("c", ownership.Consumer{Name: "p"})},
	}
	m := overTheWire(t, ChangeToProto(before, after), &ownershipv1.Change{})
	if len(m.GetChanged()) != 2 || len(m.GetRemoved()) != 1 || m.GetRemoved()[0].GetDevice() != "b" {
		t.Errorf("the change is not the least one: %s", protojson.Format(m))
	}
	got, err := ApplyChange(before, m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, got); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if len(before.Owners) != 3 || before.Owners[1].Device.Name != "b" {
		t.Errorf("before has changed: %v", before.Owners)
	}
}

func TestChangeOfAnotherGeneration(t *testing.T) {
	_, err := ApplyChange(ownership.Snapshot{Generation: 3}, &ownershipv1.Change{From: 4, Generation: 5})
	if !errors.Is(err, ErrOtherGeneration) {
		t.Errorf("error is %v, want ErrOtherGeneration", err)
	}
}

func TestVerifiedThereAndBack(t *testing.T) {
	before := full()
	now := before
	now.Verified, now.Problem = noon.Add(time.Hour), ""
	got, err := ApplyVerified(before, overTheWire(t, VerifiedToProto(now), &ownershipv1.Verified{}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(now, got); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
}

func TestBadMessages(t *testing.T) {
	never := &timestamppb.Timestamp{Seconds: 1 << 60}
	for name, m := range map[string]*ownershipv1.Snapshot{
		"time":     {Time: never},
		"verified": {Verified: never},
		"since":    {Owners: []*ownershipv1.Owner{{Since: never}}},
	} {
		if _, err := SnapshotFromProto(m); err == nil {
			t.Errorf("a snapshot whose %s is no time was taken", name)
		}
	}
	for name, m := range map[string]*ownershipv1.Change{
		"time":     {Time: never},
		"verified": {Verified: never},
		"since":    {Changed: []*ownershipv1.Owner{{Since: never}}},
	} {
		if _, err := ApplyChange(ownership.Snapshot{}, m); err == nil {
			t.Errorf("a change whose %s is no time was applied", name)
		}
	}
	if _, err := ApplyVerified(full(), &ownershipv1.Verified{Verified: never}); err == nil {
		t.Error("a moment that is none was taken")
	}
}

func TestMessagesWithHoles(t *testing.T) {
	empty, err := SnapshotFromProto(nil)
	if err != nil || empty.Owners == nil || len(empty.Owners) != 0 {
		t.Errorf("no message gives %v, %v", empty, err)
	}
	got, err := SnapshotFromProto(&ownershipv1.Snapshot{Owners: []*ownershipv1.Owner{nil, {Consumers: []*ownershipv1.Consumer{nil}}}})
	if err != nil || len(got.Owners) != 1 {
		t.Errorf("owners without a name give %v, %v; want one, as they have one key", got.Owners, err)
	}
	if s, err := ApplyChange(ownership.Snapshot{}, nil); err != nil || s.Generation != 0 {
		t.Errorf("no change gives %v, %v", s, err)
	}
}

func TestOwnersAreSortedOnArrival(t *testing.T) {
	m := SnapshotToProto(full())
	m.Owners[0], m.Owners[1] = m.Owners[1], m.Owners[0]
	got, err := SnapshotFromProto(m)
	if err != nil || !ownership.Equal(got.Owners, full().Owners) {
		t.Errorf("owners are %v, %v", got.Owners, err)
	}
}

// Problems quote errors, which may be any bytes; a message may not.
func TestProblemThatIsNoText(t *testing.T) {
	m := SnapshotToProto(ownership.Snapshot{Problem: "pods: \xff refused"})
	if got := overTheWire(t, m, &ownershipv1.Snapshot{}).GetProblem(); got != "pods: \uFFFD refused" {
		t.Errorf("problem is %q", got)
	}
}

func FuzzSnapshot(f *testing.F) {
	data, err := proto.Marshal(SnapshotToProto(full()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &ownershipv1.Snapshot{}
		if proto.Unmarshal(data, m) != nil {
			t.Skip()
		}
		s, err := SnapshotFromProto(m)
		if err != nil {
			t.Skip()
		}
		again, err := SnapshotFromProto(SnapshotToProto(s))
		if err != nil || !proto.Equal(SnapshotToProto(s), SnapshotToProto(again)) {
			t.Errorf("there and back it is %v (%v), not %v", again, err, s)
		}
	})
}
