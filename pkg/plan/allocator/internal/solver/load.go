package solver

// load reads in what is taken of a pool.
func (s *state) load(index int32) *poolState {
	ps := &s.poolsOf[index]
	if ps.loaded {
		return ps
	}
	ps.loaded = true
	p := s.pools[index].ready()
	use := s.usage.pool(p.id)
	if use != nil {
		for i := range p.devices {
			d := &p.devices[i]
			if taken, ok := use.devices[d.ID.Device]; ok {
				s.loadDevice(ref{index, int32(i)}, taken)
			}
		}
	}
	if len(p.counters) > 0 {
		s.loadCounters(p, ps, use)
	}
	return ps
}

func (s *state) loadDevice(r ref, use deviceUsage) {
	n := s.number(r)
	if use.exclusive {
		s.taken[n] |= takenByOthers
	}
	if !use.shared {
		return
	}
	sh := s.shareOf(r)
	sh.others = use.charged
	for i, c := range s.device(r).capacities {
		sh.used[i] = use.consumed[c.name]
	}
}

func (s *state) loadCounters(p *pool, ps *poolState, use *poolUsage) {
	ps.left = make([]amount, len(p.counters))
	for i := range p.counters {
		ps.left[i] = p.counters[i].value
	}
	if use == nil {
		use = &poolUsage{}
	}
	pay := func(charges []charge) {
		for _, c := range charges {
			ps.left[c.counter] = ps.left[c.counter].minus(c.amount)
		}
	}
	if len(use.devices) > 0 {
		for i := range p.devices {
			if use.devices[p.devices[i].ID.Device].charged {
				pay(p.devices[i].charges)
			}
		}
		for _, d := range p.foreign {
			if use.devices[d.name].charged {
				pay(d.charges)
			}
		}
	}
	for i := range p.counters {
		if len(use.counters) > 0 {
			ps.left[i] = ps.left[i].minus(use.counters[counterName{set: p.counters[i].set, name: p.counters[i].name}])
		}
		ps.overdrawn = ps.overdrawn || ps.left[i].less(amount{})
	}
}
