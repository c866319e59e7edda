package solver

// matching finds out whether scarce requests can all get their devices at once, if of
// counters and capacities only the most devices that a component can give are counted.
// It is a flow from the requests through the components, each of which gives a request,
// and all together, only so many devices.
type matching struct {
	entries []entry
	// first and last are positions in entries by component, if marked.
	first, last []int32
	order       []int32 // components, as they come up
	bin         []entry // the entries of one component
	edges       []edge
	bins        []bin
	// of are positions in edges, by demand.
	of [][]int32
	// least are the least charges of counters, seen in how many devices.
	least []amount
	seen  []int
}

// entry is a candidate of a demand.
type entry struct {
	demand, next int32
	*candidate
}

// edge says how many devices of a component a demand can get, and gets.
type edge struct {
	demand, bin    int32
	capacity, flow int
}

// bin is a component.
type bin struct {
	capacity, flow int
	edges          []int32
	visited        int
}

// resized is a slice with n elements, those of the old one as far as there are some.
func resized[T any](old []T, n int) []T {
	if n <= cap(old) {
		return old[:n]
	}
	return append(old[:cap(old)], make([]T, n-cap(old))...)
}

// matchable is false if the scarce demands cannot be met together.
func (s *search) matchable(limit int) bool {
	b := &s.plan.bounds
	m := &b.matching
	s.sortEntries()
	m.edges, m.bins = m.edges[:0], m.bins[:0]
	m.of = resized(m.of, len(b.scarce))
	for i := range m.of {
		m.of[i] = m.of[i][:0]
	}
	for _, component := range m.order {
		m.bin = m.bin[:0]
		for i := m.first[component]; i >= 0; i = m.entries[i].next {
			m.bin = append(m.bin, m.entries[i])
		}
		s.addBin(m.bin, limit)
	}
	return m.flow(b.scarce)
}

// sortEntries links the candidates of the scarce demands by component.
func (s *search) sortEntries() {
	b := &s.plan.bounds
	m := &b.matching
	m.entries, m.order = m.entries[:0], m.order[:0]
	m.first, m.last = resized(m.first, len(b.components)), resized(m.last, len(b.components))
	stamp := b.draw()
	for i := range b.scarce {
		for _, c := range b.scarce[i].open {
			component := s.plan.symmetry.component[c.number]
			at := int32(len(m.entries))
			m.entries = append(m.entries, entry{demand: int32(i), next: -1, candidate: c})
			if b.components[component] != stamp {
				b.components[component] = stamp
				m.order = append(m.order, component)
				m.first[component] = at
			} else {
				m.entries[m.last[component]].next = at
			}
			m.last[component] = at
		}
	}
}

// addBin adds a component with what it can give to each demand.
func (s *search) addBin(entries []entry, limit int) {
	m := &s.plan.bounds.matching
	n := len(m.bins)
	m.bins = resized(m.bins, n+1)
	m.bins[n] = bin{capacity: s.gives(entries, limit), edges: m.bins[n].edges[:0]}
	for start := 0; start < len(entries); {
		end := start
		for end < len(entries) && entries[end].demand == entries[start].demand {
			end++
		}
		e := edge{demand: entries[start].demand, bin: int32(n), capacity: min(s.gives(entries[start:end], end-start), end-start)}
		m.of[e.demand] = append(m.of[e.demand], int32(len(m.edges)))
		m.bins[n].edges = append(m.bins[n].edges, int32(len(m.edges)))
		m.edges = append(m.edges, e)
		start = end
	}
}

// gives is the most devices, or shares, that a component can give for some entries.
func (s *search) gives(entries []entry, limit int) int {
	b := &s.plan.bounds
	if len(entries) == 1 {
		return 1
	}
	stamp := b.draw()
	total, shared := 0, false
	for i := range entries {
		d := s.device(entries[i].ref)
		if b.devices[entries[i].number] == stamp {
			continue
		}
		b.devices[entries[i].number] = stamp
		if d.shared {
			shared = true
			total += s.shareLimit(entries, entries[i].number, limit)
		} else {
			total++
		}
	}
	if !shared {
		// With shares, which pay for counters once, counters are no bound for a number.
		total = min(total, s.countersGive(entries, total))
	}
	return min(total, limit)
}

// shareLimit is how many of the least shares among the entries fit into a device.
func (s *search) shareLimit(entries []entry, number int32, limit int) int {
	var least []amount
	r := ref{}
	for i := range entries {
		if entries[i].number != number {
			continue
		}
		r = entries[i].ref
		if least == nil {
			least = make([]amount, len(entries[i].consumed))
			for k := range least {
				least[k] = entries[i].consumed[k].amount
			}
			continue
		}
		for k := range least {
			if entries[i].consumed[k].less(least[k]) {
				least[k] = entries[i].consumed[k].amount
			}
		}
	}
	capacities := s.device(r).capacities
	for k := range least {
		left := capacities[k].value
		if at := s.share[number]; at > 0 {
			left = left.minus(s.shares[at-1].used[k])
		}
		limit = min(limit, left.times(least[k], limit))
	}
	return limit
}

// countersGive is how many devices the counters of a component suffice for, if each
// takes of a counter the least that one of the entries does.
func (s *search) countersGive(entries []entry, limit int) int {
	m := &s.plan.bounds.matching
	c := &s.plan.symmetry.components[s.plan.symmetry.component[entries[0].number]]
	if len(c.counters) == 0 {
		return limit
	}
	left := s.poolsOf[c.pool].left
	m.least = cleared(m.least, len(left))
	m.seen = cleared(m.seen, len(left))
	for i := range entries {
		for _, charge := range s.device(entries[i].ref).charges {
			at := charge.counter
			if m.seen[at] == i && (i == 0 || charge.amount.less(m.least[at])) {
				m.least[at] = charge.amount
			}
			if m.seen[at] == i {
				m.seen[at] = i + 1
			}
		}
	}
	for _, counter := range c.counters {
		if m.seen[counter] == len(entries) {
			limit = min(limit, left[counter].times(m.least[counter], limit))
		}
	}
	return limit
}

// flow pushes one device after the other from each demand to a component that has one
// left, if need be by moving another demand to another component.
func (m *matching) flow(demands []demand) bool {
	round := 0
	for i := range demands {
		for range demands[i].need {
			round++
			if !m.push(int32(i), round) {
				return false
			}
		}
	}
	return true
}

func (m *matching) push(demand int32, round int) bool {
	for _, e := range m.of[demand] {
		edge := &m.edges[e]
		bin := &m.bins[edge.bin]
		if edge.flow == edge.capacity || bin.visited == round {
			continue
		}
		bin.visited = round
		if bin.flow < bin.capacity {
			bin.flow++
			edge.flow++
			return true
		}
		for _, other := range bin.edges {
			if m.edges[other].flow > 0 && other != e && m.push(m.edges[other].demand, round) {
				m.edges[other].flow--
				edge.flow++
				return true
			}
		}
	}
	return false
}
