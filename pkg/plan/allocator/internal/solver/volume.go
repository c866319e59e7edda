package solver

import (
	"slices"

	draapi "k8s.io/dynamic-resource-allocation/api"
)

// volume compares, for each counter and capacity by name, the least that the scarce
// requests must still take with what is left in all the devices they can have.
type volume struct {
	names map[volumeName]int32
	// counters are numbers of the names of counters, by number of the counter.
	counters []int32
	// least is the least that a device takes of a name, seen in how many devices.
	least []amount
	seen  []int
	takes []volumeTake
	wants []volumeTake
}

// volumeName is the name of a counter of a driver, or of a capacity of any.
type volumeName struct {
	driver draapi.UniqueString
	name   string
}

// volumeTake is what a device takes under a name, or what a demand does.
type volumeTake struct {
	name, demand int32
	amount       amount
}

func (s *search) prepareVolume() {
	v := &s.plan.bounds.volume
	v.counters = v.counters[:0]
	if v.names == nil {
		v.names = make(map[volumeName]int32)
	}
	clear(v.names)
	for _, p := range s.pools {
		for i := range p.counters {
			v.counters = append(v.counters, v.number(volumeName{p.id.driver, p.counters[i].name}))
		}
	}
}

func (v *volume) number(name volumeName) int32 {
	n, ok := v.names[name]
	if !ok {
		n = int32(len(v.names))
		v.names[name] = n
	}
	return n
}

// voluminous is false if the scarce demands must take more of something than is left.
func (s *search) voluminous() bool {
	b := &s.plan.bounds
	v := &b.volume
	v.wants = v.wants[:0]
	for i := range b.scarce {
		s.addWants(int32(i))
	}
	slices.SortFunc(v.wants, func(x, y volumeTake) int { return int(x.name - y.name) })
	for start := 0; start < len(v.wants); {
		end := start
		want := amount{}
		for end < len(v.wants) && v.wants[end].name == v.wants[start].name {
			want = want.plus(v.wants[end].amount)
			end++
		}
		if s.volumeLeft(v.wants[start:end]).less(want) {
			return false
		}
		start = end
	}
	return true
}

// addWants adds what a demand takes at least.
func (s *search) addWants(demand int32) {
	v := &s.plan.bounds.volume
	d := &s.plan.bounds.scarce[demand]
	clear(v.seen)
	for i, c := range d.open {
		s.findTakes(c)
		for _, t := range v.takes {
			for int(t.name) >= len(v.seen) {
				v.seen, v.least = append(v.seen, 0), append(v.least, amount{})
			}
			if v.seen[t.name] != i {
				continue
			}
			v.seen[t.name] = i + 1
			if i == 0 || t.amount.less(v.least[t.name]) {
				v.least[t.name] = t.amount
			}
		}
		if len(v.takes) == 0 {
			return
		}
	}
	for name := range v.seen {
		if v.seen[name] != len(d.open) || !v.least[name].positive() {
			continue
		}
		want := amount{}
		for range d.need {
			want = want.plus(v.least[name])
		}
		v.wants = append(v.wants, volumeTake{name: int32(name), demand: demand, amount: want})
	}
}

// findTakes finds what a candidate would take, added up by name.
func (s *search) findTakes(c *candidate) {
	v := &s.plan.bounds.volume
	v.takes = v.takes[:0]
	d := s.device(c.ref)
	if d.shared {
		// Counters are paid for by one share, and not by the others.
		for i := range c.consumed {
			v.addTake(v.number(volumeName{name: string(d.capacities[i].name)}), c.consumed[i].amount)
		}
		return
	}
	for _, charge := range d.charges {
		v.addTake(v.counters[s.plan.bounds.firstCounter[c.pool]+charge.counter], charge.amount)
	}
}

func (v *volume) addTake(name int32, a amount) {
	for i := range v.takes {
		if v.takes[i].name == name {
			v.takes[i].amount = v.takes[i].amount.plus(a)
			return
		}
	}
	v.takes = append(v.takes, volumeTake{name: name, amount: a})
}

// volumeLeft is what is left under a name in all devices that some demands can have.
func (s *search) volumeLeft(wants []volumeTake) amount {
	b := &s.plan.bounds
	stamp := b.draw()
	total := amount{}
	for _, want := range wants {
		for _, c := range b.scarce[want.demand].open {
			if b.devices[c.number] == stamp {
				continue
			}
			b.devices[c.number] = stamp
			total = total.plus(s.leftIn(c, want.name, stamp))
		}
	}
	return total
}

// leftIn is what is left under a name in a device and its counters, without counters
// that bear the stamp.
func (s *search) leftIn(c *candidate, name, stamp int32) amount {
	b := &s.plan.bounds
	d := s.device(c.ref)
	total := amount{}
	for _, charge := range d.charges {
		number := b.firstCounter[c.pool] + charge.counter
		if b.volume.counters[number] == name && b.counters[number] != stamp {
			b.counters[number] = stamp
			total = total.plus(s.poolsOf[c.pool].left[charge.counter])
		}
	}
	if !d.shared {
		return total
	}
	for i := range d.capacities {
		if b.volume.number(volumeName{name: string(d.capacities[i].name)}) != name {
			continue
		}
		total = total.plus(d.capacities[i].value)
		if at := s.share[c.number]; at > 0 {
			total = total.minus(s.shares[at-1].used[i])
		}
	}
	return total
}
