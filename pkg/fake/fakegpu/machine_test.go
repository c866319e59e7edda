package fakegpu

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newMachine makes a machine of node-a in a folder of its own.
func newMachine(t *testing.T, gpus string) *Machine {
	t.Helper()
	list, err := ParseGPUs(gpus)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Create(t.TempDir(), Spec{Node: "node-a", GPUs: list})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func summary(t *testing.T, m *Machine) Summary {
	t.Helper()
	s, err := m.Summary()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func uuids(t *testing.T, m *Machine) []string {
	t.Helper()
	var ids []string
	for _, g := range summary(t, m).GPUs {
		ids = append(ids, g.UUID)
	}
	return ids
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestIdentityFollowsFromTheNodesName(t *testing.T) {
	a, again := newMachine(t, "h100-sxm5-80gb:8"), newMachine(t, "h100-sxm5-80gb:8")
	if diff := cmp.Diff(uuids(t, a), uuids(t, again)); diff != "" {
		t.Errorf("the same node twice is two machines: %s", diff)
	}
	other, err := Create(t.TempDir(), Spec{Node: "node-b", GPUs: []string{"h100-sxm5-80gb"}})
	must(t, err)
	all := append(uuids(t, a), uuids(t, other)...)
	slices.Sort(all)
	if len(slices.Compact(all)) != 9 {
		t.Errorf("UUIDs are not unique: %v", all)
	}
	// The value is fixed, computed with another UUID library: claims made
	// yesterday name it.
	if got, want := uuids(t, a)[0], "GPU-b58867e9-7ee2-57ea-a843-54b8bde8d8da"; got != want {
		t.Errorf("UUID %s, want %s", got, want)
	}
}

func TestCreateKeepsAMachineThatIsThere(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb:2")
	must(t, m.LoseGPU("1"))
	before := summary(t, m)
	must(t, os.RemoveAll(filepath.Join(m.DriverRoot(), "usr")))

	again, err := Create(m.Dir(), Spec{Node: "node-z", DriverVersion: "570.124.06", GPUs: []string{"t4"}})
	must(t, err)
	if diff := cmp.Diff(before, summary(t, again)); diff != "" {
		t.Errorf("the machine changed: %s", diff)
	}
	if _, err := os.Stat(filepath.Join(m.DriverRoot(), "usr/bin/nvidia-smi")); err != nil {
		t.Errorf("the driver root was not put in order: %v", err)
	}
}

func TestOpenWithoutMachineSaysWhatToDo(t *testing.T) {
	_, err := Open(t.TempDir())
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "apportion fake create") {
		t.Errorf("error %v", err)
	}
}

func TestCreateRefusesBadSpecs(t *testing.T) {
	for name, spec := range map[string]Spec{
		"no node":          {GPUs: []string{"t4"}},
		"unknown product":  {Node: "n", GPUs: []string{"gtx"}},
		"too many GPUs":    {Node: "n", GPUs: slices.Repeat([]string{"t4"}, 17)},
		"no version":       {Node: "n", DriverVersion: "new"},
		"version too long": {Node: "n", DriverVersion: "580.95.05.01"},
	} {
		dir := t.TempDir()
		if _, err := Create(dir, spec); err == nil {
			t.Errorf("%s: no error", name)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s: left %v %v", name, entries, err)
		}
	}
}

func TestAStateOfALaterFormatIsRefused(t *testing.T) {
	m := newMachine(t, "t4")
	must(t, os.WriteFile(filepath.Join(m.Dir(), stateFile), []byte(`{"format": 2}`), 0o644))
	if _, err := Open(m.Dir()); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("error %v", err)
	}
}

func TestAGPUThatComesBackIsTheSame(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb:4")
	before := summary(t, m)
	gone := before.GPUs[1]
	must(t, m.Fail("1", "name", DefaultFailure))
	must(t, m.RemoveGPU(gone.PCIBusID))
	left := summary(t, m).GPUs
	if len(left) != 3 || left[0].UUID != before.GPUs[0].UUID || left[1].UUID != before.GPUs[2].UUID || left[1].Index != 1 || left[1].Minor != 2 {
		t.Errorf("after the removal: %+v", left)
	}
	uuid, err := m.AddGPU("", -1)
	must(t, err)
	if uuid != gone.UUID {
		t.Errorf("%s came back as %s", gone.UUID, uuid)
	}
	if diff := cmp.Diff(before, summary(t, m)); diff != "" {
		t.Error(diff)
	}
}

func TestAnotherCardInTheSlotIsAnotherGPU(t *testing.T) {
	m := newMachine(t, "l4:2")
	before := summary(t, m).GPUs[1]
	must(t, m.RemoveGPU(before.UUID))
	uuid, err := m.AddGPU("t4", 1)
	must(t, err)
	after := summary(t, m).GPUs[1]
	if uuid == before.UUID || after.UUID != uuid || after.PCIBusID != before.PCIBusID || after.Product != "t4" {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestAddGPU(t *testing.T) {
	m := newMachine(t, "")
	for _, test := range []struct {
		product string
		slot    int
		error   string
	}{
		{"", -1, "name a product"},
		{"gtx", -1, "unknown GPU product"},
		{"t4", 16, "no slot 16"},
		{"t4", 3, ""},
		{"t4", 3, "holds a GPU already"},
		{"l4", -1, ""},
	} {
		_, err := m.AddGPU(test.product, test.slot)
		if (test.error == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.error) {
			t.Errorf("%q in slot %d: %v, want %q", test.product, test.slot, err, test.error)
		}
	}
	var minors []int
	for _, g := range summary(t, m).GPUs {
		minors = append(minors, g.Minor)
	}
	slices.Sort(minors)
	if diff := cmp.Diff([]int{0, 3}, minors); diff != "" {
		t.Error(diff)
	}
	for range 14 {
		if _, err := m.AddGPU("t4", -1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.AddGPU("t4", -1); err == nil || !strings.Contains(err.Error(), "all 16 slots") {
		t.Errorf("a 17th GPU: %v", err)
	}
}

func TestUnknownGPUListsTheKnown(t *testing.T) {
	m := newMachine(t, "t4:2")
	err := m.LoseGPU("7")
	if err == nil || !strings.Contains(err.Error(), "0 (0000:1b:00.0, GPU-") || !strings.Contains(err.Error(), "1 (0000:9d:00.0, GPU-") {
		t.Errorf("error %v", err)
	}
	if err := newMachine(t, "").LoseGPU("0"); err == nil || !strings.Contains(err.Error(), "no GPUs") {
		t.Errorf("error %v", err)
	}
}

// Several processes change and read one machine: no change is lost, and no
// reader sees a part of one.
func TestChangesFromManySidesAreAllKept(t *testing.T) {
	m := newMachine(t, "t4")
	const writers, changes = 4, 25
	var group sync.WaitGroup
	for range writers {
		other, err := Open(m.Dir())
		must(t, err)
		group.Go(func() {
			for range changes {
				err := other.UpdateLoad("0", func(l *Load) error {
					l.MemoryBytes++
					l.Processes = []Process{{PID: uint32(l.MemoryBytes)}}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		reader, err := Open(m.Dir())
		if err != nil {
			t.Error(err)
			return
		}
		last := uint64(0)
		for {
			s, err := reader.Summary()
			if err != nil {
				t.Error(err)
				return
			}
			load := s.GPUs[0].Load
			if load.MemoryBytes < last || load.MemoryBytes > 0 && uint64(load.Processes[0].PID) != load.MemoryBytes {
				t.Errorf("after %d a reader saw %+v", last, load)
			}
			last = load.MemoryBytes
			select {
			case <-done:
				return
			default:
			}
		}
	})
	group.Wait()
	close(done)
	readers.Wait()
	if got := summary(t, m).GPUs[0].Load.MemoryBytes; got != writers*changes {
		t.Errorf("%d of %d changes are left", got, writers*changes)
	}
}

// A reader that has not looked for a while must not take a later file for the one
// it knows, even if time stamp, size and inode are alike.
func TestEveryChangeIsSeen(t *testing.T) {
	m := newMachine(t, "t4")
	reader, err := Open(m.Dir())
	must(t, err)
	for i := range 60 {
		must(t, m.UpdateLoad("0", func(l *Load) error { l.GPUPercent = uint32(i % 7); return nil }))
		must(t, m.UpdateLoad("0", func(l *Load) error { l.GPUPercent = uint32(i % 10); return nil }))
		if got := summary(t, reader).GPUs[0].Load.GPUPercent; got != uint32(i%10) {
			t.Fatalf("change %d: the reader sees %d", i, got)
		}
	}
}

func TestAChangeThatIsRefusedChangesNothing(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb")
	before := summary(t, m)
	for name, err := range map[string]error{
		"utilization":  m.SetLoad("0", Load{GPUPercent: 101}),
		"memory":       m.SetLoad("0", Load{MemoryBytes: 90 << 30}),
		"mig device":   m.SetLoad("0", Load{Processes: []Process{{PID: 1, MIGDevice: "MIG-1"}}}),
		"property":     m.Fail("0", "colour", DefaultFailure),
		"code":         m.Fail("0", "name", "broken"),
		"heal":         m.Heal("0", "colour"),
		"symbol":       m.HideSymbols("printf"),
		"version":      m.SetDriverVersion("latest"),
		"profile":      mig(m.CreateMIG("0", "1g.5gb", -1)),
		"start":        mig(m.CreateMIG("0", "2g.20gb", 1)),
		"no partition": m.DestroyMIG("0", "7"),
		"no device":    m.DestroyMIG("", "MIG-1"),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if diff := cmp.Diff(before, summary(t, m)); diff != "" {
		t.Error(diff)
	}
}

func mig(_ string, err error) error { return err }
