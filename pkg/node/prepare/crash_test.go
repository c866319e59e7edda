package prepare

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/node/cdi"
)

// preparingRecord is what a process that was killed in the middle of Prepare
// leaves, written by hand.
const preparingRecord = `{"version":1,"claim":{"namespace":"team","name":"claim-1","uid":"1"},
"since":"2026-01-02T03:04:05Z","bootID":"boot-1","driverVersion":"580.95.05",
"devices":[{"request":"gpu","pool":"node-a","device":"gpu-a","gpu":"GPU-a","cdiDevice":"gpu.apportion.dev/claim=1-gpu-a"}]}`

func writeRecord(t *testing.T, dir, uid, content string) {
	t.Helper()
	claims := filepath.Join(dir, "claims")
	if err := os.MkdirAll(claims, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(claims, uid+".json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKilledInPrepare(t *testing.T) {
	tests := []struct {
		name string
		next func(t *testing.T, n *node)
		// wantRecords is what is left after that.
		wantRecords int
	}{
		{"the retry finishes it", func(t *testing.T, n *node) { n.mustPrepare(t, claim("1", result("gpu-a"))) }, 1},
		{"the unprepare undoes it", func(t *testing.T, n *node) {
			if err := n.Unprepare(t.Context(), "1"); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"the start undoes it", func(t *testing.T, n *node) {
			if err := n.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writeRecord(t, dir, "1.preparing", preparingRecord)
			n := newNode(t, dir)
			n.specs.specs["1"] = []string{"half"}
			test.next(t, n)
			if got := recordFiles(t, dir); len(got) != test.wantRecords {
				t.Errorf("records are %q, want %d", got, test.wantRecords)
			}
			if test.wantRecords == 0 {
				if n.specs.of("1") != nil {
					t.Error("the spec was left")
				}
				n.mustPrepare(t, claim("2", result("gpu-a")))
			}
		})
	}
}

func TestUnreadableRecordCostsOnlyItsOwnClaim(t *testing.T) {
	tests := map[string]string{
		"damaged":           `{"version":1,"claim":{"uid":"1"`,
		"empty":             ``,
		"newer version":     `{"version":2,"claim":{"uid":"1"}}`,
		"without a version": `{"claim":{"uid":"1"}}`,
		"another claim's":   strings.ReplaceAll(preparingRecord, `"uid":"1"`, `"uid":"7"`),
		"not JSON":          "\x00\x01\x02",
	}
	for name, content := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeRecord(t, dir, "1", content)
			n := newNode(t, dir)
			n.specs.specs["1"] = []string{"from before"}
			n.mustPrepare(t, claim("2", result("gpu-b")))
			if err := n.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(n.damaged) != 1 || n.damaged[0] != "1" {
				t.Errorf("told of %q, want claim 1 once", n.damaged)
			}
			kept, err := os.ReadDir(filepath.Join(dir, "claims", "damaged"))
			if err != nil || len(kept) != 1 {
				t.Fatalf("set aside: %v, %v; want one file", kept, err)
			}
			data, err := os.ReadFile(filepath.Join(dir, "claims", "damaged", kept[0].Name()))
			if err != nil || string(data) != content {
				t.Errorf("kept %q, %v; want the content as it was", data, err)
			}
			n.start(t, dir, "boot-1")
			if err := n.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n.specs.of("1") == nil {
				t.Error("containers of the claim's running pod cannot start again: its spec was removed")
			}
			n.mustPrepare(t, claim("1", result("gpu-a")))
			if err := n.Unprepare(t.Context(), "1"); err != nil {
				t.Error(err)
			}
			if n.specs.of("1") != nil {
				t.Error("the spec was left")
			}
			if n.specs.of("2") == nil {
				t.Error("the neighbour lost its spec")
			}
		})
	}
}

// A file whose reading fails as that of a broken disk does.
const unreadableFile = "/proc/self/mem"

func TestRecordThatTheDiskLostCostsOnlyItsOwnClaim(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	if err := os.Symlink(unreadableFile, filepath.Join(dir, "claims", "1.json")); err != nil {
		t.Fatal(err)
	}
	n.mustPrepare(t, claim("2", result("gpu-b")))
	if len(n.damaged) != 1 || n.damaged[0] != "1" {
		t.Errorf("told of %q, want claim 1 once", n.damaged)
	}
}

func TestADamagedRecordThatWasReplacedIsNotSetAside(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	writeRecord(t, dir, "1", "{")
	path := filepath.Join(dir, "claims", "1.json")
	damaged, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// The claim's own call found the damage too, and has prepared it anew.
	n.mustPrepare(t, claim("1", result("gpu-a")))
	if err := n.store.setAside("1", path, damaged, errors.New("damaged")); err != nil {
		t.Fatal(err)
	}
	if got := recordFiles(t, dir); len(got) != 1 || got[0] != "1.json" {
		t.Errorf("records are %q, want 1.json", got)
	}
}

func TestStartLeavesWhatAnEndingProcessFinishes(t *testing.T) {
	dir := t.TempDir()
	writeRecord(t, dir, "1.preparing", preparingRecord)
	n := newNode(t, dir)
	unlock, err := n.gpus.lock(t.Context(), []string{"GPU-a"}) // The other process holds it.
	if err != nil {
		t.Fatal(err)
	}
	old := n.Preparer
	n.start(t, dir, "boot-1")
	reconciled := make(chan error, 1)
	go func() { reconciled <- n.Reconcile(t.Context()) }()
	for len(n.gpus.gateOf("GPU-a")) == 0 {
		runtime.Gosched() // Until it waits for the GPU.
	}
	record, err := old.store.get("1")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.specs.Write("1", cdi.Spec{Data: []byte("1-gpu-a=GPU-a")}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.store.prepared(record); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := <-reconciled; err != nil {
		t.Fatal(err)
	}
	if got := recordFiles(t, dir); len(got) != 1 || got[0] != "1.json" || n.specs.of("1") == nil {
		t.Errorf("records are %q, spec is %q; the claim is prepared", got, n.specs.of("1"))
	}
}

func TestDriverUpgradeReachesAClaimThatIsBeingPrepared(t *testing.T) {
	n := newNode(t, t.TempDir())
	n.specs.entered, n.specs.proceed = make(chan struct{}), make(chan struct{})
	prepared := make(chan error, 1)
	go func() { _, err := n.Prepare(t.Context(), claim("1", result("gpu-a"))); prepared <- err }()
	<-n.specs.entered // The spec is that of the old driver.
	n.driver = "590.44.01"
	repaired := make(chan error, 1)
	go func() { repaired <- n.Repair(t.Context()) }()
	waitForWaiters(t, n, "1", 2)
	close(n.specs.proceed)
	if err := <-prepared; err != nil {
		t.Fatal(err)
	}
	<-n.specs.entered // It is written again.
	if err := <-repaired; err != nil {
		t.Fatal(err)
	}
	records, err := n.Prepared()
	if err != nil || len(records) != 1 || records[0].DriverVersion != "590.44.01" {
		t.Errorf("records are %+v, %v; want that of the new driver", records, err)
	}
}

func TestUnprepareOfAnythingConverges(t *testing.T) {
	dir := t.TempDir()
	writeRecord(t, dir, "damaged", "{")
	n := newNode(t, dir)
	n.mustPrepare(t, claim("1", result("gpu-a")))
	delete(n.targets, "gpu-a") // The GPU was taken out of the machine.
	n.specs.specs["orphan"] = []string{"from before"}
	for _, uid := range []types.UID{"unknown", "damaged", "1", "orphan"} {
		if err := n.Unprepare(t.Context(), uid); err != nil {
			t.Errorf("%s: %v", uid, err)
		}
	}
	if len(n.specs.specs) != 0 || len(recordFiles(t, dir)) != 0 {
		t.Errorf("left specs %v and records %q", n.specs.specs, recordFiles(t, dir))
	}
}

func TestStartSweepsOrphansAndUnfinishedFiles(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	n.mustPrepare(t, claim("1", result("gpu-a")))
	n.specs.specs["orphan"] = []string{"from before"}
	if err := os.WriteFile(filepath.Join(dir, "claims", ".1.json.tmp-77"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.start(t, dir, "boot-1")
	if err := n.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.specs.of("orphan") != nil || n.specs.of("1") == nil {
		t.Errorf("specs are %v, want those of claim 1 alone", n.specs.specs)
	}
	if got := recordFiles(t, dir); len(got) != 1 || got[0] != "1.json" {
		t.Errorf("files are %q, want 1.json", got)
	}
}

func TestAfterARebootStartMakesSpecsAgain(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	n.mustPrepare(t, claim("1", result("gpu-a")))
	n.specs.specs = map[types.UID][]string{}
	n.start(t, dir, "boot-2")
	if err := n.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.specs.of("1"); len(got) != 1 || got[0] != "1-gpu-a=GPU-a" {
		t.Fatalf("spec is %q", got)
	}
	prepared, err := n.Prepared()
	if err != nil || len(prepared) != 1 || prepared[0].BootID != "boot-2" {
		t.Fatalf("records are %+v, %v", prepared, err)
	}
}

func TestARetryThatOutlivesAnUnprepareDoesNotWin(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	n.specs.entered, n.specs.proceed = make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() { _, err := n.Prepare(t.Context(), claim("1", result("gpu-a"))); first <- err }()
	<-n.specs.entered // The first call holds the claim.
	late := make(chan error, 1)
	go func() { _, err := n.Prepare(t.Context(), claim("1", result("gpu-a"))); late <- err }()
	waitForWaiters(t, n, "1", 2)
	unprepared := make(chan error, 1)
	go func() { unprepared <- n.Unprepare(t.Context(), "1") }()
	waitForWaiters(t, n, "1", 3)
	close(n.specs.proceed)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if err := <-unprepared; err != nil {
		t.Fatal(err)
	}
	if err := <-late; !errors.Is(err, errUnprepared) {
		t.Fatalf("the late call gave %v", err)
	}
	if n.specs.of("1") != nil || len(recordFiles(t, dir)) != 0 {
		t.Fatal("the claim is prepared though nobody wants it")
	}
}

// waitForWaiters returns when n calls use the claim's lock.
func waitForWaiters(t *testing.T, node *node, uid types.UID, n int) {
	t.Helper()
	for t.Context().Err() == nil {
		node.claims.mu.Lock()
		l := node.claims.locks[uid]
		refs := 0
		if l != nil {
			refs = l.refs
		}
		node.claims.mu.Unlock()
		if refs == n {
			return
		}
	}
	t.Fatalf("there were never %d calls", n)
}

func TestACallThatTheKubeletGaveUpChangesNothing(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	unlock, err := n.gpus.lock(t.Context(), []string{"GPU-a"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := n.Prepare(ctx, claim("1", result("gpu-a"))); done <- err }()
	waitForWaiters(t, n, "1", 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
	unlock()
	if got := recordFiles(t, dir); len(got) != 0 {
		t.Fatalf("left %q", got)
	}
	n.mustPrepare(t, claim("2", result("gpu-a")))
}

func TestClaimsOnOtherGPUsDoNotWait(t *testing.T) {
	n := newNode(t, t.TempDir())
	unlock, err := n.gpus.lock(t.Context(), []string{"GPU-a"})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	n.mustPrepare(t, claim("1", result("gpu-b"))) // Would hang.
}

func TestGPULockIsHeldAcrossProcesses(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	// Another open file of the lock is to the kernel what another process is.
	other, err := os.OpenFile(filepath.Join(dir, "locks", "GPU-a.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() { _, err := n.Prepare(ctx, claim("1", result("gpu-a"))); gaveUp <- err }()
	waitForWaiters(t, n, "1", 1)
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
	done := make(chan error, 1)
	go func() { _, err := n.Prepare(context.Background(), claim("2", result("gpu-a"))); done <- err }()
	waitForWaiters(t, n, "2", 1)
	if err := unix.Flock(int(other.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
