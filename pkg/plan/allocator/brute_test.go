package allocator_test

import (
	"maps"
	"slices"
)

// The brute force knows the rules of the API and none of the allocator's code: it tries
// all devices for all slots in the order of publishing, for each instance type and each
// zone by itself.

type bruteDevice struct {
	name   string
	model  string
	memory int    // Gi
	shared bool   // claims share the memory
	set    string // of the counter from which the memory is taken; empty for none
}

type brutePool struct {
	name    string // empty for the pool of a template
	zones   []string
	node    string
	devices []bruteDevice
	sets    map[string]int // Gi
}

type bruteType struct {
	name  string
	zones []string // nil if it does not tell
	pool  brutePool
}

type bruteRequest struct {
	count  int
	model  string // empty for any
	memory int    // Gi, 0 for none
}

type bruteClaim struct {
	name     string
	requests []bruteRequest
	match    bool // all devices are of one model
}

// brutePlace is one concrete node: an instance type, or none for the node that exists,
// in a zone, or none.
type brutePlace struct {
	instanceType, zone string
}

// bruteTaken is what one claim has of one device.
type bruteTaken struct {
	claim    string
	pool     string
	device   bruteDevice
	consumed int // Gi, of a shared device
}

type bruteWorld struct {
	pools []brutePool
	types []bruteType
	zone  string // of the node that exists
	held  []bruteTaken
	// targets have for each place that is left what was taken there.
	targets map[string]map[brutePlace][]bruteTaken
	placed  map[string]string // claim -> target
	// asked are the zones that committed pods asked for: the caller knows them.
	asked map[string][][]string
}

func (w *bruteWorld) outside(target, zone string, zones []string) bool {
	for _, asked := range append(slices.Clip(w.asked[target]), zones) {
		if asked != nil && !slices.Contains(asked, zone) {
			return true
		}
	}
	return false
}

const bruteNode = "n1"

// places are all that a target may be before anything was committed to it.
func (w *bruteWorld) places(target string) []brutePlace {
	if target == bruteNode {
		return []brutePlace{{zone: w.zone}}
	}
	var places []brutePlace
	for _, t := range w.types {
		zones := t.zones
		if zones == nil {
			zones = []string{"a", "b", "c", "another", ""}
		}
		for _, zone := range zones {
			places = append(places, brutePlace{t.name, zone})
		}
	}
	return places
}

// left are the places that a target may still be.
func (w *bruteWorld) left(target string) []brutePlace {
	if state, ok := w.targets[target]; ok {
		return slices.DeleteFunc(w.places(target), func(p brutePlace) bool { _, ok := state[p]; return !ok })
	}
	return w.places(target)
}

// reached are the pools in the order in which they are tried.
func (w *bruteWorld) reached(target string, p brutePlace) []brutePool {
	var pools []brutePool
	for _, pool := range w.pools {
		if pool.node != "" && (target != bruteNode || pool.node != bruteNode) {
			continue
		}
		if pool.zones == nil || slices.Contains(pool.zones, p.zone) {
			pools = append(pools, pool)
		}
	}
	for _, t := range w.types {
		if t.name == p.instanceType {
			pools = append(pools, t.pool)
		}
	}
	return pools
}

// available says what a new share or claim may take of a device.
func (w *bruteWorld) available(target string, p brutePlace, pool string, d bruteDevice) int {
	left := d.memory
	if !d.shared {
		left = 1
	}
	take := func(t bruteTaken) int {
		switch {
		case t.pool != pool || t.device.name != d.name:
			return 0
		case d.shared:
			return t.consumed
		}
		return 1
	}
	sum := func(of []bruteTaken) (n int) {
		for _, t := range of {
			n += take(t)
		}
		return n
	}
	left -= sum(w.targets[target][p])
	if pool == "" {
		return left
	}
	left -= sum(w.held)
	for other, places := range w.targets {
		most := 0
		for _, taken := range places {
			most = max(most, sum(taken))
		}
		if other != target {
			left -= most
		}
	}
	return left
}

// allocate finds the first devices, nil if there are none.
func (w *bruteWorld) allocate(target string, p brutePlace, claims []bruteClaim) []bruteTaken {
	type slot struct {
		claim   *bruteClaim
		request *bruteRequest
		index   int
	}
	var slots []slot
	for i := range claims {
		for j := range claims[i].requests {
			for k := range claims[i].requests[j].count {
				slots = append(slots, slot{&claims[i], &claims[i].requests[j], k})
			}
		}
	}
	type candidate struct {
		pool brutePool
		d    bruteDevice
		left int
	}
	var candidates []candidate
	counters := make(map[string]int)
	for _, pool := range w.reached(target, p) {
		for _, d := range pool.devices {
			candidates = append(candidates, candidate{pool, d, w.available(target, p, pool.name, d)})
		}
		for set, n := range pool.sets {
			counters[pool.name+"/"+set] = n
		}
	}
	for _, t := range w.targets[target][p] {
		if t.device.set != "" {
			counters[t.pool+"/"+t.device.set] -= t.device.memory
		}
	}
	taken := make([]bruteTaken, 0, len(slots))
	var try func(i, from int) bool
	try = func(i, from int) bool {
		if i == len(slots) {
			return true
		}
		s := slots[i]
		if s.index == 0 {
			from = 0
		}
		for c := from; c < len(candidates); c++ {
			d, counter := candidates[c].d, candidates[c].pool.name+"/"+candidates[c].d.set
			need, consumed := 1, 0
			if d.shared {
				if need = s.request.memory; need == 0 {
					need = d.memory
				}
				consumed = need
			}
			switch {
			case s.request.model != "" && s.request.model != d.model, s.request.memory > d.memory, candidates[c].left < need:
				continue
			case d.set != "" && counters[counter] < d.memory:
				continue
			case s.claim.match && slices.ContainsFunc(taken, func(t bruteTaken) bool { return t.claim == s.claim.name && t.device.model != d.model }):
				continue
			}
			candidates[c].left -= need
			if d.set != "" {
				counters[counter] -= d.memory
			}
			taken = append(taken, bruteTaken{s.claim.name, candidates[c].pool.name, d, consumed})
			if try(i+1, c+1) {
				return true
			}
			taken = taken[:len(taken)-1]
			candidates[c].left += need
			if d.set != "" {
				counters[counter] += d.memory
			}
		}
		return false
	}
	if !try(0, 0) {
		return nil
	}
	return taken
}

// reachable says whether claims that are placed elsewhere can be used at a place.
func (w *bruteWorld) reachable(target string, p brutePlace, claims []bruteClaim) bool {
	for _, c := range claims {
		on, ok := w.placed[c.name]
		if !ok || on == target {
			continue
		}
		for _, taken := range w.targets[on] {
			for _, t := range taken {
				if t.claim != c.name {
					continue
				}
				i := slices.IndexFunc(w.pools, func(pool brutePool) bool { return pool.name == t.pool })
				if i < 0 || w.pools[i].node != "" || w.pools[i].zones != nil && !slices.Contains(w.pools[i].zones, p.zone) {
					return false
				}
			}
		}
	}
	return true
}

// answer is what each place that will do has.
func (w *bruteWorld) answer(target string, zones []string, claims []bruteClaim) map[brutePlace][]bruteTaken {
	open := slices.DeleteFunc(slices.Clone(claims), func(c bruteClaim) bool { _, ok := w.placed[c.name]; return ok })
	answer := make(map[brutePlace][]bruteTaken)
	for _, p := range w.left(target) {
		if w.outside(target, p.zone, zones) || !w.reachable(target, p, claims) {
			continue
		}
		if taken := w.allocate(target, p, open); taken != nil {
			answer[p] = taken
		}
	}
	return answer
}

func (w *bruteWorld) commit(target string, zones []string, answer map[brutePlace][]bruteTaken, claims []bruteClaim) {
	w.asked[target] = append(w.asked[target], zones)
	before := w.targets[target]
	w.targets[target] = make(map[brutePlace][]bruteTaken)
	for p, taken := range answer {
		w.targets[target][p] = slices.Concat(before[p], taken)
	}
	for _, c := range claims {
		if _, ok := w.placed[c.name]; !ok {
			w.placed[c.name] = target
		}
	}
}

func (w *bruteWorld) release(target, instanceType string) {
	if w.targets[target] == nil {
		return
	}
	maps.DeleteFunc(w.targets[target], func(p brutePlace, _ []bruteTaken) bool { return p.instanceType == instanceType })
	if len(w.targets[target]) == 0 {
		delete(w.targets, target)
		delete(w.asked, target)
		maps.DeleteFunc(w.placed, func(_, on string) bool { return on == target })
	}
}
