package solver

import (
	"encoding/binary"
	"slices"
)

// symmetry tells which devices, and groups of devices, are alike for the claims at hand.
//
// Devices that draw on a common counter form a component; each other device is a
// component of its own. Components are of the same kind if their devices, one by one in
// publishing order, are: if each alternative treats them alike, and if their values,
// capacities, uses and counters are equal. Devices of one kind of component that are
// equal even in the counters they draw on are of one class.
//
// Then two things hold. Of two components of one kind in equal states, or of two devices
// of one class in one component, both untouched, it does not matter which one is used:
// any solution with the one becomes a solution with the other if they change places.
// And as the search tries devices in order, a solution that it would still find with the
// later one is one that it would have found before with the earlier one.
type symmetry struct {
	// component is that of a device, by number, -1 if no request can take the device.
	component  []int32
	components []component
	// class is the class of a device, by number. Classes of different kinds differ.
	class []int32
	// touched is the last pick of each component, -1 if there is none.
	touched []int32
	// tried are classes that have failed in the loops that the search is in.
	tried []int64
}

// component is a group of devices that draw on common counters.
type component struct {
	kind int32
	// last is the position of the last request that can take one of the devices.
	last int32
	// simple components have one device, which is exclusive and draws on no counters.
	simple   bool
	pool     int32
	counters []int32
	devices  []int32 // numbers
}

// What an alternative makes of a device.
const (
	ignores = iota
	accepts
	wants
	cannotHave
	failsAt
)

// symmetryBuilder finds components, kinds and classes.
type symmetryBuilder struct {
	*search
	// role is what each alternative makes of each device: by number of the device, then
	// of the alternative.
	role  []uint8
	last  []int32
	refs  []ref
	sign  []int32 // the signature of each device
	signs map[string]int32
	kinds map[string]int32
	// classes are the first class of each kind.
	classes  []int32
	nextFree int32
	key      []byte
}

func (s *search) findSymmetry() {
	b := &symmetryBuilder{search: s, signs: make(map[string]int32), kinds: make(map[string]int32)}
	total := int(s.offsets[len(s.pools)])
	b.role = make([]uint8, total*len(s.plan.candidates))
	b.last = make([]int32, total)
	b.sign = make([]int32, total)
	y := &s.plan.symmetry
	y.component = make([]int32, total)
	y.class = make([]int32, total)
	b.findRoles()
	b.findComponents()
	for i := range y.components {
		b.classify(&y.components[i])
	}
	y.touched = make([]int32, len(y.components))
	for i := range y.touched {
		y.touched[i] = -1
	}
}

func (b *symmetryBuilder) findRoles() {
	alternatives := len(b.plan.candidates)
	for i := range b.last {
		b.last[i] = -1
	}
	for _, r := range b.claims.requests {
		for _, a := range r.alternatives {
			for i := range b.plan.candidates[a.number] {
				c := &b.plan.candidates[a.number][i]
				role := uint8(accepts)
				switch {
				case a.all && c.outcome == tainted:
					role = cannotHave
				case a.all:
					role = wants
				case c.outcome.fails():
					role = failsAt
				}
				b.role[int(c.number)*alternatives+a.number] = role
				b.last[c.number] = int32(a.position)
			}
		}
	}
}

// findComponents joins devices that have a counter in common, pool by pool.
func (b *symmetryBuilder) findComponents() {
	y := &b.plan.symmetry
	for n := range y.component {
		y.component[n] = -1
	}
	for i, pool := range b.pools {
		owner := make([]int32, len(pool.counters))
		for k := range owner {
			owner[k] = -1
		}
		for d := range pool.devices {
			n := b.number(ref{int32(i), int32(d)})
			if b.last[n] >= 0 {
				b.place(n, int32(i), &pool.devices[d], owner)
			}
		}
	}
	// Components that were merged into others are empty.
	renumbered := make([]int32, len(y.components))
	kept := y.components[:0]
	for i := range y.components {
		renumbered[i] = int32(len(kept))
		if len(y.components[i].devices) > 0 {
			kept = append(kept, y.components[i])
		}
	}
	y.components = kept
	for n, c := range y.component {
		if c >= 0 {
			y.component[n] = renumbered[c]
		}
	}
	for i := range y.components {
		slices.Sort(y.components[i].devices)
	}
}

// place puts a device into the component that owns one of its counters, and merges
// others that own some.
func (b *symmetryBuilder) place(n, pool int32, d *Device, owner []int32) {
	y := &b.plan.symmetry
	into := int32(-1)
	for _, c := range d.charges {
		at := owner[c.counter]
		if at >= 0 && into >= 0 && at != into {
			b.merge(at, into, owner)
		} else if at >= 0 {
			into = at
		}
	}
	if into < 0 {
		into = int32(len(y.components))
		y.components = append(y.components, component{pool: pool, simple: !d.shared && len(d.charges) == 0})
	}
	c := &y.components[into]
	for _, charge := range d.charges {
		if owner[charge.counter] < 0 {
			owner[charge.counter] = into
			c.counters = append(c.counters, charge.counter)
		}
	}
	c.devices = append(c.devices, n)
	c.last = max(c.last, b.last[n])
	y.component[n] = into
}

func (b *symmetryBuilder) merge(from, into int32, owner []int32) {
	y := &b.plan.symmetry
	f, t := &y.components[from], &y.components[into]
	for _, n := range f.devices {
		y.component[n] = into
	}
	for _, counter := range f.counters {
		owner[counter] = into
	}
	t.devices = append(t.devices, f.devices...)
	t.counters = append(t.counters, f.counters...)
	t.last = max(t.last, f.last)
	f.devices, f.counters = nil, nil
}

// classify finds the kind of a component and the classes of its devices.
func (b *symmetryBuilder) classify(c *component) {
	y := &b.plan.symmetry
	// Counters are numbered in the order in which devices name them, so that components
	// of one kind number theirs alike.
	order := make(map[int32]int32, len(c.counters))
	own := make(map[string]int32)
	local := make([]int32, len(c.devices))
	var key []byte
	for i, n := range c.devices {
		d := &b.pools[c.pool].devices[n-b.offsets[c.pool]]
		b.key = binary.AppendUvarint(b.key[:0], uint64(b.signature(n, c.pool, d)))
		for _, charge := range d.charges {
			at, ok := order[charge.counter]
			if !ok {
				at = int32(len(order))
				order[charge.counter] = at
			}
			b.key = binary.AppendUvarint(b.key, uint64(at)+1)
			b.key = charge.amount.appendTo(b.key)
		}
		class, ok := own[string(b.key)]
		if !ok {
			class = int32(len(own))
			own[string(b.key)] = class
		}
		local[i] = class
		key = binary.AppendUvarint(key, uint64(len(b.key)))
		key = append(key, b.key...)
	}
	slices.SortFunc(c.counters, func(x, z int32) int { return int(order[x] - order[z]) })
	for _, counter := range c.counters {
		key = b.poolsOf[c.pool].left[counter].appendTo(key)
	}
	kind, ok := b.kinds[string(key)]
	if !ok {
		kind = int32(len(b.classes))
		b.kinds[string(key)] = kind
		b.classes = append(b.classes, b.nextFree)
		b.nextFree += int32(len(own))
	}
	c.kind = kind
	for i, n := range c.devices {
		y.class[n] = b.classes[kind] + local[i]
	}
}

// signature is equal for devices that differ in nothing but the counters they draw on.
func (b *symmetryBuilder) signature(n, pool int32, d *Device) int32 {
	alternatives := len(b.plan.candidates)
	roles := b.role[int(n)*alternatives : (int(n)+1)*alternatives]
	key := append(make([]byte, 0, 64), roles...)
	device := n - b.offsets[pool]
	for i := range b.claims.attributes {
		key = binary.AppendVarint(key, int64(b.valuesOf(pool, i)[device]))
	}
	key = append(key, byte(b.taken[n]&takenByOthers), flag(d.consumes))
	if b.plan.pinned[n] {
		key = binary.AppendUvarint(append(key, 'p'), uint64(n))
	}
	if d.shared {
		key = append(key, 's')
		if at := b.share[n]; at > 0 {
			key = append(key, flag(b.shares[at-1].others))
			for _, used := range b.shares[at-1].used {
				key = used.appendTo(key)
			}
		}
		for i := range d.capacities {
			key = d.capacities[i].value.appendTo(append(key, 'v'))
		}
		key = b.appendConsumption(key, d, roles)
	}
	sign, ok := b.signs[string(key)]
	if !ok {
		sign = int32(len(b.signs))
		b.signs[string(key)] = sign
	}
	return sign
}

// appendConsumption encodes what each alternative takes of a device's capacities.
func (b *symmetryBuilder) appendConsumption(key []byte, d *Device, roles []uint8) []byte {
	for _, r := range b.claims.requests {
		for _, a := range r.alternatives {
			if roles[a.number] == ignores {
				continue
			}
			v := d.pool.match(a.filter).verdicts[d.index]
			for i := range v.consumed {
				key = v.consumed[i].appendTo(key)
			}
		}
	}
	return key
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// grab takes a candidate, and notes that its component is touched.
func (s *search) grab(a *alternative, c *candidate) refusal {
	refused := s.take(a, c.ref, c.outcome, c.verdict)
	if refused == takenNow {
		touched := &s.plan.symmetry.touched[s.plan.symmetry.component[c.number]]
		last := int32(len(s.picks) - 1)
		s.picks[last].previous = *touched
		*touched = last
	}
	return refused
}

// release undoes the last grab.
func (s *search) release() {
	p := &s.picks[len(s.picks)-1]
	s.plan.symmetry.touched[s.plan.symmetry.component[p.number]] = p.previous
	s.giveBack()
}

// likeness is equal for candidates that it makes no difference to take now. It is -1
// for one that is not like any other.
func (s *search) likeness(number int32) int64 {
	y := &s.plan.symmetry
	c := y.component[number]
	class := int64(y.class[number])
	switch {
	case y.touched[c] < 0:
		return class
	case s.taken[number] > takenByOthers, s.share[number] > 0 && s.shares[s.share[number]-1].active > 0:
		return -1
	}
	return int64(c+1)<<32 | class
}

// maxTried bounds how many classes a loop remembers.
const maxTried = 64

func (s *search) wasTried(from int, like int64) bool {
	return like >= 0 && slices.Contains(s.plan.symmetry.tried[from:], like)
}

func (s *search) addTried(from int, like int64) {
	y := &s.plan.symmetry
	if like >= 0 && len(y.tried)-from < maxTried {
		y.tried = append(y.tried, like)
	}
}
