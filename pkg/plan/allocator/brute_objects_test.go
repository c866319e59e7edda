package allocator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// From here on the model becomes objects of the API, and results become the model's.

func (d bruteDevice) object() resourceapi.Device {
	o := rigModel(d.name, d.model)
	memory := resource.MustParse(fmt.Sprintf("%dGi", d.memory))
	o.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{rigMemory: {Value: memory}}
	if d.shared {
		o.AllowMultipleAllocations = new(true)
	}
	if d.set != "" {
		o.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: d.set, Counters: map[string]resourceapi.Counter{"memory": {Value: memory}}}}
	}
	return o
}

func (p brutePool) objects() (devices []resourceapi.Device, sets []resourceapi.CounterSet) {
	for _, d := range p.devices {
		devices = append(devices, d.object())
	}
	for _, name := range slices.Sorted(maps.Keys(p.sets)) {
		sets = append(sets, rigCounters(name, fmt.Sprintf("%dGi", p.sets[name])))
	}
	return devices, sets
}

func (p brutePool) slice() *resourceapi.ResourceSlice {
	devices, _ := p.objects()
	switch {
	case p.node != "":
		return rigSlice(p.name, rigOnNode(p.node), devices...)
	case p.zones != nil:
		return rigSlice(p.name, rigInZones(p.zones...), devices...)
	}
	return rigSlice(p.name, rigEverywhere, devices...)
}

func (t bruteType) object() *allocator.InstanceType {
	o := rigType(t.name, t.zones)
	devices, sets := t.pool.objects()
	template := allocator.Template{Driver: rigDriver, Slices: []allocator.TemplateSlice{{Devices: devices}}}
	if len(sets) > 0 {
		template.Slices = append(template.Slices, allocator.TemplateSlice{SharedCounters: sets})
	}
	o.Templates = []allocator.Template{template}
	return o
}

func (c bruteClaim) object() *resourceapi.ResourceClaim {
	o := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: c.name, UID: types.UID(c.name)}}
	for i, r := range c.requests {
		var change []func(*resourceapi.ExactDeviceRequest)
		if r.model != "" {
			change = append(change, rigOfModel(r.model))
		}
		if r.memory > 0 {
			change = append(change, rigWithMemory(fmt.Sprintf("%dGi", r.memory)))
		}
		request := rigClaim("", int64(r.count), change...).Spec.Devices.Requests[0]
		request.Name = fmt.Sprintf("r%d", i)
		o.Spec.Devices.Requests = append(o.Spec.Devices.Requests, request)
	}
	if c.match {
		o.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: new(resourceapi.FullyQualifiedName(rigDriver + "/model"))}}
	}
	return o
}

func (w *bruteWorld) rig() *inputs {
	r := newInputs()
	for _, p := range w.pools {
		r.slices(p.slice())
	}
	var held []*resourceapi.ResourceClaim
	for i, t := range w.held {
		text := t.pool + "/" + t.device.name
		if t.device.shared {
			text += fmt.Sprintf("=%dGi", t.consumed)
		}
		held = append(held, rigAllocated(rigClaim(fmt.Sprintf("held%d", i), 1), nil, text))
	}
	return r.allocated(held...)
}

// read turns a result into places, of which each may be in one placement only.
func (w *bruteWorld) read(t *testing.T, target string, zones []string, result *allocator.Result) map[brutePlace][]bruteTaken {
	t.Helper()
	answer := make(map[brutePlace][]bruteTaken)
	for _, p := range w.places(target) {
		if w.outside(target, p.zone, zones) {
			continue
		}
		for _, s := range result.Survivors {
			if s.InstanceType != p.instanceType {
				continue
			}
			for _, placement := range s.Placements {
				if !bruteMatches(t, placement.Requirements, p.zone) {
					continue
				}
				if _, ok := answer[p]; ok {
					t.Fatalf("two placements for %v:\n%s", p, strings.Join(rigLines(result), "\n"))
				}
				answer[p] = w.taken(t, target, p, placement.Claims)
			}
		}
	}
	return answer
}

// taken looks up the devices of claims.
func (w *bruteWorld) taken(t *testing.T, target string, p brutePlace, claims []allocator.ClaimAllocation) []bruteTaken {
	t.Helper()
	taken := []bruteTaken{}
	for _, c := range claims {
		for _, d := range c.Devices {
			of := bruteTaken{claim: c.Claim.Name, pool: d.Device.Pool.String()}
			for _, pool := range w.reached(target, p) {
				for _, device := range pool.devices {
					if pool.name == of.pool && device.name == d.Device.Device.String() && d.Template == (pool.name == "") {
						of.device = device
					}
				}
			}
			if of.device.name == "" {
				t.Fatalf("%v of %s does not reach device %s", p, target, d.Device)
			}
			if amount, ok := d.Consumed[rigMemory]; ok {
				of.consumed = int(amount.Value() >> 30)
			}
			taken = append(taken, of)
		}
	}
	return taken
}

// fits says what is wrong with devices that claims get at a place.
func (w *bruteWorld) fits(target string, p brutePlace, claims []bruteClaim, taken []bruteTaken) string {
	counters := make(map[string]int)
	for _, pool := range w.reached(target, p) {
		for set, n := range pool.sets {
			counters[pool.name+"/"+set] = n
		}
	}
	for _, t := range slices.Concat(w.targets[target][p], taken) {
		if t.device.set == "" {
			continue
		}
		if counters[t.pool+"/"+t.device.set] -= t.device.memory; counters[t.pool+"/"+t.device.set] < 0 {
			return "the counter of " + t.device.name + " is exhausted"
		}
	}
	used := make(map[string]int)
	for _, t := range taken {
		key := t.pool + "/" + t.device.name
		if used[key] += max(t.consumed, 1); t.device.shared {
			used[key] += t.consumed - max(t.consumed, 1)
		}
		if used[key] > w.available(target, p, t.pool, t.device) {
			return "there is not so much of " + key
		}
	}
	for _, c := range claims {
		models := make(map[string]bool)
		for _, r := range c.requests {
			seen := make(map[string]bool)
			for range r.count {
				if len(taken) == 0 || taken[0].claim != c.name {
					return "devices are missing"
				}
				d, consumed := taken[0].device, taken[0].consumed
				need := r.memory
				if need == 0 {
					need = d.memory
				}
				key := taken[0].pool + "/" + d.name
				if r.model != "" && r.model != d.model || r.memory > d.memory || d.shared && consumed != need || seen[key] {
					return "not what was asked for: " + key
				}
				models[d.model], seen[key] = true, true
				taken = taken[1:]
			}
		}
		if c.match && len(models) > 1 {
			return "several models"
		}
	}
	if len(taken) > 0 {
		return "too many devices"
	}
	return ""
}

func bruteMatches(t *testing.T, requirements []corev1.NodeSelectorRequirement, zone string) bool {
	t.Helper()
	if len(requirements) == 0 {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(rigSelector(requirements...))
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{}
	if zone != "" {
		node.Labels = map[string]string{rigZone: zone}
	}
	return selector.Match(node)
}

func takenText(taken []bruteTaken) string {
	var words []string
	for _, t := range taken {
		word := fmt.Sprintf("%s:%s/%s", t.claim, t.pool, t.device.name)
		if t.device.shared {
			word += fmt.Sprintf("=%dGi", t.consumed)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
