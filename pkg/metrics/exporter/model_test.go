package exporter

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// The model counts in ticks of a tenth of a second, and knows nothing of holds.
type modelGPU struct {
	held   map[string]ownership.Owner
	joules float64

	seconds, energy amounts
	// ticks are those since the last sample: who held what.
	ticks []map[string]ownership.Owner
	drawn float64
	mode  int
}

const tick = 0.1

func newModelGPU() *modelGPU {
	return &modelGPU{held: map[string]ownership.Owner{}, seconds: amounts{}, energy: amounts{}, joules: 5000}
}

// change has somebody come or go.
func (m *modelGPU) change(random *rand.Rand, n int, seconds float64, next *int) bool {
	if len(m.held) > 0 && random.IntN(2) == 0 {
		for _, claim := range slices.Sorted(maps.Keys(m.held)) {
			delete(m.held, claim)
			break
		}
		return true
	}
	if len(m.held) == 0 {
		m.mode = random.IntN(3)
	}
	used := 0.0
	for _, o := range m.held {
		used += o.Device.Fraction
	}
	*next++
	claim := fmt.Sprintf("claim-%d", *next)
	parts := []float64{0.125, 0.25, 0.5}
	part := parts[random.IntN(3)]
	var o ownership.Owner
	switch {
	case m.mode == 0 && used == 0:
		o = whole(n, claim, claim)
	case m.mode == 1 && used+part <= 1:
		o = share(n, claim, part, claim)
	case m.mode == 2 && used+part <= 1:
		o = partition(n, *next, "p", claim, part, claim)
	default:
		return false
	}
	m.held[claim] = since(seconds, o)[0]
	return true
}

func (m *modelGPU) tick(random *rand.Rand) {
	m.ticks = append(m.ticks, maps.Clone(m.held))
	joules := float64(random.IntN(400)) / 8
	m.joules += joules
	m.drawn += joules
}

// sample is what is read of the GPU, and charges by the rules of the manual.
func (m *modelGPU) sample(r *rig, random *rand.Rand, n int, pid *int) []gpumetrics.Device {
	d := drawn(n, m.joules)
	devices := []gpumetrics.Device{}
	measured := amounts{}
	for _, claim := range slices.Sorted(maps.Keys(m.held)) {
		o := m.held[claim]
		busy := float64(random.IntN(32)) / 128
		switch {
		case o.Device.ShareID != "":
			*pid++
			r.process(&d, *pid, claim, 1, ptr.To(busy))
			measured[claim] = busy
		case o.Device.ParentUUID != "":
			in := instance(d, *o.Device.GPUInstanceID, "p")
			measured[claim] = 1
			if random.IntN(2) == 0 {
				in.SMUtil = ptr.To(busy)
				measured[claim] = busy
			}
			devices = append(devices, in)
		}
	}
	parts, ticks := amounts{}, amounts{}
	for _, held := range m.ticks {
		used := 0.0
		for claim, o := range held {
			ticks[claim]++
			m.seconds[claim] += tick * o.Device.Fraction
			used += o.Device.Fraction
			switch {
			case o.Device.ParentUUID != "":
				busy, ok := measured[claim]
				if !ok {
					busy = 1 // It is gone, and was not measured.
				}
				parts[claim] += o.Device.Fraction * busy / float64(len(m.ticks))
			case o.Device.ShareID == "":
				parts[claim] += 1 / float64(len(m.ticks))
			}
		}
		m.seconds["rest"] += tick * (1 - used)
	}
	sum := 0.0
	for claim, o := range m.held {
		if o.Device.ShareID != "" && ticks[claim] > 0 {
			parts[claim] = measured[claim]
		}
	}
	for _, part := range parts {
		sum += part
	}
	for claim, part := range parts {
		// A share may be said to be busy for longer than it was there.
		m.energy[claim] += m.drawn * part / max(sum, 1)
	}
	m.energy["rest"] += m.drawn * max(1-sum, 0)
	m.ticks, m.drawn = nil, 0
	return append([]gpumetrics.Device{d}, devices...)
}

func TestOverAnyTimeThePartsAddUpToTheDevice(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			r := newRig(t)
			models := []*modelGPU{newModelGPU(), newModelGPU()}
			next, pid := 0, 0
			told := func(seconds float64) {
				var owners []ownership.Owner
				for _, m := range models {
					owners = append(owners, slices.Collect(maps.Values(m.held))...)
				}
				r.owners(seconds, owners...)
			}
			told(0)
			read := func(seconds float64) {
				var devices []gpumetrics.Device
				for n, m := range models {
					devices = append(devices, m.sample(r, random, n, &pid)...)
				}
				r.Update(sample(seconds, devices...))
			}
			read(0)
			for i := range 600 {
				seconds := float64(i) * tick
				changed := false
				for n, m := range models {
					if random.IntN(10) == 0 {
						changed = m.change(random, n, seconds, &next) || changed
					}
				}
				if changed {
					told(seconds)
				}
				for _, m := range models {
					m.tick(random)
				}
				if random.IntN(8) == 0 {
					read(seconds + tick)
				}
			}
			read(60)
			seconds, joules, drawn := amounts{}, amounts{}, 0.0
			for _, m := range models {
				for claim, s := range m.seconds {
					seconds[claim] += s
				}
				for claim, j := range m.energy {
					joules[claim] += j
				}
				drawn += m.joules - 5000
			}
			check(t, "seconds", merge(r.charged(allocatedTime.name), r.charged(unallocatedTime.name)), seconds, 120)
			check(t, "joules", r.charged(energy.name), joules, drawn)
		})
	}
}

func merge(a, b amounts) amounts {
	maps.Copy(a, b)
	return a
}

// check compares what was charged by claim; pods have their claim's name.
func check(t *testing.T, what string, got, want amounts, total float64) {
	t.Helper()
	sum := 0.0
	for key, value := range got {
		sum += value
		claim, _, _ := strings.Cut(key, "/")
		if math.Abs(value-want[claim]) > 1e-5*max(1, total) {
			t.Errorf("%s of %s: %v, want %v", what, key, value, want[claim])
		}
	}
	for claim, value := range want {
		if _, ok := got[claim+"/"+claim]; !ok && claim != "rest" && value > 1e-5*max(1, total) {
			t.Errorf("%s of %s are missing", what, claim)
		}
	}
	if math.Abs(sum-total) > 1e-5*max(1, total) {
		t.Errorf("the %s of all are %v, the devices' are %v", what, sum, total)
	}
}
