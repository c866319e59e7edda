package solver

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Pools are the pools that a node with this name and these labels reaches. The cost
// does not grow with slices that name other nodes. It fails, as kube-scheduler does, if
// a node selector that it has to look at cannot be read.
func (s *Snapshot) Pools(node *corev1.Node) (Pools, error) {
	if s == nil {
		return Pools{}, nil
	}
	v := view{snapshot: s, node: node, matched: make([]int8, len(s.selectors))}
	result := make([]*pool, 0, len(s.wide)+1)
	add := func(p *poolSlices, named []int) error {
		pool, err := v.pool(p, named)
		if err == nil && pool != nil {
			result = append(result, pool)
		}
		return err
	}
	var own []nodeSlices
	if node != nil && node.Name != "" {
		own = s.ofNode[node.Name]
	}
	for _, of := range own {
		if err := add(of.pool, of.slices); err != nil {
			return Pools{}, err
		}
	}
	for _, p := range s.wide {
		if slices.ContainsFunc(own, func(of nodeSlices) bool { return of.pool == p }) {
			continue
		}
		if err := add(p, nil); err != nil {
			return Pools{}, err
		}
	}
	sortPools(result)
	return Pools{pools: result}, nil
}

// view is what one node sees.
type view struct {
	snapshot *Snapshot
	node     *corev1.Node
	matched  []int8 // by selector: 0 not yet known, 1 yes, -1 no
	// indices and text are for use again.
	indices []int
	text    []byte
}

// matches says whether a selector selects the node.
func (v *view) matches(selector int) (bool, error) {
	s := v.snapshot.selectors[selector]
	if s.err != nil {
		return false, s.err
	}
	if v.matched[selector] == 0 {
		v.matched[selector] = -1
		if s.parsed.Match(v.node) {
			v.matched[selector] = 1
		}
	}
	return v.matched[selector] > 0, nil
}

// pool is the pool as the node sees it, nil if the node reaches none of it, or if a
// newer generation of it is being published elsewhere.
//
// Slices of older generations are left out among those that the node reaches. If these
// are as many as the pool should have, the pool is complete. Otherwise all its slices
// are counted.
func (v *view) pool(p *poolSlices, named []int) (*pool, error) {
	reached, err := v.reached(p, named)
	if err != nil || len(reached) == 0 {
		return nil, err
	}
	first := p.slices[reached[0]].Spec.Pool
	complete := int64(len(reached)) == first.ResourceSliceCount
	if !complete && p.newest > first.Generation {
		return nil, nil
	}
	key := v.key(p, reached)
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.views[string(key)]; ok {
		return known, nil
	}
	result := &pool{id: p.id, incomplete: true}
	switch {
	case complete:
		result = v.build(p, reached, nil)
	case p.count == first.ResourceSliceCount:
		result = v.build(p, reached, p.others(reached))
	}
	result.shape = newPoolShape()
	if p.views == nil {
		p.views = make(map[string]*pool)
	}
	p.views[string(key)] = result
	return result, nil
}

// key tells apart what nodes see of a pool.
func (v *view) key(p *poolSlices, reached []int) []byte {
	key := v.text[:0]
	for _, i := range reached {
		key = binary.AppendUvarint(key, uint64(i))
		for k := range p.slices[i].selectors {
			reach, _ := v.reachesDevice(&p.slices[i], k) // The error is kept with the device.
			key = append(key, byte(reach))
		}
	}
	v.text = key
	return key
}

// others are the slices of a complete pool's generation that the node does not reach.
func (p *poolSlices) others(reached []int) []int {
	names := make(map[string]bool, len(reached))
	for _, i := range reached {
		names[p.slices[i].Name] = true
	}
	var result []int
	generation := p.slices[reached[0]].Spec.Pool.Generation
	for i := range p.slices {
		s := &p.slices[i]
		if s.Spec.Pool.Generation == generation && !s.ignored && !names[s.Name] {
			result = append(result, i)
		}
	}
	return result
}

// reached are positions of the slices of the newest generation that the node reaches.
// First come those that name it.
func (v *view) reached(p *poolSlices, named []int) ([]int, error) {
	result := v.indices[:0]
	for _, indices := range [][]int{named, p.wide} {
		for _, i := range indices {
			relevant, err := v.reaches(&p.slices[i])
			if err != nil {
				return nil, err
			}
			if !relevant {
				continue
			}
			generation := p.slices[i].Spec.Pool.Generation
			if len(result) > 0 {
				if newest := p.slices[result[0]].Spec.Pool.Generation; generation < newest {
					continue
				} else if generation > newest {
					result = result[:0]
				}
			}
			result = append(result, i)
		}
	}
	v.indices = result
	return result, nil
}

// reaches says whether the node reaches a slice, or any of its devices.
func (v *view) reaches(s *slice) (bool, error) {
	switch {
	case s.ignored:
		return false, nil
	case ptr.Deref(s.Spec.NodeName, "") != "", s.reachedByAll():
		return true, nil
	case s.selector >= 0:
		matches, err := v.matches(s.selector)
		if err != nil {
			return false, fmt.Errorf("node selector of ResourceSlice %s: %w", s.Name, err)
		}
		return matches, nil
	}
	for i := range s.selectors {
		switch reach, err := v.reachesDevice(s, i); reach {
		case reachable:
			return true, nil
		case reachUnknown:
			return false, fmt.Errorf("node selector of device %s in ResourceSlice %s: %w", s.Spec.Devices[i].Name, s.Name, err)
		}
	}
	return false, nil
}

// reachesDevice says whether the node reaches a device of a slice whose devices are
// reached each on its own.
func (v *view) reachesDevice(s *slice, i int) (reach, error) {
	d := &s.Spec.Devices[i]
	matches := false
	switch name := ptr.Deref(d.NodeName, ""); {
	case name != "":
		matches = v.node != nil && v.node.Name == name
	case ptr.Deref(d.AllNodes, false):
		matches = true
	case s.selectors[i] >= 0:
		var err error
		if matches, err = v.matches(s.selectors[i]); err != nil {
			return reachUnknown, err
		}
	}
	if matches {
		return reachable, nil
	}
	return unreachable, nil
}

// build makes the pool of which the node reaches some slices.
func (v *view) build(p *poolSlices, reached, others []int) *pool {
	reached = slices.Clone(reached)
	slices.SortStableFunc(reached, func(a, b int) int { return cmp.Compare(p.slices[a].Name, p.slices[b].Name) })
	src := poolSource{}
	for _, i := range reached {
		s := &p.slices[i]
		if len(s.Spec.SharedCounters) > 0 {
			src.sets = append(src.sets, s.Spec.SharedCounters...)
			continue
		}
		src.slices = append(src.slices, sliceSource{devices: s.Spec.Devices, place: v.placer(s)})
	}
	for _, i := range others {
		s := &p.slices[i]
		if len(s.Spec.SharedCounters) > 0 {
			src.sets = append(src.sets, s.Spec.SharedCounters...)
			continue
		}
		src.foreign = append(src.foreign, s.Spec.Devices)
	}
	return newPool(v.snapshot.cache, p.id, false, src)
}

// placer notes where the devices of a slice are.
func (v *view) placer(s *slice) func(i int, d *Device) {
	if s.selectors == nil {
		return func(_ int, d *Device) {
			d.NodeName = ptr.Deref(s.Spec.NodeName, "")
			d.NodeSelector = s.Spec.NodeSelector
		}
	}
	type place struct {
		reach reach
		err   error
	}
	places := make([]place, len(s.selectors))
	for i := range places {
		places[i].reach, places[i].err = v.reachesDevice(s, i)
	}
	return func(i int, d *Device) {
		d.NodeName = ptr.Deref(s.Spec.Devices[i].NodeName, "")
		d.NodeSelector = s.Spec.Devices[i].NodeSelector
		d.reach, d.reachErr = places[i].reach, places[i].err
	}
}
