package prepare

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/mig"
)

// The driver is upgraded while pods run. Their claims' records are those of the
// version before, and must go on meaning the same.
func TestAClaimOutlivesAnUpgradeOfTheDriver(t *testing.T) {
	dir := t.TempDir()
	n := newMIGNode(t, dir)
	old, err := os.ReadFile(filepath.Join("testdata", "claim-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "claims", "1.json"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	partition := inventory.Partition{GPU: "GPU-a", Profile: "3g.20gb", Start: 4}
	instance := mig.Instance{GPUInstance: 11, UUID: "MIG-1"}
	n.mig.instances[partition] = instance

	records, err := n.Prepared()
	if err != nil || len(records) != 1 {
		t.Fatalf("prepared are %v, %v", records, err)
	}
	want := &Record{
		Version: 1, Claim: ClaimRef{Namespace: "default", Name: "claim-1", UID: "1"}, State: Prepared,
		Since: time.Date(2026, 11, 20, 8, 15, 0, 0, time.UTC),
		Devices: []Device{{
			Request: "gpu", Pool: "node-a", Device: "gpu-a-mig-3g-20gb-4", GPU: "GPU-a",
			ShareID: ptr.To(types.UID("s1")), Consumed: map[string]string{"memory": "10Gi"},
			CDIDevice: "gpu.example.com/claim=1-gpu-a-mig-3g-20gb-4-s1",
			Placement: &Placement{Profile: "3g.20gb", Start: 4, Size: 4}, MIG: &instance,
			NotLimited: "NVML limits the memory of no share of a MIG partition",
		}, {
			Request: "seen", Pool: "node-a", Device: "gpu-b", GPU: "GPU-b", AdminAccess: true,
			CDIDevice: "gpu.example.com/claim=1-gpu-b", TimeSlice: "Long",
		}},
		BootID: "boot-1", DriverVersion: "580.95.05", SpecDigest: "sha256:00",
	}
	if diff := cmp.Diff(want, records[0], cmpopts.IgnoreUnexported(Record{}, Device{})); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	// The same goes back to the disk, so that the version before reads it too.
	if again, err := records[0].encode(); err != nil || string(again) != string(old) {
		t.Errorf("written again (%v): %s", err, cmp.Diff(string(old), string(again)))
	}
	held, err := n.Held()
	if diff := cmp.Diff([]HeldPartition{{partition, &instance}}, held); err != nil || diff != "" {
		t.Errorf("held (-want +got), %v:\n%s", err, diff)
	}
	if err := n.Unprepare(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if left := n.mig.list(); len(left) != 0 {
		t.Errorf("left partitions %q", left)
	}
}
