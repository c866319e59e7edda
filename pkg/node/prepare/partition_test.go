package prepare

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/mig"
)

// newMIGNode is a node whose GPU-a has two halves of 20Gi and a quarter beside
// the whole.
func newMIGNode(t *testing.T, dir string) *node {
	t.Helper()
	n := newNode(t, dir)
	whole := n.targets["gpu-a"]
	whole.Modes = true
	n.targets["gpu-a"] = whole
	for name, place := range map[string]Placement{
		"gpu-a-mig-3g-20gb-0": {Profile: "3g.20gb", Start: 0, Size: 4},
		"gpu-a-mig-3g-20gb-4": {Profile: "3g.20gb", Start: 4, Size: 4},
		"gpu-a-mig-1g-5gb-3":  {Profile: "1g.5gb", Start: 3, Size: 1},
	} {
		n.targets[name] = Target{
			GPU: "GPU-a", Placement: &place,
			Capacity: map[string]resource.Quantity{"memory": resource.MustParse("20Gi")},
		}
	}
	return n
}

func TestPartitionIsMadeAndDestroyedWithItsClaim(t *testing.T) {
	dir := t.TempDir()
	n := newMIGNode(t, dir)
	devices := n.mustPrepare(t, claim("1", share("gpu-a-mig-3g-20gb-0", "s1", "20Gi")))
	if got := n.mig.list(); !slices.Equal(got, []string{"GPU-a 3g.20gb@0 MIG-1"}) {
		t.Fatalf("partitions are %q", got)
	}
	if devices[0].MIG == nil || devices[0].MIG.UUID != "MIG-1" || devices[0].MIG.GPUInstance != 7 {
		t.Errorf("MIG device is %+v", devices[0].MIG)
	}
	if got := n.specs.of("1"); len(got) != 1 || got[0] != "1-gpu-a-mig-3g-20gb-0-s1=MIG-1" {
		t.Errorf("spec is %q", got)
	}
	// Another process reads the same from the record.
	n.start(t, dir, "boot-1")
	held, err := n.Held()
	if err != nil || len(held) != 1 || held[0].Partition != (inventory.Partition{GPU: "GPU-a", Profile: "3g.20gb", Start: 0}) || held[0].Instance.UUID != "MIG-1" {
		t.Fatalf("held are %+v, %v", held, err)
	}
	if again := n.mustPrepare(t, claim("1", share("gpu-a-mig-3g-20gb-0", "s1", "20Gi"))); again[0].MIG.UUID != "MIG-1" {
		t.Errorf("prepared again as %+v", again[0].MIG)
	}
	if err := n.Unprepare(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if got := n.mig.list(); len(got) != 0 || len(recordFiles(t, dir)) != 0 {
		t.Errorf("left partitions %q, records %q", got, recordFiles(t, dir))
	}
}

// TestAClaimsPartitionIsNotTakenForAnAdministrators: it was, and "not on this node any
// more" for the next claim, when a claim came and went while the hardware was read.
func TestAClaimsPartitionIsNotTakenForAnAdministrators(t *testing.T) {
	n := newMIGNode(t, t.TempDir())
	n.mustPrepare(t, claim("1", result("gpu-a-mig-3g-20gb-0")))
	if err := n.Unprepare(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	released := n.NoteReleased()
	n.mustPrepare(t, claim("2", result("gpu-a-mig-3g-20gb-4")))
	if err := n.Unprepare(t.Context(), "2"); err != nil {
		t.Fatal(err)
	}
	want := HeldPartition{Partition: inventory.Partition{GPU: "GPU-a", Profile: "3g.20gb", Start: 4}}
	if got := released(); len(got) != 1 || got[0] != want {
		t.Errorf("released are %+v, want %+v", got, want)
	}
}

func TestPartitionOfAFailedPrepareIsDestroyed(t *testing.T) {
	n := newMIGNode(t, t.TempDir())
	n.specs.failure = errors.New("disk is full")
	_, err := n.Prepare(t.Context(), claim("1", result("gpu-a-mig-3g-20gb-0")))
	wantError(t, err, "disk is full")
	n.specs.failure, n.mig.failEnsure = nil, errors.New("insufficient resources")
	_, err = n.Prepare(t.Context(), claim("1", result("gpu-a-mig-3g-20gb-4")))
	wantError(t, err, "make the partition", "insufficient resources")
	if got := n.mig.list(); len(got) != 0 {
		t.Errorf("left partitions %q", got)
	}
}

func TestSharesOfAPartitionKeepItUntilTheLast(t *testing.T) {
	n := newMIGNode(t, t.TempDir())
	n.mustPrepare(t, claim("1", share("gpu-a-mig-3g-20gb-0", "s1", "10Gi")))
	devices := n.mustPrepare(t, claim("2", share("gpu-a-mig-3g-20gb-0", "s2", "10Gi")))
	if devices[0].MIG.UUID != "MIG-1" || devices[0].NotLimited == "" || devices[0].MemoryLimit != nil {
		t.Errorf("second share is %+v", devices[0])
	}
	if err := n.Unprepare(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if got := n.mig.list(); len(got) != 1 {
		t.Fatalf("the other share's partition is gone: %q", got)
	}
	if err := n.Unprepare(t.Context(), "2"); err != nil {
		t.Fatal(err)
	}
	if got := n.mig.list(); len(got) != 0 {
		t.Errorf("left %q", got)
	}
}

func TestWholeGPUAndPartitionsExcludeEachOther(t *testing.T) {
	tests := []struct {
		name, first, second string
		wantError           bool
	}{
		{"whole, then partition", "gpu-a", "gpu-a-mig-3g-20gb-0", true},
		{"partition, then whole", "gpu-a-mig-3g-20gb-0", "gpu-a", true},
		{"partitions that overlap", "gpu-a-mig-3g-20gb-0", "gpu-a-mig-1g-5gb-3", true},
		{"the same partition", "gpu-a-mig-3g-20gb-0", "gpu-a-mig-3g-20gb-0", true},
		{"partitions side by side", "gpu-a-mig-3g-20gb-0", "gpu-a-mig-3g-20gb-4", false},
		{"partition of one GPU and the other GPU", "gpu-a-mig-3g-20gb-0", "gpu-b", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newMIGNode(t, t.TempDir())
			n.mustPrepare(t, claim("1", result(test.first)))
			_, err := n.Prepare(t.Context(), claim("2", result(test.second)))
			if test.wantError {
				wantError(t, err, test.second, "team/claim-1")
			} else if err != nil {
				t.Fatal(err)
			}
			both := newMIGNode(t, t.TempDir())
			if _, err := both.Prepare(t.Context(), claim("3", result(test.first), result(test.second))); (err != nil) != test.wantError {
				t.Errorf("both in one claim: %v", err)
			}
		})
	}
}

func TestPartitionThatSomebodyDestroyedIsMadeAgain(t *testing.T) {
	n := newMIGNode(t, t.TempDir())
	c := claim("1", result("gpu-a-mig-3g-20gb-0"))
	n.mustPrepare(t, c)
	clear(n.mig.instances)
	devices := n.mustPrepare(t, c)
	if devices[0].MIG.UUID != "MIG-2" || n.specs.of("1")[0] != "1-gpu-a-mig-3g-20gb-0=MIG-2" {
		t.Errorf("prepared as %+v, spec %q", devices[0].MIG, n.specs.of("1"))
	}
	if reason := strings.Join(n.repaired, ";"); !strings.Contains(reason, "destroyed its partition gpu-a-mig-3g-20gb-0") {
		t.Errorf("repaired because of %q", reason)
	}
	clear(n.mig.instances)
	if err := n.Unprepare(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
}

func TestPartitionsAreBackAfterAReboot(t *testing.T) {
	dir := t.TempDir()
	n := newMIGNode(t, dir)
	n.mustPrepare(t, claim("1", share("gpu-a-mig-3g-20gb-0", "s1", "10Gi")))
	n.mustPrepare(t, claim("2", share("gpu-a-mig-3g-20gb-0", "s2", "10Gi")))
	clear(n.mig.instances)
	n.start(t, dir, "boot-2")
	if err := n.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.mig.list(); !slices.Equal(got, []string{"GPU-a 3g.20gb@0 MIG-2"}) {
		t.Errorf("partitions are %q", got)
	}
	for _, uid := range []string{"1", "2"} {
		if got := n.specs.of(claim(uid).UID); len(got) != 1 || !strings.HasSuffix(got[0], "=MIG-2") {
			t.Errorf("spec of claim %s is %q", uid, got)
		}
	}
}

func TestAKilledPreparesPartitionIsRemovedAtTheStart(t *testing.T) {
	dir := t.TempDir()
	writeRecord(t, dir, "1.preparing", strings.NewReplacer(
		`"device":"gpu-a"`, `"device":"gpu-a-mig-3g-20gb-0","placement":{"profile":"3g.20gb","start":0,"size":4}`,
	).Replace(preparingRecord))
	n := newMIGNode(t, dir)
	n.mig.instances[inventory.Partition{GPU: "GPU-a", Profile: "3g.20gb", Start: 0}] = mig.Instance{UUID: "MIG-orphan"}
	n.mig.instances[inventory.Partition{GPU: "GPU-a", Profile: "3g.20gb", Start: 4}] = mig.Instance{UUID: "MIG-admin"}
	if err := n.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.mig.list(); !slices.Equal(got, []string{"GPU-a 3g.20gb@4 MIG-admin"}) {
		t.Errorf("partitions are %q, want the administrator's alone", got)
	}
}

func TestAdministratorsPartitionIsUsedAndKept(t *testing.T) {
	n := newMIGNode(t, t.TempDir())
	n.targets["gpu-a-mig-3g-20gb-4"] = Target{
		GPU: "GPU-a", MIGDevice: "MIG-admin", Placement: &Placement{Profile: "3g.20gb", Start: 4, Size: 4, Given: true},
	}
	n.mig.instances[inventory.Partition{GPU: "GPU-a", Profile: "3g.20gb", Start: 4}] = mig.Instance{UUID: "MIG-admin"}
	n.mustPrepare(t, claim("1", result("gpu-a-mig-3g-20gb-4")))
	if got := n.specs.of("1"); len(got) != 1 || got[0] != "1-gpu-a-mig-3g-20gb-4=MIG-admin" {
		t.Errorf("spec is %q", got)
	}
	if held, err := n.Held(); err != nil || len(held) != 0 {
		t.Errorf("held are %+v, %v; want none of ours", held, err)
	}
	if err := n.Unprepare(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if got := n.mig.list(); len(got) != 1 {
		t.Error("the administrator's partition was destroyed")
	}
}

func TestAdministratorsPartitionThatWasMadeAgainReachesTheClaim(t *testing.T) {
	given := func(uuid string) Target {
		return Target{GPU: "GPU-a", MIGDevice: uuid, Placement: &Placement{Profile: "3g.20gb", Start: 4, Size: 4, Given: true}}
	}
	tests := []struct {
		name    string
		now     Target
		want    string
		wantErr []string
	}{
		{"as it was", given("MIG-admin-1"), "MIG-admin-1", nil},
		{"made again, with another UUID", given("MIG-admin-2"), "MIG-admin-2", nil},
		{"destroyed, so that it could be made on demand", Target{GPU: "GPU-a", Placement: &Placement{Profile: "3g.20gb", Start: 4, Size: 4}}, "",
			[]string{"gpu-a-mig-3g-20gb-4", "MIG-admin-1", "delete the pod"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newMIGNode(t, t.TempDir())
			n.targets["gpu-a-mig-3g-20gb-4"] = given("MIG-admin-1")
			c := claim("1", result("gpu-a-mig-3g-20gb-4"))
			n.mustPrepare(t, c)
			n.targets["gpu-a-mig-3g-20gb-4"] = test.now
			record, err := n.Prepare(t.Context(), c)
			if test.wantErr != nil {
				wantError(t, err, test.wantErr...)
				if made := n.mig.list(); len(made) != 0 {
					t.Errorf("made %q", made)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if mig := record.Devices[0].MIG; mig == nil || mig.UUID != test.want {
				t.Errorf("prepared again as %+v, want %s", mig, test.want)
			}
			if got := n.specs.of("1"); len(got) != 1 || got[0] != "1-gpu-a-mig-3g-20gb-4="+test.want {
				t.Errorf("spec is %q", got)
			}
		})
	}
}

func TestAdminLooksAtAPartitionThatIsInUse(t *testing.T) {
	n := newMIGNode(t, t.TempDir())
	watch := share("gpu-a-mig-3g-20gb-0", "s0", "0")
	watch.AdminAccess = ptr.To(true)
	_, err := n.Prepare(t.Context(), claim("admin", watch))
	wantError(t, err, "does not exist while nobody uses it")
	n.mustPrepare(t, claim("owner", result("gpu-a-mig-3g-20gb-0")))
	n.mustPrepare(t, claim("admin", watch))
	if got := n.specs.of("admin"); len(got) != 1 || !strings.HasSuffix(got[0], "=MIG-1") {
		t.Errorf("spec is %q", got)
	}
	if err := n.Unprepare(t.Context(), "admin"); err != nil {
		t.Fatal(err)
	}
	if got := n.mig.list(); len(got) != 1 {
		t.Error("looking destroyed the partition")
	}
}

// removal runs a function when a partition was destroyed.
type removal struct {
	*fakePartitions
	then func()
}

func (r removal) Remove(ctx context.Context, p inventory.Partition) error {
	defer r.then()
	return r.fakePartitions.Remove(ctx, p)
}

func TestPartitionOfAClaimThatEndsIsNotTakenForDestroyed(t *testing.T) {
	n := newMIGNode(t, t.TempDir())
	n.mustPrepare(t, claim("1", result("gpu-a-mig-3g-20gb-0")))
	n.Partitions = removal{n.mig, func() {
		held, err := n.Held()
		if err != nil || len(held) != 1 || held[0].Instance != nil {
			t.Errorf("held are %+v, %v; want the partition without an instance", held, err)
		}
	}}
	if err := n.Unprepare(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
}
