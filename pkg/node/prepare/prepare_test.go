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
	"sync/atomic"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/cdi"
	"apportion.dev/apportion/pkg/node/mig"
)

// fakeSpecs keeps specs in memory: claim -> device names.
type fakeSpecs struct {
	mu      sync.Mutex
	specs   map[types.UID][]string
	failure error
	// entered, if set, is signalled by Write, which then waits for proceed.
	entered, proceed chan struct{}
}

func (f *fakeSpecs) Render(_ context.Context, devices []cdi.Device) (cdi.Spec, error) {
	var names []string
	for _, d := range devices {
		name := d.Name + "=" + d.GPU
		for _, env := range d.Edits.Env {
			name += " " + env
		}
		for _, hook := range d.Edits.Hooks {
			name += " " + strings.Join(hook.Args, " ")
		}
		names = append(names, name)
	}
	data := strings.Join(names, ",")
	return cdi.Spec{Data: []byte(data), Digest: "digest of " + data}, nil
}

func (f *fakeSpecs) Write(claim types.UID, spec cdi.Spec) error {
	if f.entered != nil {
		f.entered <- struct{}{}
		<-f.proceed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure != nil {
		return f.failure
	}
	f.specs[claim] = strings.Split(string(spec.Data), ",")
	return nil
}

func (f *fakeSpecs) Intact(claim types.UID, digest string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names, ok := f.specs[claim]
	return ok && digest == "digest of "+strings.Join(names, ","), nil
}

func (f *fakeSpecs) Remove(claim types.UID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.specs, claim)
	return nil
}

func (f *fakeSpecs) Sweep(keep func(types.UID) bool) (removed []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for claim := range f.specs {
		if !keep(claim) {
			delete(f.specs, claim)
			removed = append(removed, string(claim))
		}
	}
	return removed, nil
}

func (f *fakeSpecs) QualifiedName(device string) string { return "gpu.apportion.dev/claim=" + device }

func (f *fakeSpecs) of(claim types.UID) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.specs[claim]
}

// node is a Preparer over fakes: two GPUs of 40Gi, gpu-a and gpu-b.
type node struct {
	*Preparer
	specs    *fakeSpecs
	mig      *fakePartitions
	mps      *fakeCompute
	slices   *fakeTimeSlices
	targets  map[string]Target
	damaged  []types.UID
	repaired []string
	changes  atomic.Int32
	driver   string
}

func newNode(t *testing.T, dir string) *node {
	t.Helper()
	n := &node{
		specs:  &fakeSpecs{specs: map[types.UID][]string{}},
		mig:    &fakePartitions{instances: map[inventory.Partition]mig.Instance{}},
		mps:    &fakeCompute{users: map[string]bool{}},
		slices: &fakeTimeSlices{of: map[string]string{}},
		driver: "580.95.05",
		targets: map[string]Target{
			"gpu-a": {GPU: "GPU-a", Capacity: map[string]resource.Quantity{"memory": resource.MustParse("40Gi")}},
			"gpu-b": {GPU: "GPU-b", Capacity: map[string]resource.Quantity{"memory": resource.MustParse("40Gi")}},
		},
	}
	n.start(t, dir, "boot-1")
	return n
}

// start is what a new process of the driver does, on the same node.
func (n *node) start(t *testing.T, dir, boot string) {
	t.Helper()
	p, err := New(Options{
		Driver: "gpu.apportion.dev", Pool: "node-a", Dir: dir, BootID: boot, Specs: n.specs,
		Partitions: n.mig, Compute: n.mps, TimeSlices: n.slices, LimitHook: limitHook, MPSEdits: mpsEdits,
		Resolve:       func(device string) (Target, bool) { target, ok := n.targets[device]; return target, ok },
		DriverVersion: func() string { return n.driver },
		Damaged:       func(uid types.UID, _ string, _ error) { n.damaged = append(n.damaged, uid) },
		Repaired:      func(_ ClaimRef, reason string) { n.repaired = append(n.repaired, reason) },
		Changed:       func() { n.changes.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	n.Preparer = p
}

func result(device string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: "gpu.apportion.dev", Pool: "node-a", Device: device}
}

func share(device, id, memory string) resourceapi.DeviceRequestAllocationResult {
	r := result(device)
	r.ShareID = ptr.To(types.UID(id))
	r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}
	return r
}

func claim(uid string, results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim-" + uid, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: results},
		}},
	}
}

func (n *node) mustPrepare(t *testing.T, c *resourceapi.ResourceClaim) []Device {
	t.Helper()
	record, err := n.Prepare(t.Context(), c)
	if err != nil {
		t.Fatalf("prepare %s: %v", c.Name, err)
	}
	return record.Devices
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("error is %q, want one with %q", err, part)
		}
	}
}

func recordFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "claims"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestPrepareAndUnprepareLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	devices := n.mustPrepare(t, claim("1", share("gpu-a", "s1", "40Gi")))
	if len(devices) != 1 || devices[0].GPU != "GPU-a" || devices[0].CDIDevice != "gpu.apportion.dev/claim=1-gpu-a-s1" ||
		*devices[0].ShareID != "s1" || devices[0].Consumed["memory"] != "40Gi" || devices[0].Request != "gpu" {
		t.Fatalf("devices are %+v", devices)
	}
	if got := n.specs.of("1"); len(got) != 1 || got[0] != "1-gpu-a-s1=GPU-a" {
		t.Fatalf("spec is %q", got)
	}
	if got := recordFiles(t, dir); len(got) != 1 || got[0] != "1.json" {
		t.Fatalf("records are %q", got)
	}
	for range 2 { // The kubelet may ask twice.
		if err := n.Unprepare(t.Context(), "1"); err != nil {
			t.Fatal(err)
		}
	}
	if got := recordFiles(t, dir); len(got) != 0 || n.specs.of("1") != nil {
		t.Fatalf("left: records %q, spec %q", got, n.specs.of("1"))
	}
}

func TestChangesOfWhatIsPreparedAreTold(t *testing.T) {
	n := newNode(t, t.TempDir())
	for i, step := range []struct {
		name string
		do   func()
		want int32
	}{
		{"prepared", func() { n.mustPrepare(t, claim("1", result("gpu-a"))) }, 1},
		{"prepared again, nothing to do", func() { n.mustPrepare(t, claim("1", result("gpu-a"))) }, 1},
		{"repaired", func() {
			n.driver = "590.44.01"
			n.mustPrepare(t, claim("1", result("gpu-a")))
		}, 2},
		{"refused", func() {
			if _, err := n.Prepare(t.Context(), claim("2", result("gpu-a"))); err == nil {
				t.Fatal("the GPU was handed out twice")
			}
		}, 2},
		{"unprepared", func() {
			if err := n.Unprepare(t.Context(), "1"); err != nil {
				t.Fatal(err)
			}
		}, 3},
		{"unprepared again", func() {
			if err := n.Unprepare(t.Context(), "1"); err != nil {
				t.Fatal(err)
			}
		}, 3},
	} {
		if step.do(); n.changes.Load() != step.want {
			t.Errorf("step %d, %s: told %d times, want %d", i+1, step.name, n.changes.Load(), step.want)
		}
	}
}

func TestTheSameGPUIsNotHandedOutTwice(t *testing.T) {
	tests := []struct {
		name   string
		first  *resourceapi.ResourceClaim
		second *resourceapi.ResourceClaim
		want   []string // Parts of the error; none if both fit.
	}{
		{"whole then whole", claim("1", result("gpu-a")), claim("2", result("gpu-a")), []string{"gpu-a", "in use by claim team/claim-1"}},
		{"whole then share", claim("1", result("gpu-a")), claim("2", share("gpu-a", "s2", "10Gi")), []string{"in use by claim team/claim-1"}},
		{"share then whole", claim("1", share("gpu-a", "s1", "10Gi")), claim("2", result("gpu-a")), []string{"in use by claim team/claim-1"}},
		{"all of it as a share, then a share", claim("1", share("gpu-a", "s1", "40Gi")), claim("2", share("gpu-a", "s2", "1Mi")), []string{"40Gi of memory", "41944064Ki|40961Mi", "team/claim-1"}},
		{"two shares that fit", claim("1", share("gpu-a", "s1", "30Gi")), claim("2", share("gpu-a", "s2", "10Gi")), nil},
		{"two shares that do not fit", claim("1", share("gpu-a", "s1", "30Gi")), claim("2", share("gpu-a", "s2", "11Gi")), []string{"41Gi would be in use"}},
		{"the same share", claim("1", share("gpu-a", "s1", "10Gi")), claim("2", share("gpu-a", "s1", "10Gi")), []string{"in use by claim team/claim-1"}},
		{"twice in one claim", claim("0"), claim("2", result("gpu-a"), result("gpu-a")), []string{"gpu-a twice"}},
		{"shares of one claim that do not fit", claim("0"), claim("2", share("gpu-a", "s1", "30Gi"), share("gpu-a", "s2", "30Gi")), []string{"60Gi would be in use", "other claims that hold it: none"}},
		{"other GPU", claim("1", result("gpu-a")), claim("2", result("gpu-b")), nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t, t.TempDir())
			if len(test.first.Status.Allocation.Devices.Results) > 0 {
				n.mustPrepare(t, test.first)
			}
			_, err := n.Prepare(t.Context(), test.second)
			if test.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("both were prepared")
			}
			for _, want := range test.want {
				matched := false
				for part := range strings.SplitSeq(want, "|") {
					matched = matched || strings.Contains(err.Error(), part)
				}
				if !matched {
					t.Errorf("error is %q, want one with %q", err, want)
				}
			}
			if n.specs.of("2") != nil {
				t.Error("the refused claim has a spec")
			}
		})
	}
}

func TestAdminAccessSeesAndTakesNothing(t *testing.T) {
	n := newNode(t, t.TempDir())
	watch := share("gpu-a", "s0", "0")
	watch.AdminAccess = ptr.To(true)
	n.mustPrepare(t, claim("admin", watch))
	n.mustPrepare(t, claim("owner", result("gpu-a")))
	n.mustPrepare(t, claim("admin-2", watch))
	if n.specs.of("admin") == nil || n.specs.of("owner") == nil || n.specs.of("admin-2") == nil {
		t.Fatal("a claim has no spec")
	}
}

func TestOtherDriversResultsAndConfigsAreNotOurs(t *testing.T) {
	n := newNode(t, t.TempDir())
	nic := result("nic-0")
	nic.Driver, nic.Pool = "nic.example.com", "rack-7"
	c := claim("1", nic, result("gpu-a"))
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "nic.example.com"}},
	}}
	devices := n.mustPrepare(t, c)
	if len(devices) != 1 || devices[0].Device != "gpu-a" {
		t.Fatalf("devices are %+v", devices)
	}
}

// The administrator asks for larger shares than some that are in use.
func TestASmallShareStaysWhenThePolicyAsksForLargerOnes(t *testing.T) {
	n := newNode(t, t.TempDir())
	old := claim("1", share("gpu-a", "s1", "1Gi"))
	n.mustPrepare(t, old)
	a := n.targets["gpu-a"]
	a.CheckShare = func(map[resourceapi.QualifiedName]resource.Quantity) error { return errors.New("less than 2Gi") }
	n.targets["gpu-a"] = a
	// A second pod with the same claim, or the same pod after a reboot.
	n.mustPrepare(t, old)
	_, err := n.Prepare(t.Context(), claim("2", share("gpu-a", "s2", "1Gi")))
	wantError(t, err, "request gpu", "less than 2Gi")
}

func TestErrorsSayWhichDeviceAndWhatToDo(t *testing.T) {
	config := claim("1", result("gpu-a"))
	config.Status.Allocation.Devices.Results[0].Request = "gpu/large"
	config.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim, Requests: []string{"gpu"},
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "gpu.apportion.dev"}},
	}}
	elsewhere := claim("1", result("gpu-a"))
	elsewhere.Status.Allocation.Devices.Results[0].Pool = "node-b"
	unallocated := claim("1")
	unallocated.Status.Allocation = nil
	tests := []struct {
		name  string
		claim *resourceapi.ResourceClaim
		want  []string
	}{
		{"device that was removed", claim("1", result("gpu-z")), []string{"gpu-z", "Delete the pod"}},
		{"other node's pool", elsewhere, []string{"pool node-b", "node-a"}},
		{"config on the base name of a subrequest", config, []string{"gpu/large", "config of the claim"}},
		{"not allocated", unallocated, []string{"not allocated"}},
		{"nothing of ours", claim("1"), []string{"no device of driver gpu.apportion.dev"}},
		{"UID that is a path", claim("../1", result("gpu-a")), []string{"not one that the API server makes"}},
		{"share of no memory", claim("1", share("gpu-a", "s1", "0")), []string{"request gpu", "gpu-a", "no memory"}},
		{"GPU with a problem", claim("1", result("gpu-b")), []string{"gpu-b", "GPU is lost"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			n := newNode(t, dir)
			n.targets["gpu-b"] = Target{GPU: "GPU-b", Problem: "GPU is lost"}
			a := n.targets["gpu-a"]
			a.CheckShare = func(consumed map[resourceapi.QualifiedName]resource.Quantity) error {
				if memory, ok := consumed["memory"]; ok && memory.IsZero() {
					return errors.New("a share of device gpu-a with no memory")
				}
				return nil
			}
			n.targets["gpu-a"] = a
			_, err := n.Prepare(t.Context(), test.claim)
			wantError(t, err, test.want...)
			if files := recordFiles(t, dir); len(files) != 0 {
				t.Errorf("left records %q", files)
			}
		})
	}
}

func TestAFailedStepIsUndone(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	n.specs.failure = errors.New("disk is full")
	_, err := n.Prepare(t.Context(), claim("1", result("gpu-a")))
	wantError(t, err, "write CDI spec", "disk is full")
	if files := recordFiles(t, dir); len(files) != 0 {
		t.Fatalf("left records %q", files)
	}
	n.specs.failure = nil
	n.mustPrepare(t, claim("2", result("gpu-a")))
}

func TestPreparedClaimIsRepairedWhenWhatItWasPromisedIsGone(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, n *node, dir string)
		want   string // Part of the reason; empty if nothing is to be repaired.
	}{
		{"nothing changed", func(*testing.T, *node, string) {}, ""},
		{"driver restarted", func(t *testing.T, n *node, dir string) { n.start(t, dir, "boot-1") }, ""},
		{"after a reboot", func(t *testing.T, n *node, dir string) {
			n.specs.specs = map[types.UID][]string{}
			n.start(t, dir, "boot-2")
		}, "machine was restarted"},
		{"spec deleted", func(_ *testing.T, n *node, _ string) { delete(n.specs.specs, "1") }, "CDI spec was missing"},
		{"spec changed by somebody", func(_ *testing.T, n *node, _ string) { n.specs.specs["1"] = []string{"x"} }, "CDI spec was missing or changed"},
		{"driver upgraded", func(_ *testing.T, n *node, _ string) { n.driver = "590.44.01" }, "from 580.95.05 to 590.44.01"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			n := newNode(t, dir)
			first := n.mustPrepare(t, claim("1", result("gpu-a")))
			test.change(t, n, dir)
			second := n.mustPrepare(t, claim("1", result("gpu-a")))
			if !sameDevices(first, second) {
				t.Errorf("devices changed from %+v to %+v", first, second)
			}
			if got := n.specs.of("1"); len(got) != 1 || got[0] != "1-gpu-a=GPU-a" {
				t.Errorf("spec is %q", got)
			}
			reason := strings.Join(n.repaired, "; ")
			if (test.want == "") != (reason == "") || !strings.Contains(reason, test.want) {
				t.Errorf("repaired because of %q, want %q", reason, test.want)
			}
		})
	}
}

func TestClaimThatWasAllocatedAnewGetsItsNewDevice(t *testing.T) {
	n := newNode(t, t.TempDir())
	n.mustPrepare(t, claim("1", result("gpu-a")))
	devices := n.mustPrepare(t, claim("1", result("gpu-b")))
	if len(devices) != 1 || devices[0].GPU != "GPU-b" {
		t.Fatalf("devices are %+v", devices)
	}
	n.mustPrepare(t, claim("2", result("gpu-a")))
}

func TestHowLongEachPhaseTookIsToldWithItsResult(t *testing.T) {
	n := newNode(t, t.TempDir())
	var told []string
	n.Observe = func(operation, phase string, _ time.Duration, err error) {
		told = append(told, fmt.Sprintf("%s %s %t", operation, phase, err == nil))
	}
	n.mustPrepare(t, claim("1", result("gpu-a")))
	if err := n.Unprepare(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	n.specs.failure = errors.New("disk is full")
	_, err := n.Prepare(t.Context(), claim("1", result("gpu-a")))
	wantError(t, err, "disk is full")
	want := []string{
		"prepare lock true", "prepare record true", "prepare steps true", "unprepare lock true", "unprepare undo true",
		"prepare lock true", "prepare record true", "prepare steps false", "prepare undo true",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}
