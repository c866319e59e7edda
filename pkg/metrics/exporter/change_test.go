package exporter

import (
	"fmt"
	"strings"
	"testing"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

func TestAValueIsNeverShownUnderAnotherOwner(t *testing.T) {
	r := newRig(t)
	show := func(want ...string) {
		t.Helper()
		r.expect([]string{temperature}, want...)
	}
	other := strings.NewReplacer(`UUID="GPU-0"`, `UUID="GPU-1"`, `gpu="0"`, `gpu="1"`, "nvidia0", "nvidia1", "1B", "1C")
	r.owners(0, whole(0, "a", "a"), whole(1, "x", "x"))
	r.Update(sample(1, gpu(0, values(40, 0)...), gpu(1, values(50, 0)...)))
	show(temp("40", "a"), other.Replace(temp("50", "x")))

	// The owner has changed, and there is no sample since.
	r.owners(2, whole(0, "b", "b"), whole(1, "x", "x"))
	show(temp("40", "a"), other.Replace(temp("50", "x")))

	// This one was begun before the change: whose it is cannot be told. The other
	// device's is published.
	r.Update(sample(1.5, gpu(0, values(41, 0)...), gpu(1, values(51, 0)...)))
	show(temp("40", "a"), other.Replace(temp("51", "x")))

	r.Update(sample(2, gpu(0, values(42, 0)...), gpu(1, values(52, 0)...)))
	show(temp("42", "b"), other.Replace(temp("52", "x")))

	// The same when it becomes nobody's, and somebody's again.
	r.owners(3, whole(1, "x", "x"))
	r.Update(sample(2.5, gpu(0, values(43, 0)...), gpu(1, values(53, 0)...)))
	show(temp("42", "b"), other.Replace(temp("53", "x")))
	r.Update(sample(3.5, gpu(0, values(44, 0)...), gpu(1, values(54, 0)...)))
	show(temp("44", ""), other.Replace(temp("54", "x")))
	r.owners(4, whole(0, "c", "c"))
	r.Update(sample(3.9, gpu(0, values(45, 0)...)))
	show(temp("44", ""))
	r.Update(sample(4.1, gpu(0, values(46, 0)...)))
	show(temp("46", "c"))
}

func TestADeviceThatAppearsWithAChangeWaitsForTheNextSample(t *testing.T) {
	r := newRig(t)
	r.owners(2, partition(0, 1, "1g.10gb", "a", 0.125, "a"))
	parent := gpu(0, values(40, 0)...)
	r.Update(sample(1.9, parent, instance(parent, 1, "1g.10gb", absent, absent, absent, number(7))))
	if got := r.lines(memoryUsed); len(got) != 1 || strings.Contains(got[0], "GPU_I_ID") {
		t.Errorf("%v", got)
	}
	r.Update(sample(2.1, parent, instance(parent, 1, "1g.10gb", absent, absent, absent, number(8))))
	if got := r.lines(memoryUsed); len(got) != 1 || !strings.Contains(got[0], `pod="a"`) {
		t.Errorf("%v", got)
	}
}

// The clock of the node was set back after the change.
func TestOwnersFromTheFutureAreTakenFromWhenTheyWereLearned(t *testing.T) {
	r := newRig(t)
	r.SetOwners(ownership.Snapshot{Instance: "i", Generation: 1, Time: at(3600), Verified: at(3600), Owners: []ownership.Owner{whole(0, "a", "a")}}, at(0))
	r.Update(sample(1, gpu(0, values(40, 0)...)))
	r.expect([]string{temperature}, temp("40", "a"))
}

func TestDevicesWaitForTheFirstOwnersButNotForEver(t *testing.T) {
	r := newRig(t) // The grace is a second.
	r.Update(sample(0.5, gpu(0, values(40, 0)...)))
	r.expect([]string{temperature})
	r.Update(sample(1.5, gpu(0, values(41, 0)...)))
	r.expect([]string{temperature}, temp("41", ""))
	// Nothing is known of what is free.
	r.expect([]string{unallocatedTime.name})
	r.owners(0, whole(0, "a", "a"))
	r.Update(sample(2, gpu(0, values(42, 0)...)))
	r.expect([]string{temperature}, temp("42", "a"))
}

// The driver was started again and cannot list pods yet.
func TestConsumersThatTheServiceLacksAreKept(t *testing.T) {
	r := newRig(t)
	r.owners(0, whole(0, "a", "a"))
	set := func(seconds float64, generation uint64, problem string, owners ...ownership.Owner) {
		r.SetOwners(ownership.Snapshot{Instance: "j", Generation: generation, Time: at(seconds), Verified: at(seconds), Problem: problem, Owners: owners}, at(seconds))
		r.Update(sample(seconds+0.5, gpu(0, values(40, 0)...)))
	}
	set(1, 1, "pods: connection refused", whole(0, "a"))
	r.expect([]string{temperature}, temp("40", "a"))
	set(2, 2, "pods: connection refused", whole(0, "a"))
	r.expect([]string{temperature}, temp("40", "a"))
	// Another claim's pods are not this one's.
	set(3, 3, "pods: connection refused", whole(0, "b"))
	r.expect([]string{temperature}, temp("40", ""))
	set(4, 4, "", whole(0, "b", "b"))
	r.expect([]string{temperature}, temp("40", "b"))
	set(5, 5, "", whole(0, "b"))
	r.expect([]string{temperature}, temp("40", ""))
}

// A sample is under way when owners change, and does not count for their devices.
func TestTheLabelsOfANewOwnerDoNotChangeWithTheNextSample(t *testing.T) {
	r := newRig(t)
	info := func(claim string) string {
		return fmt.Sprintf(`%s{Hostname="node-a",UUID="GPU-0",claim=%q,claim_uid="uid-%s",container="main",device="gpu-0",gpu="0",modelName="NVIDIA T",namespace="team",pod=%q,pod_uid="uid-%s",request="gpu",share_id="share-%s",uuid="GPU-0"} 1`,
			ownerInfo.name, claim, claim, claim, claim, claim)
	}
	const partitioned = `{GPU_I_ID="3",GPU_I_PROFILE="1g.10gb",Hostname="node-a",UUID="GPU-1",claim="c",claim_uid="uid-c",container="main",device="gpu-1-mig-3",gpu="1",modelName="NVIDIA T",namespace="team",pod="c",pod_uid="uid-c",request="gpu",uuid="MIG-1-3"} 1`
	a, b, c := share(0, "a", 0.5, "a"), share(0, "b", 0.5, "b"), partition(1, 3, "1g.10gb", "c", 0.125, "c")
	r.owners(0, a)
	r.Update(sample(1, gpu(0), gpu(1)))
	r.expect([]string{ownerInfo.name}, info("a"))
	r.owners(2, a, b, c)
	r.Update(sample(1.9, gpu(0), gpu(1)))
	r.expect([]string{ownerInfo.name}, info("a"), info("b"), ownerInfo.name+partitioned)
	r.Update(sample(2.1, gpu(0), gpu(1), instance(gpu(1), 3, "1g.10gb")))
	r.expect([]string{ownerInfo.name}, info("a"), info("b"), ownerInfo.name+partitioned)
}

// What is measured over a time began under the owner before.
func TestANewPodHasNothingOfTheWorkOfThePodBefore(t *testing.T) {
	r := newRig(t)
	r.o.Fields = []gpumetrics.Field{{Name: "DCGM_FI_PROF_SM_ACTIVE", Help: "Active.", Type: gpumetrics.Gauge, OverTime: true}}
	// Each sample measures the second before it.
	read := func(seconds float64, want ...string) {
		t.Helper()
		d := gpu(0, number(seconds))
		d.MeasuredSince = at(seconds - 1)
		r.Update(sample(seconds, d))
		for i := range want {
			want[i] = strings.Replace(want[i], temperature, "DCGM_FI_PROF_SM_ACTIVE", 1)
		}
		r.expect([]string{"DCGM_FI_PROF_SM_ACTIVE"}, want...)
	}
	r.owners(0, whole(0, "a", "a"))
	read(1, temp("1", "a"))
	r.owners(1.5, whole(0, "b", "b"))
	read(2)
	read(3, temp("3", "b"))
	r.owners(3.5)
	read(4)
	read(5, temp("5", ""))
	// A second pod joins, and a third: the series is that of the device then and stays.
	r.owners(5.5, share(0, "a", 0.25, "a"), share(0, "b", 0.25, "b"))
	read(6, temp("6", ""))
	r.owners(6.5, share(0, "a", 0.25, "a"), share(0, "b", 0.25, "b"), share(0, "c", 0.25, "c"))
	read(7, temp("7", ""))
	// One is left, and is alone from then on, also with another claim beside.
	r.owners(7.5, share(0, "b", 0.25, "b"))
	read(8)
	read(9, temp("9", "b"))
	r.owners(9.5, share(0, "b", 0.25, "b"), share(0, "b2", 0.25, "b"))
	read(10, temp("10", "b"))
}
