package solver

import "slices"

// ref is a device: its pool's position among the pools, and its own in the pool.
type ref struct {
	pool, device int32
}

// state is what is taken at one point of the search, and how to take more and to give
// it back. Devices are numbered through all pools.
type state struct {
	claims *Claims
	pools  []*pool
	usage  *Usage
	// offsets are the numbers of the pools' first devices.
	offsets []int32
	poolsOf []poolState
	// taken counts who holds a device: bit 0 is for others, and each request of ours
	// adds 2. holder is the last claim of ours that holds it, plus 1.
	taken  []uint16
	holder []int32
	// share is 1 + the position in shares of a device's share, 0 for none.
	share  []int32
	shares []share
	// constrained is the state of each of Claims.constraints.
	constrained []constrained
	values      map[value]int32
	picks       []pick
	// held is how many devices the present claim has.
	held int
}

const takenByOthers = 1

// poolState is the part of the state that belongs to a pool. It is read in when the
// search first comes to the pool.
type poolState struct {
	loaded bool
	// left is what is left of each counter. If any is overdrawn, no device that
	// consumes counters can be taken, not even of other counter sets.
	left      []amount
	overdrawn bool
	// values are numbers of the devices' values, by position in Claims.attributes.
	values [][]int32
}

// share is what is taken of the capacities of one device.
type share struct {
	used []amount
	// active counts the shares of ours, and others says that there are others, which
	// have paid for the device's counters.
	active int
	others bool
}

// constrained is the state of a constraint: the values of the devices it applies to.
type constrained struct {
	values []int32
}

// Numbers of values: those from firstValue on are compared. Negative ones are of
// bindings, and compared by matchAttribute alone.
const (
	noValue      = 0
	unknownValue = 1
	firstValue   = 2
)

// pick is a device that was taken.
type pick struct {
	ref
	*alternative
	number       int32 // of the device
	formerHolder int32
	consumed     []consumption
	// charged says that it pays for the device's counters.
	charged bool
	// previous is the position of the pick before in the same block, -1 for none.
	previous int32
}

// reset makes the state that of a new problem in which nothing is taken.
func (s *state) reset(p *Problem) {
	s.claims, s.pools, s.usage = p.Claims, p.Pools.pools, p.Usage
	s.offsets = s.offsets[:0]
	total := int32(0)
	for _, pool := range s.pools {
		s.offsets = append(s.offsets, total)
		total += int32(pool.size)
	}
	s.offsets = append(s.offsets, total)
	s.poolsOf = cleared(s.poolsOf, len(s.pools))
	s.taken = cleared(s.taken, int(total))
	s.holder = cleared(s.holder, int(total))
	s.share = cleared(s.share, int(total))
	s.shares = s.shares[:0]
	s.constrained = slices.Grow(s.constrained[:0], len(s.claims.constraints))[:len(s.claims.constraints)]
	for i := range s.constrained {
		s.constrained[i].values = s.constrained[i].values[:0]
	}
	clear(s.values)
	s.picks = s.picks[:0]
	s.held = 0
}

// cleared is a slice of n zero values, made of the old one if that is large enough.
func cleared[T any](old []T, n int) []T {
	if cap(old) < n {
		return make([]T, n)
	}
	old = old[:n]
	clear(old)
	return old
}

func (s *state) device(r ref) *Device { return &s.pools[r.pool].devices[r.device] }

func (s *state) number(r ref) int32 { return s.offsets[r.pool] + r.device }

// shareOf is the share of a device, made if there is none.
func (s *state) shareOf(r ref) *share {
	n := s.number(r)
	if s.share[n] == 0 {
		if len(s.shares) < cap(s.shares) {
			s.shares = s.shares[:len(s.shares)+1]
		} else {
			s.shares = append(s.shares, share{})
		}
		sh := &s.shares[len(s.shares)-1]
		*sh = share{used: cleared(sh.used, len(s.device(r).capacities))}
		s.share[n] = int32(len(s.shares))
	}
	return &s.shares[s.share[n]-1]
}

// valuesOf are numbers of an attribute's values for the devices of a pool. Equal values
// have equal numbers.
func (s *state) valuesOf(pool int32, attribute int) []int32 {
	ps := &s.poolsOf[pool]
	if ps.values == nil {
		ps.values = make([][]int32, len(s.claims.attributes))
	}
	if ps.values[attribute] != nil {
		return ps.values[attribute]
	}
	values := s.pools[pool].values(s.claims.attributes[attribute])
	numbers := make([]int32, len(values))
	for i, v := range values {
		numbers[i] = s.valueNumber(pool, v)
	}
	ps.values[attribute] = numbers
	return numbers
}

func (s *state) valueNumber(pool int32, v value) int32 {
	switch v.kind {
	case missing:
		return noValue
	case unknown:
		return unknownValue
	case boundValue:
		// Another pool's value with the same number is another value.
		v.n += int64(pool+1) << 32
	}
	if n, ok := s.values[v]; ok {
		return n
	}
	if s.values == nil {
		s.values = make(map[value]int32)
	}
	n := int32(len(s.values)) + firstValue
	if v.kind == boundValue {
		n = -n // Only matchAttribute can use it.
	}
	s.values[v] = n
	return n
}

// allows says whether a constraint allows a device beside those it has.
func (s *state) allows(constraint int, r ref) bool {
	c := &s.claims.constraints[constraint]
	v := s.valuesOf(r.pool, c.attribute)[r.device]
	has := s.constrained[constraint].values
	if c.distinct {
		switch {
		case v <= noValue:
			return false
		case v == unknownValue:
			return len(has) == 0
		}
		return !slices.Contains(has, v)
	}
	if v == noValue {
		return false
	}
	return len(has) == 0 || v != unknownValue && has[0] == v
}

// fits says whether what is left of a device's capacities suffices.
func (s *state) fits(r ref, consumed []consumption) bool {
	at := s.share[s.number(r)]
	if at == 0 {
		return true // An empty device suffices, or it would not have been accepted.
	}
	used := s.shares[at-1].used
	capacities := s.device(r).capacities
	for i := range consumed {
		if capacities[i].value.less(used[i].plus(consumed[i].amount)) {
			return false
		}
	}
	return true
}

// free says that a device can be used as far as others are concerned.
func (s *state) free(a *alternative, n int32) bool {
	if a.admin {
		return s.holder[n] != int32(a.request.claim)+1
	}
	return s.taken[n] == 0
}

// paid says that a device is shared already, so that its counters are paid for.
func (s *state) paid(d *Device, n int32) bool {
	if !d.shared || s.share[n] == 0 {
		return false
	}
	sh := &s.shares[s.share[n]-1]
	return sh.others || sh.active > 0
}

// affords says whether enough is left of the counters that a device consumes.
func (s *state) affords(r ref, d *Device) bool {
	ps := &s.poolsOf[r.pool]
	if ps.overdrawn {
		return false
	}
	for i := range d.charges {
		if ps.left[d.charges[i].counter].less(d.charges[i].amount) {
			return false
		}
	}
	return true
}

// refusal is why a device cannot be taken.
type refusal uint8

const (
	takenNow refusal = iota
	inUse
	noCounters
	isTainted
	constrainedOut
	noCapacity
)

// take takes a device for an alternative whose filter accepted it with the verdict, in
// the order of kube-scheduler's checks. The pool must be loaded.
func (s *state) take(a *alternative, r ref, o outcome, v *verdict) refusal {
	n := s.number(r)
	d := s.device(r)
	if !s.free(a, n) {
		return inUse
	}
	charged := d.consumes && !s.paid(d, n)
	if charged && !s.affords(r, d) {
		return noCounters
	}
	if o == tainted {
		return isTainted
	}
	for _, c := range a.constraints {
		if !s.allows(c, r) {
			return constrainedOut
		}
	}
	if !s.fits(r, v.consumed) {
		return noCapacity
	}
	p := pick{ref: r, alternative: a, number: n, formerHolder: s.holder[n], consumed: v.consumed, charged: charged, previous: -1}
	for _, c := range a.constraints {
		value := s.valuesOf(r.pool, s.claims.constraints[c].attribute)[r.device]
		s.constrained[c].values = append(s.constrained[c].values, value)
	}
	if charged {
		left := s.poolsOf[r.pool].left
		for _, c := range d.charges {
			left[c.counter] = left[c.counter].minus(c.amount)
		}
	}
	if d.shared {
		sh := s.shareOf(r)
		sh.active++
		for i := range v.consumed {
			sh.used[i] = sh.used[i].plus(v.consumed[i].amount)
		}
	} else {
		s.taken[n] += 2
		s.holder[n] = int32(a.request.claim) + 1
	}
	s.picks = append(s.picks, p)
	s.held++
	return takenNow
}

// giveBack undoes the last take.
func (s *state) giveBack() {
	p := &s.picks[len(s.picks)-1]
	d := s.device(p.ref)
	if d.shared {
		sh := s.shareOf(p.ref)
		sh.active--
		for i := range p.consumed {
			sh.used[i] = sh.used[i].minus(p.consumed[i].amount)
		}
	} else {
		s.taken[p.number] -= 2
		s.holder[p.number] = p.formerHolder
	}
	if p.charged {
		left := s.poolsOf[p.pool].left
		for _, c := range d.charges {
			left[c.counter] = left[c.counter].plus(c.amount)
		}
	}
	for _, c := range p.constraints {
		values := s.constrained[c].values
		s.constrained[c].values = values[:len(values)-1]
	}
	s.picks = s.picks[:len(s.picks)-1]
	s.held--
}
