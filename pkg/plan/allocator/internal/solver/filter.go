package solver

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// filter is what a request asks of each single device: the selectors of its class and
// its own, its capacities, and the taints that it tolerates. Requests that ask the same
// have the same filter.
type filter struct {
	selectors []*expression
	// ofClass is how many of the selectors are the class's; they come first.
	ofClass     int
	capacity    map[resourceapi.QualifiedName]resource.Quantity
	tolerations []resourceapi.DeviceToleration
	cache       *Cache
}

// verdict is what a filter says of a content.
type verdict struct {
	// rejectedBy is the first selector that does not match or fails with selectErr, -1
	// if all match.
	rejectedBy int
	selectErr  error
	// fits says that an empty device has the capacities that are asked for. If it is
	// set, consumed is what the request takes of each.
	fits        bool
	consumed    []consumption
	capacityErr error
}

func (c *Cache) filter(class, own []resourceapi.DeviceSelector, capacity *resourceapi.CapacityRequirements, tolerations []resourceapi.DeviceToleration) *filter {
	var requests map[resourceapi.QualifiedName]resource.Quantity
	if capacity != nil {
		requests = capacity.Requests
	}
	key := make([]byte, 0, 256)
	texts := make([]string, 0, len(class)+len(own))
	for _, selectors := range [][]resourceapi.DeviceSelector{class, own} {
		key = binary.AppendUvarint(key, uint64(len(selectors)))
		for _, s := range selectors {
			texts = append(texts, s.CEL.Expression)
			key = appendText(key, s.CEL.Expression)
		}
	}
	key = binary.AppendUvarint(key, uint64(len(requests)))
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		key = appendText(key, string(name))
		q := requests[name]
		key = appendQuantity(key, &q)
	}
	for _, t := range tolerations {
		key = appendTexts(key, []string{t.Key, string(t.Operator), t.Value, string(t.Effect)})
	}
	expressions := make([]*expression, len(texts))
	for i, text := range texts {
		expressions[i] = c.expression(text)
	}
	return intern(c, &c.filters, cachedFilters, key, func() *filter {
		return &filter{selectors: expressions, ofClass: len(class), capacity: requests, tolerations: tolerations, cache: c}
	})
}

// judge says what the filter says of a content, and remembers it.
func (f *filter) judge(c *content) *verdict {
	c.mu.Lock()
	v, ok := c.verdicts[f]
	c.mu.Unlock()
	if ok {
		return v
	}
	v = f.judgeAnew(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grow()
	c.verdicts[f] = v
	return v
}

func (f *filter) judgeAnew(c *content) *verdict {
	v := &verdict{rejectedBy: -1}
	for i, e := range f.selectors {
		if compileErr := e.compile(f.cache).Error; compileErr != nil {
			v.rejectedBy, v.selectErr = i, fmt.Errorf("CEL compile error: %w", compileErr)
			return v
		}
		s := c.selects(e)
		if s.err != nil {
			s.err = fmt.Errorf("CEL runtime error: %w", s.err)
		}
		if !s.matches {
			v.rejectedBy, v.selectErr = i, s.err
			return v
		}
	}
	v.consumed, v.fits, v.capacityErr = f.consume(c.capacities)
	return v
}

// tolerates says whether the filter tolerates all of a device's taints, and if not
// which is the first that it does not.
func (f *filter) tolerates(taints []resourceapi.DeviceTaint) (bool, *resourceapi.DeviceTaint) {
	for i := range taints {
		switch taints[i].Effect {
		case resourceapi.DeviceTaintEffectNoExecute, resourceapi.DeviceTaintEffectNoSchedule:
		default:
			// None, and effects that are not known, keep nobody away.
			continue
		}
		if !slices.ContainsFunc(f.tolerations, func(t resourceapi.DeviceToleration) bool {
			return resourceclaim.ToleratesTaint(t, taints[i])
		}) {
			return false, &taints[i]
		}
	}
	return true, nil
}

// outcome is what a filter says of a device of a pool, in the order in which
// kube-scheduler looks.
type outcome uint8

const (
	accepted outcome = iota
	// tainted devices are accepted but for a taint. A request for all devices waits
	// for them.
	tainted
	unselected
	unreached
	unfit
	// The outcomes from here on make the allocation fail when the search gets there.
	selectFails
	reachFails
	capacityFails
)

func (o outcome) fails() bool { return o >= selectFails }

// matches are what a filter says of all devices of a pool.
type matches struct {
	outcomes []outcome
	verdicts []*verdict
	// exact are the devices, in order, at which a request for a count has to look:
	// those accepted and those that fail. all are those that a request for all devices
	// wants.
	exact, all []int32
	// fails is the first device that fails, -1 if there is none.
	fails int32
}

func (f *filter) match(p *pool) *matches {
	m := &matches{
		outcomes: make([]outcome, len(p.devices)),
		verdicts: make([]*verdict, len(p.devices)),
		fails:    -1,
	}
	for i := range p.devices {
		d := &p.devices[i]
		v := f.judge(d.content)
		o := f.outcome(d, v)
		m.verdicts[i], m.outcomes[i] = v, o
		switch {
		case o.fails():
			m.exact = append(m.exact, int32(i))
			if m.fails < 0 {
				m.fails = int32(i)
			}
		case o == accepted:
			m.exact = append(m.exact, int32(i))
			m.all = append(m.all, int32(i))
		case o == tainted:
			m.all = append(m.all, int32(i))
		}
	}
	return m
}

func (f *filter) outcome(d *Device, v *verdict) outcome {
	switch {
	case v.selectErr != nil:
		return selectFails
	case v.rejectedBy >= 0:
		return unselected
	case d.reach == reachUnknown:
		return reachFails
	case d.reach == unreachable:
		return unreached
	case v.capacityErr != nil:
		return capacityFails
	case !v.fits:
		return unfit
	}
	if ok, _ := f.tolerates(d.Taints); !ok {
		return tainted
	}
	return accepted
}
