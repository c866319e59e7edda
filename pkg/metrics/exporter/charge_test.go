package exporter

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// charged are the values of a counter by claim and pod ("claim/pod"), and of "rest" for
// what is nobody's.
func (r *rig) charged(name string) map[string]float64 {
	r.t.Helper()
	result := map[string]float64{}
	for _, line := range r.lines(name) {
		series, value, _ := strings.Cut(line, "} ")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		key := "rest"
		if label(series, "claim") != "" {
			key = label(series, "claim") + "/" + label(series, "pod")
		}
		result[key] += number
	}
	return result
}

func label(series, name string) string {
	_, rest, ok := strings.Cut(series, "{"+name+`="`)
	if !ok {
		_, rest, _ = strings.Cut(series, ","+name+`="`)
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// expectCharged compares seconds, and joules if any are given.
func (r *rig) expectCharged(seconds, joules map[string]float64) {
	r.t.Helper()
	got := r.charged(allocatedTime.name)
	maps.Copy(got, r.charged(unallocatedTime.name))
	compare := func(what string, got, want map[string]float64) {
		r.t.Helper()
		same := len(got) == len(want)
		for key, value := range want {
			number, ok := got[key]
			same = same && ok && math.Abs(number-value) < 1e-6
		}
		if !same {
			r.t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	compare("seconds", got, seconds)
	if joules != nil {
		compare("joules", r.charged(energy.name), joules)
	}
}

type amounts = map[string]float64

// drawn is a GPU whose counter is at a number of joules.
func drawn(n int, joules float64) gpumetrics.Device {
	d := gpu(n)
	d.SMUtil, d.EnergyMillijoules = ptr.To(0.0), ptr.To(uint64(joules*1000))
	return d
}

func TestTimeAndEnergyOfAWholeGPU(t *testing.T) {
	r := newRig(t)
	r.owners(0)
	r.Update(sample(0, drawn(0, 1000)))
	r.expectCharged(amounts{"rest": 0}, amounts{"rest": 0})
	r.Update(sample(10, drawn(0, 1500)))
	r.expectCharged(amounts{"rest": 10}, amounts{"rest": 500})
	// Prepared 4 s after the last sample, known after 6 s: it counts from the former.
	r.owners(16, since(14, whole(0, "a", "a"))...)
	r.Update(sample(20, drawn(0, 2500)))
	r.expectCharged(amounts{"rest": 14, "a/a": 6}, amounts{"rest": 900, "a/a": 600})
	// An idle GPU is its holder's, too. It is released after 3 s.
	r.owners(23)
	r.Update(sample(30, drawn(0, 2600)))
	r.expectCharged(amounts{"rest": 21, "a/a": 9}, amounts{"rest": 970, "a/a": 630})
}

func TestTimeBeforeTheExporterKnowsTheOwnersIsNotCharged(t *testing.T) {
	r := newRig(t)
	r.Update(sample(2, drawn(0, 0)))
	r.Update(sample(3, drawn(0, 100)))
	r.owners(0, since(-100, whole(0, "a", "a"))...)
	r.Update(sample(4, drawn(0, 200)))
	r.expectCharged(amounts{"rest": 0, "a/a": 0}, amounts{"rest": 0, "a/a": 0})
	r.Update(sample(5, drawn(0, 300)))
	r.expectCharged(amounts{"rest": 0, "a/a": 1}, amounts{"rest": 0, "a/a": 100})
}

func TestSharesPayForTheirMemoryAndForWhatWasMeasured(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, share(0, "a", 0.25, "a"), share(0, "b", 0.5, "b"))...)
	r.Update(sample(0, drawn(0, 0)))
	d := drawn(0, 1000)
	r.process(&d, 1, "a", 10, ptr.To(0.125))
	r.process(&d, 2, "b", 10, ptr.To(0.25))
	r.process(&d, 3, "b", 10, ptr.To(0.25))
	r.process(&d, 4, "", 10, ptr.To(0.0625))
	r.Update(sample(8, d))
	// The node's process has no owner.
	r.expectCharged(amounts{"a/a": 2, "b/b": 4, "rest": 2}, amounts{"a/a": 125, "b/b": 500, "rest": 375})
	// Nothing is measured: nobody pays.
	d = drawn(0, 1800)
	d.Processes = nil
	r.Update(sample(16, d))
	r.expectCharged(amounts{"a/a": 4, "b/b": 8, "rest": 4}, amounts{"a/a": 125, "b/b": 500, "rest": 1175})
	// More than all is measured, as each was at another moment.
	d = drawn(0, 2300)
	r.process(&d, 1, "a", 10, ptr.To(1.0))
	r.process(&d, 2, "b", 10, ptr.To(0.25))
	r.Update(sample(17, d))
	r.expectCharged(amounts{"a/a": 4.25, "b/b": 8.5, "rest": 4.25}, amounts{"a/a": 525, "b/b": 600, "rest": 1175})
}

func TestEnergyOfASharesOwnersIsAbsentUntilMeasured(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, share(0, "a", 0.25, "a"))...)
	for i := range 3 {
		d := drawn(0, float64(i))
		d.Processes = nil
		r.Update(sample(float64(i), d))
	}
	r.expectCharged(amounts{"a/a": 0.5, "rest": 1.5}, amounts{"rest": 2})
}

func TestPartitionsPayBySlicesAndByHowBusyTheyWere(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, partition(0, 1, "1g.10gb", "a", 0.125, "a"), partition(0, 2, "3g.40gb", "b", 0.5, "b"))...)
	node := func(joules float64, busyA, busyB *float64) []gpumetrics.Device {
		parent := drawn(0, joules)
		a, b := instance(parent, 1, "1g.10gb"), instance(parent, 2, "3g.40gb")
		a.SMUtil, b.SMUtil = busyA, busyB
		return []gpumetrics.Device{parent, a, b}
	}
	r.Update(sample(0, node(0, nil, nil)...))
	r.Update(sample(8, node(800, nil, nil)...))
	r.expectCharged(amounts{"a/a": 1, "b/b": 4, "rest": 3}, amounts{"a/a": 100, "b/b": 400, "rest": 300})
	r.Update(sample(16, node(1600, ptr.To(1.0), ptr.To(0.5))...))
	r.expectCharged(amounts{"a/a": 2, "b/b": 8, "rest": 6}, amounts{"a/a": 200, "b/b": 600, "rest": 800})
}

func TestASharedPartitionPaysByMemory(t *testing.T) {
	r := newRig(t)
	a, b := partition(0, 1, "4g.40gb", "a", 0.25, "a"), partition(0, 1, "4g.40gb", "b", 0.125, "b")
	a.Device.ShareID, b.Device.ShareID = "s1", "s2"
	r.owners(0, since(0, a, b)...)
	parent := drawn(0, 0)
	r.Update(sample(0, parent, instance(parent, 1, "4g.40gb")))
	parent = drawn(0, 800)
	in := instance(parent, 1, "4g.40gb")
	in.SMUtil = ptr.To(0.5)
	r.Update(sample(8, parent, in))
	r.expectCharged(amounts{"a/a": 2, "b/b": 1, "rest": 5}, amounts{"a/a": 100, "b/b": 50, "rest": 650})
}

func TestAnEnergyCounterThatBeginsAnewOrIsAwayForATime(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, whole(0, "a", "a"))...)
	r.Update(sample(0, drawn(0, 1000)))
	r.Update(sample(1, drawn(0, 30))) // The driver was loaded again.
	r.expectCharged(amounts{"a/a": 1, "rest": 0}, amounts{"a/a": 30, "rest": 0})
	r.Update(sample(2, gpu(0)))
	// The claim ends half-way while the counter cannot be read.
	r.owners(3, since(3, whole(0, "b", "b"))...)
	r.Update(sample(4, gpu(0)))
	r.Update(sample(5, drawn(0, 130)))
	r.expectCharged(amounts{"a/a": 3, "b/b": 2, "rest": 0}, amounts{"a/a": 80, "b/b": 50, "rest": 0})
}

func TestAGPUWithoutAnEnergyCounterHasNoEnergySeries(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, whole(0, "a", "a"))...)
	r.Update(sample(0, gpu(0)))
	r.Update(sample(1, gpu(0)))
	r.expectCharged(amounts{"a/a": 1, "rest": 0}, amounts{})
}

func TestAGPUThatCannotBeReadForAMomentIsChargedFor(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, whole(0, "a", "a"))...)
	r.Update(sample(0, drawn(0, 0)))
	r.Update(sample(10))
	r.expectCharged(amounts{"a/a": 0, "rest": 0}, nil)
	r.Update(sample(20, drawn(0, 200)))
	r.expectCharged(amounts{"a/a": 20, "rest": 0}, amounts{"a/a": 200, "rest": 0})
	// For longer than a minute it may not have been there at all.
	r.Update(sample(50))
	r.Update(sample(81))
	r.Update(sample(90, drawn(0, 900)))
	r.Update(sample(100, drawn(0, 1000)))
	r.expectCharged(amounts{"a/a": 30, "rest": 0}, amounts{"a/a": 300, "rest": 0})
}

func TestCountersOfEndedOwnersAreKeptForATime(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, whole(0, "a", "a"))...)
	r.Update(sample(0, drawn(0, 0)))
	r.owners(10)
	for seconds := 20.0; seconds <= 310; seconds += 10 {
		r.Update(sample(seconds, drawn(0, 10*seconds)))
		if got := r.charged(allocatedTime.name); got["a/a"] != 10 {
			t.Fatalf("after %v s: %v", seconds, got)
		}
	}
	r.Update(sample(311, drawn(0, 0)))
	r.expectCharged(amounts{"rest": 301}, amounts{"rest": 3000})
}

func TestAClaimThatComesBackGoesOnCounting(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, whole(0, "a", "a"))...)
	r.Update(sample(0, gpu(0)))
	r.owners(1)
	r.Update(sample(2, gpu(0)))
	r.owners(3, since(3, whole(0, "a", "a"))...)
	r.Update(sample(5, gpu(0)))
	r.expectCharged(amounts{"a/a": 3, "rest": 2}, nil)
}

func TestAClaimThatPassesFromPodToPodIsChargedToEach(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, whole(0, "c", "a"))...)
	r.Update(sample(0, drawn(0, 0)))
	gone := whole(0, "c", "a")
	gone.Consumers[0].State = ownership.Gone
	r.owners(1, since(0, gone)...) // Its claim is not unprepared yet.
	r.owners(2, since(0, whole(0, "c", "b"))...)
	r.owners(3, since(0, whole(0, "c", "b", "d"))...)
	r.Update(sample(10, drawn(0, 1000)))
	// Two pods at once cannot be told apart.
	r.expectCharged(amounts{"c/a": 2, "c/b": 1, "c/": 7, "rest": 0}, amounts{"c/a": 200, "c/b": 100, "c/": 700, "rest": 0})
}

func TestAPodThatHasGoneKeepsItsWorkload(t *testing.T) {
	r := newRig(t)
	o := whole(0, "c", "a")
	o.Consumers[0].Workload = &ownership.Workload{APIVersion: "batch/v1", Kind: "Job", Name: "train"}
	r.owners(0, since(0, o)...)
	r.Update(sample(0, gpu(0)))
	gone := whole(0, "c", "a")
	gone.Consumers[0] = ownership.Consumer{Namespace: "team", Name: "a", UID: "uid-a", State: ownership.Gone}
	r.owners(1, since(0, gone)...)
	r.Update(sample(2, gpu(0)))
	if lines := r.lines(allocatedTime.name); len(lines) != 1 || label(lines[0], "workload") != "train" || !strings.HasSuffix(lines[0], "} 2") {
		t.Errorf("%v", lines)
	}
}

func TestChangesThatAreLearnedAtOnceMakeRoomForEachOther(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, whole(0, "a", "a"), share(1, "s", 0.25, "s"))...)
	r.Update(sample(0, gpu(0), gpu(1)))
	// a ended by the time b began, at 4. The share may have gone on until 8, as far as
	// is known.
	r.owners(8, append(since(4, whole(0, "b", "b")), since(6, share(1, "u", 0.5, "u"))...)...)
	r.Update(sample(10, gpu(0), gpu(1)))
	r.expectCharged(amounts{"a/a": 4, "b/b": 6, "s/s": 2, "u/u": 2, "rest": 6}, nil)
}

func TestHoldsThatAreTooManyAddUpToTheGPU(t *testing.T) {
	r := newRig(t)
	r.owners(0, since(0, whole(0, "a", "a"), whole(0, "b", "b"), share(0, "c", 2, "c"), share(0, "d", -1, "d"))...)
	r.Update(sample(0, drawn(0, 0)))
	r.Update(sample(9, drawn(0, 900)))
	r.expectCharged(amounts{"a/a": 3, "b/b": 3, "c/c": 3, "d/d": 0, "rest": 0}, amounts{"a/a": 300, "b/b": 300, "c/c": 300, "rest": 0})
}

func TestAdministratorsAreNotCharged(t *testing.T) {
	r := newRig(t)
	admin := whole(0, "watch", "w")
	admin.AdminAccess = true
	r.owners(0, admin)
	r.Update(sample(0, gpu(0)))
	r.Update(sample(1, gpu(0)))
	r.expectCharged(amounts{"rest": 1}, nil)
}

// A node's clock is set when it has reached a time server.
func TestAClockThatIsSetCostsNobodyAYear(t *testing.T) {
	for _, jump := range []time.Duration{365 * 24 * time.Hour, -365 * 24 * time.Hour} {
		g := &gpuCharge{}
		o := whole(0, "a", "a")
		a := &account{}
		g.rest = &account{}
		g.holds = []hold{{account: a, owner: &o, from: start}}
		// The wall clock jumped, and 2 s have passed.
		g.timed = start.Round(0)
		g.chargeTime(g.spans(g.timed, start.Add(jump)), 2, true)
		if math.Abs(a.seconds-2) > 1e-9 || g.rest.seconds != 0 {
			t.Errorf("jump of %s: %v s charged, %v s left", jump, a.seconds, g.rest.seconds)
		}
	}
}
