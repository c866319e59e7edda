package suite

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"apportion.dev/apportion/e2e/image"
	"apportion.dev/apportion/e2e/standalone"
)

// The places where a plugin that makes or removes a partition is killed, in the
// order in which it passes them: those of pkg/node/prepare and, between the calls of
// NVML, those of pkg/node/mig.
var (
	partitionPreparePoints = []string{
		"prepareAfterIntent", "migModeEnabled", "migGPUInstanceCreated", "migComputeInstanceCreated", "prepareAfterSteps", "prepareAfterRecord",
	}
	partitionUnpreparePoints = []string{
		"unprepareLocked", "migComputeInstanceDestroyed", "migGPUInstanceDestroyed", "undoAfterSteps", "undoAfterRecord",
	}
)

// TestAKilledPluginLeavesNoPartitionBehind kills the plugin at each step of a
// partition's Prepare and Unprepare. The plugin is a process of its own here, without
// a kubelet: two of these points are also in TestKilledInTheMiddle, on the cluster.
func TestAKilledPluginLeavesNoPartitionBehind(t *testing.T) {
	rig := newFaultRig(t)
	// The neighbour has a partition of another GPU all the time.
	neighbour := rig.allocate(rig.partition(1))
	rig.prepare(neighbour)
	before := rig.uuids(1)
	if len(before) != 1 {
		t.Fatalf("the neighbour has the partitions %v", before)
	}

	after := []struct {
		name string
		do   func(t *testing.T, claim *resourceapi.ResourceClaim, finished bool)
	}{
		{"the kubelet asks again", func(t *testing.T, claim *resourceapi.ResourceClaim, _ bool) {
			rig.prepare(claim)
			if got := rig.uuids(0); len(got) != 1 {
				t.Errorf("prepared again, the GPU has the partitions %v, want one", got)
			}
			rig.unprepare(claim)
		}},
		{"the pod is deleted", func(_ *testing.T, claim *resourceapi.ResourceClaim, _ bool) {
			rig.unprepare(claim)
		}},
		{"nobody asks again", func(t *testing.T, claim *resourceapi.ResourceClaim, finished bool) {
			// An unfinished claim is undone at start. A finished one is the pod's.
			if got := rig.uuids(0); !finished && len(got) > 0 || finished && len(got) != 1 {
				t.Errorf("after the start the GPU has the partitions %v", got)
			}
			if finished {
				rig.unprepare(claim)
			}
		}},
	}
	for _, point := range partitionPreparePoints {
		for _, then := range after {
			t.Run("prepare killed at "+point+", "+then.name, func(t *testing.T) {
				rig.t = t
				claim := rig.allocate(rig.partition(0))
				rig.killDuring(point, func(ctx context.Context) error { return rig.plugin.Prepare(ctx, claim) })
				then.do(t, claim, point == "prepareAfterRecord")
				rig.wantNothingOf(claim)
				rig.wantWholeUsable()
			})
		}
	}
	for _, point := range partitionUnpreparePoints {
		t.Run("unprepare killed at "+point, func(t *testing.T) {
			rig.t = t
			claim := rig.allocate(rig.partition(0))
			rig.prepare(claim)
			rig.killDuring(point, func(ctx context.Context) error { return rig.plugin.Unprepare(ctx, claim) })
			rig.unprepare(claim)
			rig.wantNothingOf(claim)
			rig.wantWholeUsable()
		})
	}
	rig.t = t
	if now := rig.uuids(1); !slices.Equal(now, before) {
		t.Errorf("the neighbour has the partitions %v, had %v", now, before)
	}
	rig.unprepare(neighbour)
	rig.wantNothingOf(neighbour)
	if left, err := partitionsOf(rig.plugin.Machine()); err != nil || len(left) > 0 {
		t.Errorf("left on the machine: %v, %v", left, err)
	}
}

// TestAPartitionThatSomebodyElseDestroyedIsMadeAgain: a restarted kubelet asks for a
// prepared claim again.
func TestAPartitionThatSomebodyElseDestroyedIsMadeAgain(t *testing.T) {
	rig := newFaultRig(t)
	claim := rig.allocate(rig.partition(0))
	rig.prepare(claim)
	old := rig.uuids(0)
	if len(old) != 1 {
		t.Fatalf("the claim has the partitions %v", old)
	}
	if err := rig.plugin.Machine().DestroyMIG("", old[0]); err != nil {
		t.Fatal(err)
	}
	rig.prepare(claim)
	if now := rig.uuids(0); len(now) != 1 {
		t.Errorf("prepared again, the GPU has the partitions %v, want one", now)
	}
	if _, err := rig.plugin.Spec(claim); err != nil {
		t.Errorf("the claim's spec: %v", err)
	}
	// And destroyed once more, it can be unprepared.
	if err := rig.plugin.Machine().DestroyMIG(rig.gpu(0), "all"); err != nil {
		t.Fatal(err)
	}
	rig.unprepare(claim)
	rig.wantNothingOf(claim)
	rig.wantWholeUsable()
}

// faultRig is a standalone plugin with fault points on a machine of two H100.
type faultRig struct {
	t      *testing.T
	plugin *standalone.Plugin
	faults string
	next   int
}

func newFaultRig(t *testing.T) *faultRig {
	t.Helper()
	binary := faultyPlugin(t)
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := standalone.Start(t.Context(), standalone.Options{
		Program: binary, GPUs: "h100-sxm5-80gb:2", Environment: []string{"GOFAIL_HTTP=" + address},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the plugin's log ends with\n%s", plugin.LogTail())
		}
		if err := plugin.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &faultRig{t: t, plugin: plugin, faults: "http://" + address}
}

// faultyPlugin builds the plugin with fault points, once for all tests.
func faultyPlugin(t *testing.T) string {
	t.Helper()
	source := faultySource(t)
	binary := filepath.Join(source, program)
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/"+program)
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin with fault points: %v\n%s", err, output)
	}
	// The rig takes the library beside the plugin.
	if err := image.BuildFakeLibrary(t.Context(), source, filepath.Join(source, "libnvidia-ml.so")); err != nil {
		t.Fatal(err)
	}
	return binary
}

// freeAddress is one that nobody listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// gpu is the UUID of the machine's GPU with the index.
func (r *faultRig) gpu(index int) string {
	r.t.Helper()
	return summary(r.t, r.plugin.Machine()).GPUs[index].UUID
}

// partition is the published 3g.40gb of a GPU that comes first.
func (r *faultRig) partition(index int) resourceapi.Device {
	r.t.Helper()
	return r.device(func(d resourceapi.Device) bool {
		return text(d, "parentUUID") == r.gpu(index) && text(d, "profile") == "3g.40gb"
	})
}

func (r *faultRig) device(is func(resourceapi.Device) bool) resourceapi.Device {
	r.t.Helper()
	devices := r.plugin.Devices()
	i := slices.IndexFunc(devices, is)
	if i < 0 {
		r.t.Fatalf("no such device among %d", len(devices))
	}
	return devices[i]
}

func (r *faultRig) allocate(device resourceapi.Device) *resourceapi.ResourceClaim {
	r.t.Helper()
	r.next++
	claim, err := r.plugin.Allocate(types.UID(fmt.Sprintf("00000000-0000-4000-9000-%012d", r.next)), device)
	if err != nil {
		r.t.Fatal(err)
	}
	return claim
}

func (r *faultRig) prepare(claim *resourceapi.ResourceClaim) {
	r.t.Helper()
	if err := r.plugin.Prepare(r.t.Context(), claim); err != nil {
		r.t.Fatalf("prepare claim %s: %v", claim.Name, err)
	}
}

func (r *faultRig) unprepare(claim *resourceapi.ResourceClaim) {
	r.t.Helper()
	if err := r.plugin.Unprepare(r.t.Context(), claim); err != nil {
		r.t.Fatalf("unprepare claim %s: %v", claim.Name, err)
	}
}

// uuids are those of a GPU's MIG devices.
func (r *faultRig) uuids(index int) []string {
	r.t.Helper()
	var uuids []string
	for _, m := range gpu(r.t, r.plugin.Machine(), r.gpu(index)).MIG {
		uuids = append(uuids, m.UUID)
	}
	return uuids
}

// killDuring makes the call, kills the plugin when it stands at the fault point,
// and starts the next one.
func (r *faultRig) killDuring(point string, call func(context.Context) error) {
	r.t.Helper()
	if err := armFault(r.t.Context(), r.faults, point); err != nil {
		r.t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() { answer <- call(r.t.Context()) }()
	err := wait.PollUntilContextTimeout(r.t.Context(), 5*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-answer:
			return false, fmt.Errorf("it answered without passing there (error: %v)", err)
		default:
		}
		return faultReached(ctx, r.faults, point)
	})
	if err != nil {
		r.t.Fatalf("the plugin stands at %s: %v", point, err)
	}
	if err := r.plugin.Kill(); err != nil {
		r.t.Fatal(err)
	}
	if err := <-answer; err == nil {
		r.t.Errorf("killed at %s, the plugin answered", point)
	}
	if err := r.plugin.Launch(r.t.Context()); err != nil {
		r.t.Fatalf("start the plugin again: %v", err)
	}
}

// wantNothingOf checks that there is nothing of the claim on the node, and nothing
// of partitions on the first GPU.
func (r *faultRig) wantNothingOf(claim *resourceapi.ResourceClaim) {
	r.t.Helper()
	files, err := r.plugin.ClaimFiles()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, file := range files {
		if strings.Contains(file, string(claim.UID)) {
			r.t.Errorf("left of claim %s: %s", claim.Name, file)
		}
	}
	if g := gpu(r.t, r.plugin.Machine(), r.gpu(0)); len(g.MIG) > 0 || g.MIGMode != "off" {
		r.t.Errorf("left on the GPU: partitions %v, MIG mode %s", profilesOf(g), g.MIGMode)
	}
}

// wantWholeUsable has another claim use the first GPU whole.
func (r *faultRig) wantWholeUsable() {
	r.t.Helper()
	claim := r.allocate(r.device(func(d resourceapi.Device) bool { return text(d, "uuid") == r.gpu(0) }))
	r.prepare(claim)
	r.unprepare(claim)
	r.wantNothingOf(claim)
}
