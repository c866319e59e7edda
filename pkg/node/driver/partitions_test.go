package driver

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/follow"
)

// An H100 has 25 partitions (7 1g.10gb, 7 1g.10gb+me, 4 1g.20gb, 3 2g.20gb,
// 2 3g.40gb, 1 4g.40gb, 1 7g.80gb) beside the whole.
const devicesOfH100 = 26

func device(t *testing.T, devices []resourceapi.Device, suffix string) resourceapi.Device {
	t.Helper()
	i := slices.IndexFunc(devices, func(d resourceapi.Device) bool { return strings.HasSuffix(d.Name, suffix) })
	if i < 0 {
		t.Fatalf("no device %s", suffix)
	}
	return devices[i]
}

// partitions lists the MIG devices of the machine.
func (r *rig) partitions() []string {
	source := inventory.NewNVML(inventory.Options{Library: r.machine.NVML(), SysFS: r.machine.SysFS()})
	node, err := source.Snapshot(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := source.Close(); err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, gpu := range node.GPUs {
		for _, i := range gpu.MIG.Instances {
			out = append(out, i.UUID)
		}
	}
	return out
}

// sliceWrites counts the writes of slices, but not dry runs.
func (r *rig) sliceWrites() int {
	n := 0
	for _, action := range r.client.Actions() {
		if create, ok := action.(clienttesting.CreateActionImpl); ok && len(create.CreateOptions.DryRun) > 0 {
			continue
		}
		if action.GetResource().Resource == "resourceslices" && slices.Contains([]string{"create", "update", "delete", "patch"}, action.GetVerb()) {
			n++
		}
	}
	return n
}

func TestAPartitionFromSocketToHardwareAndBack(t *testing.T) {
	r := newRig(t, "h100-sxm5-80gb")
	devices := r.published(devicesOfH100)
	writes := r.sliceWrites()
	partition := device(t, devices, "-mig-3g-40gb-4")
	claim := r.claimOf("c1", partition.Name, "40448Mi")
	got := r.prepare(claim)["c1"]
	if got == nil || got.Error != "" || len(got.Devices) != 1 {
		t.Fatalf("prepare gave %+v", got)
	}
	made := r.partitions()
	if len(made) != 1 || !strings.HasPrefix(made[0], "MIG-") {
		t.Fatalf("partitions are %q", made)
	}
	r.eventually("the status names the MIG device", func() bool {
		c, err := r.client.ResourceV1().ResourceClaims("team").Get(t.Context(), "claim-c1", metav1.GetOptions{})
		return err == nil && len(c.Status.Devices) == 1 && strings.Contains(string(c.Status.Devices[0].Data.Raw), made[0])
	})
	if e := r.unprepare(claim)["c1"].Error; e != "" {
		t.Fatal(e)
	}
	if left := r.partitions(); len(left) != 0 {
		t.Errorf("left partitions %q", left)
	}
	whole := r.claimOf("c2", devices[len(devices)-1].Name, "81559Mi")
	if got := r.prepare(whole)["c2"]; got == nil || got.Error != "" {
		t.Errorf("the whole GPU afterwards: %+v", got)
	}
	if now := r.sliceWrites(); now != writes {
		t.Errorf("slices were written %d times more while nothing that is offered changed", now-writes)
	}
}

func TestAnAdministratorsPartitionIsOfferedAndTheRestOfTheGPUBesideIt(t *testing.T) {
	r := newRig(t, "h100-sxm5-80gb")
	// The last device of a GPU is the whole.
	whole := r.published(devicesOfH100)[devicesOfH100-1]
	uuid, err := r.machine.CreateMIG(*whole.Attributes["uuid"].StringValue, "4g.40gb", 0)
	if err != nil {
		t.Fatal(err)
	}
	r.eventually("the partition is published, and what overlaps it is not", func() bool {
		devices := r.devices()
		given := slices.IndexFunc(devices, func(d resourceapi.Device) bool {
			value := d.Attributes["uuid"].StringValue
			return value != nil && *value == uuid
		})
		overlaps := slices.ContainsFunc(devices, func(d resourceapi.Device) bool {
			return strings.HasSuffix(d.Name, "-mig-7g-80gb-0") || strings.HasSuffix(d.Name, "-mig-1g-10gb-0") || *d.Attributes["type"].StringValue == "gpu"
		})
		beside := slices.ContainsFunc(devices, func(d resourceapi.Device) bool { return strings.HasSuffix(d.Name, "-mig-3g-40gb-4") })
		return given >= 0 && !overlaps && beside
	})
	claim := r.claimOf("c1", device(t, r.devices(), "-mig-4g-40gb-0").Name, "40448Mi")
	if got := r.prepare(claim)["c1"]; got == nil || got.Error != "" {
		t.Fatalf("prepare gave %+v", got)
	}
	if e := r.unprepare(claim)["c1"].Error; e != "" {
		t.Fatal(e)
	}
	if left := r.partitions(); !slices.Equal(left, []string{uuid}) {
		t.Errorf("partitions are %q, want the administrator's", left)
	}
}

func TestAPartitionThatSomebodyDestroysIsTaintedUntilItsClaimIsPreparedAgain(t *testing.T) {
	r := newRig(t, "h100-sxm5-80gb")
	partition := device(t, r.published(devicesOfH100), "-mig-2g-20gb-2").Name
	claim := r.claimOf("c1", partition, "20096Mi")
	if got := r.prepare(claim)["c1"]; got == nil || got.Error != "" {
		t.Fatalf("prepare gave %+v", got)
	}
	tainted := func() []string {
		var names []string
		for _, d := range r.devices() {
			for _, taint := range d.Taints {
				names = append(names, d.Name+" "+taint.Key)
			}
		}
		return names
	}
	for _, converge := range []struct {
		name string
		do   func() string
	}{
		{"the next prepare makes it again", func() string { return r.prepare(claim)["c1"].Error }},
		{"the unprepare has nothing to do", func() string { return r.unprepare(claim)["c1"].Error }},
	} {
		if err := r.machine.DestroyMIG("", r.partitions()[0]); err != nil {
			t.Fatal(err)
		}
		r.eventually("the partition, and it alone, is tainted", func() bool {
			return slices.Equal(tainted(), []string{partition + " gpu.apportion.dev/missing"})
		})
		if e := converge.do(); e != "" {
			t.Fatalf("%s: %s", converge.name, e)
		}
		r.eventually("no taint is left after "+converge.name, func() bool { return len(tainted()) == 0 })
	}
}

// directedSource reads the hardware, and a test says what its Watch finds.
type directedSource struct {
	inventory.Source
	found chan inventory.Node
	// Where slow is not nil, a Snapshot that has read says so to reading, and returns
	// when slow has a value.
	reading, slow chan struct{}
}

func (s *directedSource) Watch(ctx context.Context, changed func(inventory.Node)) {
	for {
		select {
		case <-ctx.Done():
			return
		case node := <-s.found:
			changed(node)
		}
	}
}

func (s *directedSource) Snapshot(ctx context.Context) (inventory.Node, error) {
	node, err := s.Source.Snapshot(ctx)
	if s.slow != nil {
		s.reading <- struct{}{}
		<-s.slow
	}
	return node, err
}

// direct has the test say what the driver's source finds.
func (r *rig) direct() *directedSource {
	r.t.Helper()
	r.stop()
	source := &directedSource{found: make(chan inventory.Node)}
	r.wrap = func(real inventory.Source) inventory.Source {
		source.Source = real
		return source
	}
	r.start()
	return source
}

func (s *directedSource) read(t *testing.T) inventory.Node {
	t.Helper()
	node, err := s.Source.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// surprise has the driver read the hardware again: the source finds a partition that
// no claim made. What it found is read before meanwhile is done.
func (r *rig) surprise(source *directedSource, gpu string, meanwhile func()) {
	r.t.Helper()
	if _, err := r.machine.CreateMIG(gpu, "1g.10gb", 0); err != nil {
		r.t.Fatal(err)
	}
	node := source.read(r.t)
	meanwhile()
	source.found <- node
}

func TestADriverUpgradeThatIsSeenWhileLookingAgainReachesPreparedClaims(t *testing.T) {
	r := newRig(t, "h100-sxm5-80gb", "h100-sxm5-80gb")
	gpus := r.published(2 * devicesOfH100)
	whole := func(i int) resourceapi.Device { return gpus[(i+1)*devicesOfH100-1] }
	if got := r.prepare(r.claimOf("c1", whole(0).Name, "81559Mi"))["c1"]; got == nil || got.Error != "" {
		t.Fatalf("prepare gave %+v", got)
	}
	source := r.direct()
	source.found <- source.read(t)
	r.surprise(source, *whole(1).Attributes["uuid"].StringValue, func() {
		if err := r.machine.SetDriverVersion("590.44.01"); err != nil {
			t.Fatal(err)
		}
	})
	r.eventually("the spec has the new driver's files", func() bool {
		spec, err := os.ReadFile(filepath.Join(r.config.CDIRoot, "gpu.apportion.dev-claim_c1.json"))
		return err == nil && strings.Contains(string(spec), "libcuda.so.590.44.01")
	})
}

func TestAGPUThatIsLostWhileTheDriverLooksAgainStaysTainted(t *testing.T) {
	r := newRig(t, "h100-sxm5-80gb")
	uuid := *r.published(devicesOfH100)[devicesOfH100-1].Attributes["uuid"].StringValue
	source := r.direct()
	source.found <- source.read(t)
	r.surprise(source, uuid, func() { source.reading, source.slow = make(chan struct{}), make(chan struct{}) })
	<-source.reading // The GPU was in order.
	if err := r.machine.LoseGPU(uuid); err != nil {
		t.Fatal(err)
	}
	source.found <- source.read(t) // The source hands it over at once, or when it may.
	source.slow <- struct{}{}
	r.eventually("the GPU is lost", func() bool {
		return strings.Contains(r.driver.seen.Load().Node.GPUs[0].Problem, "lost")
	})
	r.driver.happened <- follow.ClaimsChanged{} // The loop is done with all before.
	if now := r.driver.seen.Load(); !strings.Contains(now.Node.GPUs[0].Problem, "lost") {
		t.Errorf("the lost GPU has the problem %q", now.Node.GPUs[0].Problem)
	}
}

func TestWithoutCountersPartitionsAreNotOfferedAndAnEventSaysWhy(t *testing.T) {
	r := newRigWith(t, []string{"DRAPartitionableDevices"}, "h100-sxm5-80gb")
	devices := r.published(1)
	if len(devices[0].ConsumesCounters) != 0 || *devices[0].Attributes["type"].StringValue != "gpu" {
		t.Errorf("published is %+v", devices[0])
	}
	r.eventually("an Event about the gate", func() bool {
		return r.hasEvent("PartitionsNotOffered", "node-a", "DRAPartitionableDevices")
	})
}

func TestWithoutConsumableCapacityGPUsAreOfferedWhole(t *testing.T) {
	r := newRigWith(t, []string{"DRAConsumableCapacity"}, "h100-sxm5-80gb")
	for _, d := range r.published(devicesOfH100) {
		if d.AllowMultipleAllocations != nil || d.Capacity["memory"].RequestPolicy != nil {
			t.Errorf("device %s is offered in shares", d.Name)
		}
	}
	r.eventually("an Event about the gate", func() bool {
		return r.hasEvent("SharesNotOffered", "node-a", "DRAConsumableCapacity")
	})
}
