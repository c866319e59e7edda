package exporter

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// machine is hardware, and its driver's ownership service.
type machine struct {
	nodes     chan inventory.Node
	snapshots chan ownership.Snapshot

	guard sync.Mutex
	// fresh is what a Snapshot sees, looks how often there was one.
	fresh inventory.Node
	looks int
	// times are when samples were taken. A sample waits for hold, if there is one.
	times []time.Time
	hold  chan struct{}

	watchEnded, ranDown bool
}

// with does something while nothing else happens to the machine.
func (m *machine) with(do func()) {
	m.guard.Lock()
	defer m.guard.Unlock()
	do()
}

func newMachine() *machine {
	return &machine{nodes: make(chan inventory.Node), snapshots: make(chan ownership.Snapshot)}
}

func (m *machine) Snapshot(context.Context) (inventory.Node, error) {
	m.guard.Lock()
	defer m.guard.Unlock()
	m.looks++
	return m.fresh, nil
}

func (m *machine) Watch(ctx context.Context, changed func(inventory.Node)) {
	for {
		select {
		case node := <-m.nodes:
			changed(node)
		case <-ctx.Done():
			time.Sleep(time.Second) // The last reading takes its time.
			m.with(func() { m.watchEnded = true })
			return
		}
	}
}

func (m *machine) Current() bool { return true }

func (m *machine) Read(_ context.Context, node inventory.Node, now time.Time) gpumetrics.Sample {
	var hold chan struct{}
	var count int
	m.with(func() {
		m.times = append(m.times, now)
		hold, count = m.hold, len(m.times)
	})
	if hold != nil {
		<-hold
	}
	sample := gpumetrics.Sample{Time: now}
	for i := range node.GPUs {
		d := gpu(i, values(float64(count), 0)...)
		sample.Devices = append(sample.Devices, d)
		for _, in := range node.GPUs[i].MIG.Instances {
			sample.Devices = append(sample.Devices, instance(d, in.ID, "1g.10gb", absent, absent, absent, number(1)))
		}
	}
	return sample
}

// service is the machine's other half: Watch and Run would both be Run.
type service struct{ *machine }

func (s service) Run(ctx context.Context, changed func(ownership.Snapshot)) {
	for {
		select {
		case snapshot := <-s.snapshots:
			changed(snapshot)
		case <-ctx.Done():
			time.Sleep(time.Second)
			s.with(func() { s.ranDown = true })
			return
		}
	}
}

func (s service) Current() (ownership.Snapshot, error) { return ownership.Snapshot{}, nil }
func (s service) Errors() uint64                       { return 3 }

// told is a snapshot of now.
func told(generation uint64, owners ...ownership.Owner) ownership.Snapshot {
	return ownership.Snapshot{Instance: "i", Generation: generation, Time: time.Now().UTC(), Verified: time.Now().UTC(), Owners: owners}
}

func nodeOf(partitions ...inventory.MIGInstance) inventory.Node {
	return inventory.Node{GPUs: []inventory.GPU{{UUID: "GPU-0", MIG: inventory.MIG{Instances: partitions}}}}
}

// running is an exporter that runs in a bubble.
type running struct {
	*Exporter
	*machine
	cancel context.CancelFunc
	ended  chan error
}

func startRun(t *testing.T) *running {
	r := &running{Exporter: New(Options{Fields: testFields, Hostname: "node-a", Interval: 10 * time.Second}), machine: newMachine(), ended: make(chan error, 1)}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(t.Context())
	go func() { r.ended <- r.Run(ctx, r.machine, r.machine, service{r.machine}) }()
	return r
}

// stop ends the run, which must have ended all that it began.
func (r *running) stop(t *testing.T, want error) {
	t.Helper()
	r.cancel()
	if err := <-r.ended; !errors.Is(err, want) {
		t.Errorf("Run ended with %v, want %v", err, want)
	}
	r.guard.Lock()
	defer r.guard.Unlock()
	if !r.watchEnded || !r.ranDown {
		t.Errorf("Run ended before what it began: source %t, owners %t", r.watchEnded, r.ranDown)
	}
}

func TestSamplesAreTakenAtEachIntervalAndAtOnceWhenOwnersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := startRun(t)
		step := func(seconds int, line string) {
			t.Helper()
			synctest.Wait()
			var last time.Duration
			r.with(func() { last = r.times[len(r.times)-1].Sub(begin) })
			if last != time.Duration(seconds)*time.Second {
				t.Errorf("the last sample was taken at %s, want %d s", last, seconds)
			}
			if got := strings.Join(linesOf(t, handlerOf(t, r.Exporter), temperature), "\n"); got != line {
				t.Errorf("at %d s: %s, want %s", seconds, got, line)
			}
		}
		r.snapshots <- told(1, whole(0, "a", "a"))
		synctest.Wait()
		r.nodes <- nodeOf()
		step(0, temp("1", "a"))
		time.Sleep(10 * time.Second)
		step(10, temp("2", "a"))
		time.Sleep(3 * time.Second)
		r.snapshots <- told(2, whole(0, "b", "b"))
		step(13, temp("3", "b"))
		r.snapshots <- told(3)
		step(13, temp("4", ""))
		if got := r.errors.Load(); got != 3 {
			t.Errorf("%d errors of the service, want 3", got)
		}
		r.stop(t, nil)
	})
}

// The owner changes while the hardware is read, which takes a while.
func TestAChangeWhileASampleIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRun(t)
		r.snapshots <- told(1, whole(0, "a", "a"))
		synctest.Wait()
		r.nodes <- nodeOf()
		synctest.Wait()
		hold := make(chan struct{})
		r.with(func() { r.hold = hold })
		time.Sleep(10 * time.Second)
		synctest.Wait() // The second sample is being read.
		time.Sleep(time.Second)
		r.snapshots <- told(2, whole(0, "b", "b"))
		show := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := strings.Join(linesOf(t, handlerOf(t, r.Exporter), temperature), "\n"); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		show(temp("1", "a"))
		hold <- struct{}{}
		show(temp("1", "a"))
		hold <- struct{}{} // The third, at once.
		show(temp("3", "b"))
		close(hold)
		r.stop(t, nil)
	})
}

func TestAPartitionThatTheNodeDoesNotHaveYetIsLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRun(t)
		r.snapshots <- told(1)
		r.nodes <- nodeOf()
		synctest.Wait()
		r.with(func() { r.fresh = nodeOf(inventory.MIGInstance{ID: 3, UUID: "MIG-0-3"}) })
		r.snapshots <- told(2, partition(0, 3, "1g.10gb", "a", 0.125, "a"))
		has := func(want int) {
			t.Helper()
			synctest.Wait()
			looks := 0
			r.with(func() { looks = r.looks })
			if got := linesOf(t, handlerOf(t, r.Exporter), memoryUsed); len(got) != 1 || !strings.Contains(got[0], `pod="a"`) || looks != want {
				t.Errorf("%v after looking %d times, want %d", got, looks, want)
			}
		}
		has(1)
		// A reading that was begun earlier is reported later.
		r.nodes <- nodeOf()
		has(2)
		// One that is not found is not looked for again and again.
		r.snapshots <- told(3, partition(0, 3, "1g.10gb", "a", 0.125, "a"), partition(0, 9, "1g.10gb", "z", 0.125, "z"), partition(7, 1, "1g.10gb", "y", 0.125, "y"))
		has(3)
		time.Sleep(time.Minute)
		has(3)
		r.stop(t, nil)
	})
}

func TestAReplacedDriverEndsTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRun(t)
		r.nodes <- inventory.Node{RestartNeeded: true, Problem: "replaced"}
		synctest.Wait()
		time.Sleep(time.Minute)
		r.stop(t, ErrRestart)
	})
}

func TestRunEndsBeforeAnythingWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRun(t)
		synctest.Wait()
		r.stop(t, nil)
	})
}
