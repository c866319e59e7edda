package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"apportion.dev/apportion/pkg/node/mps"
)

func config(source resourceapi.AllocationConfigSource, kind, spec string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	raw := fmt.Sprintf(`{"apiVersion":"resource.apportion.dev/v1alpha1","kind":%q,%s}`, kind, spec)
	return resourceapi.DeviceAllocationConfiguration{Source: source, Requests: requests, DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "gpu.apportion.dev", Parameters: runtime.RawExtension{Raw: []byte(raw)}},
	}}
}

const (
	fromClass = resourceapi.AllocationConfigSourceClass
	fromClaim = resourceapi.AllocationConfigSourceClaim
)

func configured(c *resourceapi.ResourceClaim, configs ...resourceapi.DeviceAllocationConfiguration) *resourceapi.ResourceClaim {
	c.Status.Allocation.Devices.Config = configs
	return c
}

func withCompute(r resourceapi.DeviceRequestAllocationResult, percent string) resourceapi.DeviceRequestAllocationResult {
	r.ConsumedCapacity["computePercent"] = resource.MustParse(percent)
	return r
}

func TestMemoryLimitOfAShare(t *testing.T) {
	const gib = "1073741824"
	tests := []struct {
		name    string
		claim   *resourceapi.ResourceClaim
		nvml    bool
		want    string // The CDI device with its hook.
		wantErr []string
		// unlimited is true if the share is said to be counted only.
		unlimited bool
	}{
		{"share", claim("1", share("gpu-a", "s", "1Gi")), true, "1-gpu-a-s=GPU-a limit GPU-a " + gib + " " + gib, nil, false},
		{"all of it", claim("1", share("gpu-a", "s", "40Gi")), true, "1-gpu-a-s=GPU-a", nil, false},
		{"soft limit", configured(claim("1", share("gpu-a", "s", "1Gi")), config(fromClaim, "GPUConfig", `"memory":{"softLimit":"512Mi"}`)), true, "1-gpu-a-s=GPU-a limit GPU-a 536870912 " + gib, nil, false},
		{"soft limit above the share", configured(claim("1", share("gpu-a", "s", "1Gi")), config(fromClaim, "GPUConfig", `"memory":{"softLimit":"2Gi"}`)), true, "", []string{"softLimit 2Gi", "1Gi"}, false},
		{"not wanted by the class", configured(claim("1", share("gpu-a", "s", "1Gi")), config(fromClass, "GPUConfig", `"memory":{"enforcement":"None"}`)), true, "1-gpu-a-s=GPU-a", nil, false},
		{"not wanted by the tenant", configured(claim("1", share("gpu-a", "s", "1Gi")), config(fromClaim, "GPUConfig", `"memory":{"enforcement":"None"}`)), true, "", []string{"only a DeviceClass"}, false},
		{"not possible", claim("1", share("gpu-a", "s", "1Gi")), false, "1-gpu-a-s=GPU-a", nil, true},
		{"required and not possible", configured(claim("1", share("gpu-a", "s", "1Gi")), config(fromClass, "GPUConfig", `"memory":{"enforcement":"Required"}`)), false, "", []string{"requires that its memory is limited", "gpu-a", "memoryEnforcement"}, false},
		{"required by the class, not by the claim", configured(claim("1", share("gpu-a", "s", "1Gi")),
			config(fromClaim, "GPUConfig", `"memory":{"enforcement":"Preferred"}`), config(fromClass, "GPUConfig", `"memory":{"enforcement":"Required"}`)), false, "1-gpu-a-s=GPU-a", nil, true},
		{"required, of the whole GPU", configured(claim("1", share("gpu-a", "s", "40Gi")), config(fromClaim, "GPUConfig", `"memory":{"enforcement":"Required"}`)), false, "1-gpu-a-s=GPU-a", nil, false},
		{"config for partitions only", configured(claim("1", share("gpu-a", "s", "1Gi")), config(fromClaim, "MIGConfig", `"memory":{"enforcement":"Required"}`)), false, "1-gpu-a-s=GPU-a", nil, true},
		{"config for another request", configured(claim("1", share("gpu-a", "s", "1Gi")), config(fromClaim, "GPUConfig", `"memory":{"enforcement":"Required"}`, "other")), false, "1-gpu-a-s=GPU-a", nil, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t, t.TempDir())
			target := n.targets["gpu-a"]
			target.LimitsMemory = test.nvml
			n.targets["gpu-a"] = target
			record, err := n.Prepare(t.Context(), test.claim)
			if test.wantErr != nil {
				wantError(t, err, test.wantErr...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := n.specs.of("1"); len(got) != 1 || got[0] != test.want {
				t.Errorf("spec is %q, want %q", got, test.want)
			}
			if said := record.Devices[0].NotLimited != ""; said != test.unlimited {
				t.Errorf("said not to be limited: %q", record.Devices[0].NotLimited)
			}
		})
	}
}

func TestConfigOnTheBareRequestNameReachesTheAlternative(t *testing.T) {
	n := newNode(t, t.TempDir())
	r := share("gpu-a", "s", "1Gi")
	r.Request = "gpu/small"
	_, err := n.Prepare(t.Context(), configured(claim("1", r), config(fromClaim, "GPUConfig", `"memory":{"enforcement":"Required"}`, "gpu")))
	wantError(t, err, "request gpu/small requires")
}

func TestMPSOfShares(t *testing.T) {
	n := newNode(t, t.TempDir())
	n.mustPrepare(t, claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50")))
	n.mustPrepare(t, configured(claim("2", share("gpu-a", "s2", "10Gi")), config(fromClaim, "GPUConfig", `"sharing":{"mps":{"activeThreadPercentage":25}}`)))
	n.mustPrepare(t, claim("3", withCompute(share("gpu-a", "s3", "10Gi"), "0")))
	if got := n.mps.list(); !slices.Equal(got, []string{"GPU-a 1", "GPU-a 2"}) {
		t.Errorf("users of MPS are %q", got)
	}
	for uid, want := range map[string]string{
		"1": "1-gpu-a-s1=GPU-a MPS_OF=GPU-a PERCENT=50", "2": "2-gpu-a-s2=GPU-a MPS_OF=GPU-a PERCENT=25", "3": "3-gpu-a-s3=GPU-a",
	} {
		if got := n.specs.of(claim(uid).UID); len(got) != 1 || got[0] != want {
			t.Errorf("spec is %q, want %q", got, want)
		}
	}
	for _, uid := range []string{"1", "2", "3"} {
		if err := n.Unprepare(t.Context(), claim(uid).UID); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.mps.list(); len(got) != 0 {
		t.Errorf("left users of MPS %q", got)
	}
}

func TestWithoutMPS(t *testing.T) {
	n := newNode(t, t.TempDir())
	n.mps.failure = fmt.Errorf("no daemon: %w", mps.ErrUnavailable)
	devices := n.mustPrepare(t, claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50")))
	if devices[0].MPS != nil || !strings.Contains(devices[0].NoMPS, "no daemon") {
		t.Errorf("device is %+v", devices[0])
	}
	_, err := n.Prepare(t.Context(), configured(claim("2", withCompute(share("gpu-a", "s2", "10Gi"), "50")), config(fromClaim, "GPUConfig", `"sharing":{"mps":{"enforcement":"Required"}}`)))
	wantError(t, err, "requires MPS", "gpu-a", "no daemon")
}

func TestAClaimThatIsRefusedLeavesNoUserOfMPS(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	n.mustPrepare(t, claim("1", share("gpu-a", "s1", "35Gi")))
	_, err := n.Prepare(t.Context(), claim("2", withCompute(share("gpu-a", "s2", "10Gi"), "50")))
	wantError(t, err, "would be in use")
	if got := n.mps.list(); len(got) != 0 {
		t.Errorf("left users of MPS %q", got)
	}
	// So does one whose driver was killed before it was recorded.
	n.mps.users["GPU-a 3"] = true
	n.start(t, dir, "boot-1")
	if err := n.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.mps.list(); len(got) != 0 {
		t.Errorf("left users of MPS %q after a restart", got)
	}
}

func TestMPSThatAClaimDoesNotUseEndsAlthoughItIsPrepared(t *testing.T) {
	tests := []struct {
		name          string
		unavailable   bool // MPS, at the first Prepare.
		first, second *resourceapi.ResourceClaim
		want          []string
	}{
		{"MPS came after the claim, which runs without", true,
			claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50")), claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50")), nil},
		{"allocated anew on another GPU", false,
			claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50")), claim("1", withCompute(share("gpu-b", "s2", "10Gi"), "50")), []string{"GPU-b 1"}},
		{"allocated anew without compute", false,
			claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50")), claim("1", share("gpu-a", "s2", "10Gi")), nil},
		{"the same again", false,
			claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50")), claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50")), []string{"GPU-a 1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t, t.TempDir())
			if test.unavailable {
				n.mps.failure = fmt.Errorf("no daemon: %w", mps.ErrUnavailable)
			}
			n.mustPrepare(t, test.first)
			n.mps.failure = nil
			n.mustPrepare(t, test.second)
			if got := n.mps.list(); !slices.Equal(got, test.want) {
				t.Errorf("users of MPS are %q, want %q", got, test.want)
			}
			if err := n.Unprepare(t.Context(), "1"); err != nil {
				t.Fatal(err)
			}
			if got := n.mps.list(); len(got) != 0 {
				t.Errorf("left users of MPS %q", got)
			}
		})
	}
}

func TestAClaimAllocatedAnewThatIsRefusedLeavesNoUserOfMPS(t *testing.T) {
	n := newNode(t, t.TempDir())
	n.mustPrepare(t, claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50")))
	n.mustPrepare(t, claim("2", result("gpu-b")))
	_, err := n.Prepare(t.Context(), claim("1", result("gpu-b")))
	wantError(t, err, "in use by claim team/claim-2")
	if got := n.mps.list(); len(got) != 0 {
		t.Errorf("left users of MPS %q", got)
	}
}

func TestTimeSliceIsOnePerGPU(t *testing.T) {
	timeSlice := func(uid, id, device, interval string) *resourceapi.ResourceClaim {
		return configured(claim(uid, share(device, id, "10Gi")), config(fromClaim, "GPUConfig", `"sharing":{"timeSlicing":{"interval":"`+interval+`"}}`))
	}
	n := newNode(t, t.TempDir())
	n.mustPrepare(t, timeSlice("1", "s1", "gpu-a", "Long"))
	n.mustPrepare(t, timeSlice("2", "s2", "gpu-a", "Long"))
	_, err := n.Prepare(t.Context(), timeSlice("3", "s3", "gpu-a", "Short"))
	wantError(t, err, "Short", "team/claim-1", "Long")
	n.mustPrepare(t, timeSlice("4", "s4", "gpu-b", "Short"))
	n.mustPrepare(t, claim("5", share("gpu-a", "s5", "10Gi")))
	if n.slices.of["GPU-a"] != "Long" || n.slices.of["GPU-b"] != "Short" {
		t.Errorf("time slices are %q", n.slices.of)
	}
	for i, uid := range []string{"1", "2"} {
		if err := n.Unprepare(t.Context(), claim(uid).UID); err != nil {
			t.Fatal(err)
		}
		if want := []string{"Long", "Default"}[i]; n.slices.of["GPU-a"] != want {
			t.Errorf("after claim %s was unprepared the time slice is %q, want %s", uid, n.slices.of["GPU-a"], want)
		}
	}
	n.mustPrepare(t, timeSlice("3", "s3", "gpu-a", "Short"))
}

// The supervisor of MPS set its file of users aside, and asked for a restart of the plugin.
func TestARestartAcquiresMPSAgainForClaimsThatTheSupervisorForgot(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	n.mustPrepare(t, claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50")))
	n.mustPrepare(t, claim("2", withCompute(share("gpu-a", "s2", "10Gi"), "25")))
	n.mustPrepare(t, claim("3", share("gpu-a", "s3", "10Gi")))
	delete(n.mps.users, "GPU-a 1")
	n.start(t, dir, "boot-1")
	if err := n.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.mps.list(); !slices.Equal(got, []string{"GPU-a 1", "GPU-a 2"}) {
		t.Errorf("users of MPS are %q", got)
	}
	// One that cannot be had is told of.
	clear(n.mps.users)
	n.mps.failure = fmt.Errorf("no daemon: %w", mps.ErrUnavailable)
	n.start(t, dir, "boot-1")
	wantError(t, n.Reconcile(t.Context()), "team/claim-1", "GPU-a", "no daemon")
}

// The kubelet was restarted while nvidia-smi ran: the claim ended, and its GPU kept the
// interval.
func TestATimeSliceOfAnUnprepareThatIsCutOffIsSetBackByTheNext(t *testing.T) {
	n := newNode(t, t.TempDir())
	n.mustPrepare(t, configured(claim("1", share("gpu-a", "s1", "10Gi")), config(fromClaim, "GPUConfig", `"sharing":{"timeSlicing":{"interval":"Long"}}`)))
	ctx, cancel := context.WithCancel(t.Context())
	n.TimeSlices = interrupted{n.slices, cancel}
	if err := n.Unprepare(ctx, "1"); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want that the call was given up", err)
	}
	n.TimeSlices = n.slices
	if err := n.Unprepare(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if got := n.slices.of["GPU-a"]; got != "Default" {
		t.Errorf("time slice is %q, want Default", got)
	}
}

// interrupted ends its caller's context before it sets anything.
type interrupted struct {
	*fakeTimeSlices
	cancel func()
}

func (i interrupted) Set(ctx context.Context, gpu, interval string) error {
	i.cancel()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("set the time slice of GPU %s: %w", gpu, err)
	}
	return i.fakeTimeSlices.Set(ctx, gpu, interval)
}

func TestMPSIsForClaimsOfOneGPU(t *testing.T) {
	n := newNode(t, t.TempDir())
	devices := n.mustPrepare(t, claim("1", withCompute(share("gpu-a", "s1", "10Gi"), "50"), withCompute(share("gpu-b", "s2", "10Gi"), "50")))
	if devices[0].MPS != nil || devices[1].MPS != nil || devices[0].NoMPS == "" || len(n.mps.list()) != 0 {
		t.Errorf("devices are %+v, users %q", devices, n.mps.list())
	}
	_, err := n.Prepare(t.Context(), configured(claim("2", share("gpu-a", "s3", "10Gi"), share("gpu-b", "s4", "10Gi")), config(fromClaim, "GPUConfig", `"sharing":{"mps":{"enforcement":"Required"}}`)))
	wantError(t, err, "requires MPS", "one GPU only")
}

// The node is read again while a claim waits for its GPU, and the device is not there
// for a moment: then nobody would know how much memory it has.
func TestAGPUIsNotOvercommittedWhileTheNodeIsReadAgain(t *testing.T) {
	n := newNode(t, t.TempDir())
	n.mustPrepare(t, claim("1", share("gpu-a", "s1", "30Gi")))
	asked := 0
	n.Resolve = func(device string) (Target, bool) {
		asked++
		target, ok := n.targets[device]
		return target, ok && asked == 1
	}
	_, err := n.Prepare(t.Context(), claim("2", share("gpu-a", "s2", "20Gi")))
	wantError(t, err, "device gpu-a has 40Gi of memory", "50Gi would be in use")
	if asked != 1 {
		t.Errorf("the device was looked up %d times", asked)
	}
}
