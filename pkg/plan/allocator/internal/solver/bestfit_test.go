package solver

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

func (r *rig) best() *rig {
	r.bestFit = true
	return r
}

func TestBestFitTakesTheFullestSharedDevice(t *testing.T) {
	pool := []resourceapi.Device{}
	for _, name := range []string{"free", "little", "much", "full"} {
		pool = append(pool, device(name, shared, capacityOf("memory", "40Gi", everything("40Gi", "1Gi"))))
	}
	r := newRig(claimOf("c", exactly("a", 1, asking("memory=10Gi")))).pool("p", pool).
		share("p/little", "1", "memory=10Gi").share("p/much", "2", "memory=30Gi").share("p/full", "3", "memory=31Gi")
	r.check(t, []string{"a=p/free memory=10Gi"})
	r.best().check(t, []string{"a=p/much memory=10Gi"})
	r.claims = []*resourceapi.ResourceClaim{claimOf("c", exactly("a", 3, asking("memory=10Gi")))}
	r.check(t, []string{"a=p/free memory=10Gi", "a=p/little memory=10Gi", "a=p/much memory=10Gi"})
}

func TestBestFitTakesTheSmallestDevice(t *testing.T) {
	newRig(claimOf("c", exactly("a", 1))).best().
		pool("p", []resourceapi.Device{device("large", capacityOf("memory", "80Gi")), device("small", capacityOf("memory", "10Gi")), device("medium", capacityOf("memory", "40Gi"))}).
		check(t, []string{"a=p/small"})
}

func TestBestFitTakesTheLeastOfCounters(t *testing.T) {
	newRig(claimOf("c", exactly("a", 1))).best().
		pool("p", []resourceapi.Device{device("whole", consumes("s", "n=7")), device("part", consumes("s", "n=1"))}, counterSet("s", "n=7")).
		check(t, []string{"a=p/part"})
}

func TestBestFitGathersPartitions(t *testing.T) {
	var parts []resourceapi.Device
	for _, gpu := range []string{"g0", "g1"} {
		for _, part := range []string{"a", "b", "c"} {
			parts = append(parts, device(gpu+part, consumes(gpu, "n=2")))
		}
	}
	r := newRig(claimOf("c", exactly("a", 2))).best().
		pool("p", parts, counterSet("g0", "n=7"), counterSet("g1", "n=7")).inUse("p/g1a")
	r.check(t, []string{"a=p/g1b", "a=p/g1c"})
}

func TestBestFitNeverGivesUpWhatThereIs(t *testing.T) {
	// The smallest device is the only one that the second request can have.
	newRig(claimOf("c", exactly("any", 1), exactly("small", 1, selecting(isNIC)))).best().
		pool("p", []resourceapi.Device{gpu("g", capacityOf("memory", "80Gi")), nic("n", capacityOf("memory", "1Gi"))}).
		check(t, []string{"any=p/g", "small=p/n"})
}

func TestBestFitErrsWhereKubeSchedulerErrs(t *testing.T) {
	// By size the second device would be tried first, and there would be no error.
	newRig(claimOf("c", exactly("a", 1, selecting(`device.attributes["gpu.example.com"].v == 1`)))).best().
		pool("p", []resourceapi.Device{device("x", capacityOf("memory", "2")), device("y", capacityOf("memory", "1"), attribute("v", 1))}).
		checkError(t, "p/x")
}
