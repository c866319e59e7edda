package solver

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// memory remembers from which states there is no solution.
//
// A state is where the search is (request, alternative, how many devices that has), the
// values that constraints are bound to, and what is taken. What is taken is told by the
// kinds of the blocks that are touched and by what was taken of each, so states that
// differ only in devices that are alike are the same. It does not matter which devices
// of a request were tried before: had there been a solution with one of those, the
// search, which tries them in order, would have found it.
type memory struct {
	known map[string]result
	size  int
	// states numbers states of blocks that are not simple.
	states map[string]uint64

	// The rest is for building keys.
	key, record, state []byte
	parts              []uint64
	records            []span
	values             []int32
}

// span is a part of memory.record.
type span struct{ from, to int }

// memoryLimit bounds the bytes of the keys that are remembered in one search.
const memoryLimit = 16 << 20

func (m *memory) recall(key []byte) (result, bool) {
	r, ok := m.known[string(key)]
	return r, ok
}

func (m *memory) remember(key string, r result) {
	if m.size > memoryLimit {
		return
	}
	if m.known == nil {
		m.known = make(map[string]result)
	}
	m.size += len(key)
	m.known[key] = r
}

// number numbers a block's state. It is not ok if there is no more memory for it,
// and then the state was not seen before.
func (m *memory) number(state []byte) (n uint64, ok bool) {
	if n, ok := m.states[string(state)]; ok {
		return n, true
	}
	if m.size > memoryLimit {
		return 0, false
	}
	if m.states == nil {
		m.states = make(map[string]uint64)
	}
	m.size += len(state)
	n = uint64(len(m.states))
	m.states[string(state)] = n
	return n, true
}

// stateKey encodes the state in which an alternative has some devices of the number it
// needs. It is nil for a state that there is no memory for.
func (s *search) stateKey(a *alternative, has int) []byte {
	m := &s.plan.failures
	key := binary.AppendUvarint(m.key[:0], uint64(a.number))
	key = binary.AppendUvarint(key, uint64(has))
	if s.plan.limited {
		key = binary.AppendUvarint(key, uint64(s.held))
	}
	key = s.appendConstraints(key, a)
	m.parts = m.parts[:0]
	y := &s.plan.symmetry
	for i := range s.picks {
		p := &s.picks[i]
		n := y.block[p.number]
		b := &y.blocks[n]
		if y.touched[n] != int32(i) || int(b.last) < a.position {
			continue // Not the last of its block, or of no use for what follows.
		}
		if b.simple {
			part := uint64(b.kind) << 2
			if s.claims.admin {
				part |= uint64(s.holding(p, a))
			}
			m.parts = append(m.parts, part)
			continue
		}
		state, ok := m.number(s.blockState(b, int32(i), a))
		if !ok {
			return nil
		}
		m.parts = append(m.parts, state<<2|3)
	}
	slices.Sort(m.parts)
	for _, part := range m.parts {
		key = binary.BigEndian.AppendUint64(key, part)
	}
	m.key = key
	return key
}

// holding tells whether the claim that the search is at holds a device: another admin
// access of the same claim cannot have it.
func (s *search) holding(p *pick, a *alternative) byte {
	return flag(s.holder[p.number] == int32(a.request.claim)+1)
}

// appendConstraints encodes the values that the claim's constraints are bound to, as
// far as they matter for what follows. Values that tie blocks are part of the states of
// these.
func (s *search) appendConstraints(key []byte, a *alternative) []byte {
	m := &s.plan.failures
	of := s.claims.claims[a.request.claim]
	for c := of.firstConstraint; c < of.endOfConstraints; c++ {
		if s.plan.last[c] < a.position {
			continue
		}
		constraint := &s.claims.constraints[c]
		values := s.constrained[c].values
		key = append(key, flag(len(values) > 0))
		if s.plan.symmetry.tied[constraint.attribute] {
			continue
		}
		if !constraint.distinct && len(values) > 1 {
			values = values[:1] // All are equal.
		}
		m.values = append(m.values[:0], values...)
		slices.Sort(m.values)
		key = binary.AppendUvarint(key, uint64(len(m.values)))
		for _, v := range m.values {
			key = binary.AppendVarint(key, int64(v))
		}
	}
	return key
}

// blockState encodes the state of a block: what is taken of its devices, by class, what
// is left of its counters, and which of its values constraints are bound to. Devices
// that no later request can take only count by their counters.
func (s *search) blockState(b *block, lastPick int32, a *alternative) []byte {
	m := &s.plan.failures
	y := &s.plan.symmetry
	m.record, m.records = m.record[:0], m.records[:0]
	for at := lastPick; at >= 0; at = s.picks[at].previous {
		p := &s.picks[at]
		if int(y.last[p.number]) < a.position || s.latest(p, at, lastPick) != at {
			continue // Or it is a share of a device of which there is a later one.
		}
		start := len(m.record)
		m.record = binary.AppendUvarint(m.record, uint64(y.class[p.number]))
		if s.claims.admin {
			m.record = append(m.record, s.holding(p, a))
		}
		if at := s.share[p.number]; at > 0 {
			m.record = append(m.record, flag(p.position == a.position))
			for _, used := range s.shares[at-1].used {
				m.record = used.appendTo(m.record)
			}
		}
		m.records = append(m.records, span{start, len(m.record)})
	}
	slices.SortFunc(m.records, func(x, z span) int {
		return bytes.Compare(m.record[x.from:x.to], m.record[z.from:z.to])
	})
	state := binary.AppendUvarint(m.state[:0], uint64(b.kind))
	state = binary.AppendUvarint(state, uint64(len(m.records)))
	for _, r := range m.records {
		state = append(state, m.record[r.from:r.to]...)
	}
	for _, c := range b.counters {
		state = s.poolsOf[c.pool].left[c.counter].appendTo(state)
	}
	m.state = s.appendBoundValues(state, b, a)
	return m.state
}

// appendBoundValues encodes which of a block's values the claim's constraints have.
func (s *search) appendBoundValues(state []byte, b *block, a *alternative) []byte {
	of := s.claims.claims[a.request.claim]
	for c := of.firstConstraint; c < of.endOfConstraints; c++ {
		if s.plan.last[c] < a.position {
			continue
		}
		for i, v := range b.values {
			if int(v.attribute) == s.claims.constraints[c].attribute && slices.Contains(s.constrained[c].values, v.value) {
				state = binary.AppendUvarint(state, uint64(c)+1)
				state = binary.AppendUvarint(state, uint64(i))
			}
		}
	}
	return state
}

// latest is the last pick of the device of p, looking back from lastPick. Only shares
// and admin access pick a device again.
func (s *search) latest(p *pick, at, lastPick int32) int32 {
	if s.share[p.number] == 0 && !s.claims.admin {
		return at
	}
	for at := lastPick; at >= 0; at = s.picks[at].previous {
		if s.picks[at].number == p.number {
			return at
		}
	}
	return -1
}
