package solver

import "slices"

// symmetry tells which devices, and groups of devices, are alike for the claims at hand.
//
// Devices that draw on a common counter form a component; each other device is a
// component of its own. Components that share a value of an attribute which constraints
// compare form a block (see blocks.go for exceptions). Blocks are of the same kind if
// their devices, one by one in publishing order, are: if each alternative treats them
// alike, if their capacities, uses and counters are equal, and if they share counters
// and values in the same way, whichever values these are. Devices of one kind of block
// that are equal even in the counters and values that they share are of one class.
//
// Then two things hold. Of two blocks of one kind in equal states, or of two devices of
// one class in one block, both untouched, it does not matter which one is used: any
// solution with the one becomes a solution with the other if they change places. And as
// the search tries devices in order, a solution that it would still find with the later
// one is one that it would have found before with the earlier one.
type symmetry struct {
	// component and block are those of a device, by number, -1 if no request can take
	// the device.
	component, block []int32
	components       []component
	blocks           []block
	// class is the class of a device, by number. Classes of different kinds differ.
	class []int32
	// last is the position of the last request that can take a device, by number, -1
	// for none.
	last []int32
	// tied are the attributes of which values tie blocks together, by position in
	// Claims.attributes.
	tied []bool
	// touched is the last pick of each block, -1 if there is none.
	touched []int32
	// tried are classes that have failed in the loops that the search is in.
	tried []int64
}

// component is a group of devices that draw on common counters.
type component struct {
	pool     int32
	counters []int32
	size     int
}

// block is a group of components that share values.
type block struct {
	kind int32
	// last is the position of the last request that can take one of the devices.
	last int32
	// simple blocks have one device, which is exclusive, draws on no counters, and
	// shares no value.
	simple   bool
	devices  []int32 // numbers
	counters []counterRef
	values   []valueRef
}

// counterRef is a counter: its pool's position among the pools, and its own in the pool.
type counterRef struct{ pool, counter int32 }

// valueRef is a value of an attribute, by position in Claims.attributes.
type valueRef struct{ attribute, value int32 }

// grab takes a candidate, and notes that its block is touched.
func (s *search) grab(a *alternative, c *candidate) refusal {
	refused := s.take(a, c.ref, c.outcome, c.verdict)
	if refused == takenNow {
		touched := &s.plan.symmetry.touched[s.plan.symmetry.block[c.number]]
		last := int32(len(s.picks) - 1)
		s.picks[last].previous = *touched
		*touched = last
	}
	return refused
}

// release undoes the last grab.
func (s *search) release() {
	p := &s.picks[len(s.picks)-1]
	s.plan.symmetry.touched[s.plan.symmetry.block[p.number]] = p.previous
	s.giveBack()
}

// likeness is equal for candidates that it makes no difference to take now. It is -1
// for one that is not like any other.
func (s *search) likeness(number int32) int64 {
	y := &s.plan.symmetry
	b := y.block[number]
	class := int64(y.class[number])
	switch {
	case y.touched[b] < 0:
		return class
	case s.taken[number] > takenByOthers, s.share[number] > 0 && s.shares[s.share[number]-1].active > 0:
		return -1
	}
	return int64(b+1)<<32 | class
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
