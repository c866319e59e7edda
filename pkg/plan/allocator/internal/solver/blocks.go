package solver

import "encoding/binary"

// What an alternative makes of a device.
const (
	ignores uint8 = iota
	accepts
	wants
	cannotHave
	failsAt
)

// blockBuilder finds components, blocks, kinds and classes.
type blockBuilder struct {
	search   *search
	symmetry *symmetry // what is found, part of the search's plan
	// role is what each alternative makes of each device: by number of the device, then
	// of the alternative.
	role []uint8
	refs []ref // by number of the device
	// parent leads to another device of the same group, or to itself.
	parent []int32
	signs  map[string]int32
	kinds  map[string]int32
	// classes are the first classes of each kind.
	classes   []int32
	nextClass int32
	key       []byte
}

func (s *search) findSymmetry() {
	total := int(s.offsets[len(s.pools)])
	b := &blockBuilder{
		search: s, symmetry: &s.plan.symmetry,
		role:   make([]uint8, total*len(s.plan.candidates)),
		refs:   make([]ref, total),
		parent: make([]int32, total),
		signs:  make(map[string]int32), kinds: make(map[string]int32),
	}
	b.symmetry.last = make([]int32, total)
	b.symmetry.class = make([]int32, total)
	b.findRoles()
	b.findComponents()
	b.findTies()
	b.findBlocks()
	for i := range b.symmetry.blocks {
		b.classify(&b.symmetry.blocks[i])
	}
	b.symmetry.touched = make([]int32, len(b.symmetry.blocks))
	for i := range b.symmetry.touched {
		b.symmetry.touched[i] = -1
	}
}

func (b *blockBuilder) findRoles() {
	alternatives := len(b.search.plan.candidates)
	for n := range b.symmetry.last {
		b.symmetry.last[n] = -1
		b.parent[n] = int32(n)
	}
	for _, r := range b.search.claims.requests {
		for _, a := range r.alternatives {
			for i := range b.search.plan.candidates[a.number] {
				c := &b.search.plan.candidates[a.number][i]
				role := accepts
				switch {
				case a.all && c.outcome == tainted:
					role = cannotHave
				case a.all:
					role = wants
				case c.outcome.fails():
					role = failsAt
				}
				b.role[int(c.number)*alternatives+a.number] = role
				b.symmetry.last[c.number] = int32(a.position)
				b.refs[c.number] = c.ref
			}
		}
	}
}

// group is the first device of the group that a device is in.
func (b *blockBuilder) group(n int32) int32 {
	for b.parent[n] != n {
		b.parent[n] = b.parent[b.parent[n]]
		n = b.parent[n]
	}
	return n
}

func (b *blockBuilder) join(n, other int32) {
	n, other = b.group(n), b.group(other)
	b.parent[max(n, other)] = min(n, other)
}

// each visits the devices that some request can take, in order.
func (b *blockBuilder) each(visit func(n int32, d *Device)) {
	for n := range b.symmetry.last {
		if b.symmetry.last[n] >= 0 {
			visit(int32(n), b.search.device(b.refs[n]))
		}
	}
}

// findComponents joins devices that have a counter in common.
func (b *blockBuilder) findComponents() {
	owner := make(map[counterRef]int32)
	b.each(func(n int32, d *Device) {
		for _, c := range d.charges {
			key := counterRef{b.refs[n].pool, c.counter}
			if first, ok := owner[key]; ok {
				b.join(n, first)
			} else {
				owner[key] = n
			}
		}
	})
	b.symmetry.component = b.number(func() int32 {
		b.symmetry.components = append(b.symmetry.components, component{})
		return int32(len(b.symmetry.components) - 1)
	})
	b.each(func(n int32, d *Device) {
		c := &b.symmetry.components[b.symmetry.component[n]]
		c.pool = b.refs[n].pool
		c.size++
		for _, charge := range d.charges {
			if owner[counterRef{c.pool, charge.counter}] == n {
				c.counters = append(c.counters, charge.counter)
			}
		}
	})
}

// number numbers the groups in the order of their first devices.
func (b *blockBuilder) number(create func() int32) []int32 {
	numbers := make([]int32, len(b.parent))
	for n := range numbers {
		numbers[n] = -1
	}
	b.each(func(n int32, _ *Device) {
		first := b.group(n)
		if numbers[first] < 0 {
			numbers[first] = create()
		}
		numbers[n] = numbers[first]
	})
	return numbers
}

// findTies chooses the attributes of which equal values tie components together. Of
// values that tie nothing or everything, or several components that may be alike,
// blocks would hide more symmetry than they show: such values are compared as they are.
func (b *blockBuilder) findTies() {
	b.symmetry.tied = make([]bool, len(b.search.claims.attributes))
	for attribute := range b.symmetry.tied {
		large := make(map[int32]int32) // the one component with several devices, by value
		tied := true
		b.each(func(n int32, _ *Device) {
			v, ok := b.tie(n, attribute)
			if !ok {
				return
			}
			c := b.symmetry.component[n]
			former, known := large[v]
			switch {
			case b.symmetry.components[c].size < 2:
				if !known {
					large[v] = -1
				}
			case !known || former < 0:
				large[v] = c
			case former != c:
				tied = false
			}
		})
		b.symmetry.tied[attribute] = tied && len(large) > 1
	}
}

// tie is the value that ties a device to others.
func (b *blockBuilder) tie(n int32, attribute int) (value int32, ok bool) {
	r := b.refs[n]
	v := b.search.valuesOf(r.pool, attribute)[r.device]
	return v, v != noValue && v != unknownValue
}

// findBlocks joins components that share a value.
func (b *blockBuilder) findBlocks() {
	owner := make(map[valueRef]int32)
	b.each(func(n int32, _ *Device) {
		for attribute, tied := range b.symmetry.tied {
			v, ok := b.tie(n, attribute)
			if !tied || !ok {
				continue
			}
			key := valueRef{int32(attribute), v}
			if first, ok := owner[key]; ok {
				b.join(n, first)
			} else {
				owner[key] = n
			}
		}
	})
	b.symmetry.block = b.number(func() int32 {
		b.symmetry.blocks = append(b.symmetry.blocks, block{})
		return int32(len(b.symmetry.blocks) - 1)
	})
	b.each(func(n int32, _ *Device) {
		of := &b.symmetry.blocks[b.symmetry.block[n]]
		of.devices = append(of.devices, n)
		of.last = max(of.last, b.symmetry.last[n])
	})
}

// classify finds the kind of a block and the classes of its devices. Counters and
// values are numbered in the order in which the devices name them, so that blocks of
// one kind number theirs alike.
func (b *blockBuilder) classify(of *block) {
	counters := make(map[counterRef]int)
	values := make(map[valueRef]int)
	own := make(map[string]int32)
	local := make([]int32, len(of.devices))
	var kindKey []byte
	for i, n := range of.devices {
		r := b.refs[n]
		d := b.search.device(r)
		key := binary.AppendUvarint(b.key[:0], uint64(b.signature(n, r, d)))
		for _, charge := range d.charges {
			at := numbered(counters, &of.counters, counterRef{r.pool, charge.counter})
			key = binary.AppendUvarint(key, uint64(at)+1)
			key = charge.amount.appendTo(key)
		}
		key = append(key, 0)
		for attribute, tied := range b.symmetry.tied {
			if v, ok := b.tie(n, attribute); tied && ok {
				at := numbered(values, &of.values, valueRef{int32(attribute), v})
				key = binary.AppendUvarint(key, uint64(at))
			}
		}
		class, ok := own[string(key)]
		if !ok {
			class = int32(len(own))
			own[string(key)] = class
		}
		local[i] = class
		kindKey = binary.AppendUvarint(kindKey, uint64(len(key)))
		kindKey = append(kindKey, key...)
		b.key = key
		of.simple = len(of.devices) == 1 && !d.shared && len(of.counters) == 0 && len(of.values) == 0
	}
	for _, c := range of.counters {
		kindKey = b.search.poolsOf[c.pool].left[c.counter].appendTo(kindKey)
	}
	kind, ok := b.kinds[string(kindKey)]
	if !ok {
		kind = int32(len(b.classes))
		b.kinds[string(kindKey)] = kind
		b.classes = append(b.classes, b.nextClass)
		b.nextClass += int32(len(own))
	}
	of.kind = kind
	for i, n := range of.devices {
		b.symmetry.class[n] = b.classes[kind] + local[i]
	}
}

// numbered is the number of an item in a list, to which it is added if it is new.
func numbered[T comparable](numbers map[T]int, list *[]T, item T) int {
	n, ok := numbers[item]
	if !ok {
		n = len(*list)
		numbers[item] = n
		*list = append(*list, item)
	}
	return n
}

// signature is equal for devices that differ in nothing but the counters they draw on
// and the values that tie them.
func (b *blockBuilder) signature(n int32, r ref, d *Device) int32 {
	alternatives := len(b.search.plan.candidates)
	roles := b.role[int(n)*alternatives : (int(n)+1)*alternatives]
	key := append(make([]byte, 0, 64), roles...)
	for attribute, tied := range b.symmetry.tied {
		v, ok := b.tie(n, attribute)
		if tied && ok {
			key = append(key, 't')
			continue
		}
		key = binary.AppendVarint(append(key, 'v'), int64(v))
	}
	key = append(key, byte(b.search.taken[n]&takenByOthers), flag(d.consumes))
	if b.search.plan.pinned[n] {
		key = binary.AppendUvarint(append(key, 'p'), uint64(n))
	}
	if d.shared {
		key = append(key, 's')
		if at := b.search.share[n]; at > 0 {
			key = append(key, flag(b.search.shares[at-1].others))
			for _, used := range b.search.shares[at-1].used {
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
func (b *blockBuilder) appendConsumption(key []byte, d *Device, roles []uint8) []byte {
	for _, r := range b.search.claims.requests {
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
