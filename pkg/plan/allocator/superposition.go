package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"apportion.dev/apportion/pkg/plan/allocator/internal/cells"
)

// runNode searches for a node that exists.
func (s *search) runNode() (*Result, error) {
	result := s.newResult()
	var (
		name   string
		t      = &instanceType{}
		key    = reachKey{node: s.on.Node}
		before *taken
	)
	if len(s.on.InstanceTypes) > 0 {
		name = s.on.InstanceTypes[0].Name
		t = s.types[0]
		key.set = t.set
	}
	drop := func(d Dropped) (*Result, error) {
		d.InstanceType = name
		result.Dropped = []Dropped{d}
		return result, nil
	}
	if s.state != nil {
		alternatives := s.state.byType[name]
		if len(alternatives) == 0 {
			return drop(Dropped{Reason: goneReason})
		}
		before = alternatives[0].taken
	}
	if s.claims.err != nil {
		return drop(Dropped{Reason: s.claims.err.Error(), Err: true})
	}
	if reason := s.nodeMismatch(); reason != "" {
		return drop(Dropped{Reason: reason})
	}
	r := s.allocator.reach(key, s.on.Node)
	o, err := s.outcome(r, before)
	if err != nil {
		return nil, err
	}
	if !o.group.solution.Found {
		return drop(o.group.dropped(s.allocator.options.Budget))
	}
	placements := []Placement{{Claims: o.placed()}}
	result.Survivors = []Survivor{{InstanceType: name, Placements: placements, Unlike: o.group.unlike}}
	result.commit.places = []place{{instanceType: t, verdict: &verdict{placements: placements, taken: []*taken{o.taken}}}}
	return result, nil
}

func (s *search) nodeMismatch() string {
	if s.claims.impossible != "" {
		return s.claims.impossible
	}
	for _, selector := range s.selectors {
		if !selector.Matches(s.on.Node) {
			return fmt.Sprintf("the node does not match the selectors (%s)", selector)
		}
	}
	return s.claims.matchAll(s.on.Node)
}

// goneReason is for instance types that a target may no longer become.
const goneReason = "claims that were placed there before cannot be met on it, or it was released"

// failure is why an alternative, or a part of it, will not do.
type failure struct {
	Dropped
	// where describes the part, empty for all.
	where string
}

// verdict is what was found for an alternative: for each part of its label space in which
// it will do a placement with what is then taken, and for the others why not. Those of
// alternatives that look alike are one.
type verdict struct {
	placements []Placement
	taken      []*taken
	unlike     bool
	failures   []failure
	// dropped is the answer if there are no placements.
	dropped Dropped
}

// verdictKey is what a verdict depends on, if no label is fixed by claims.
type verdictKey struct {
	grid   *cells.Grid
	set    *templateSet
	before *taken
}

// superposition searches all that a node claim may become.
type superposition struct {
	search   *search
	space    *cells.Space
	result   *Result
	verdicts map[verdictKey]*verdict
	groups   []int // used again for each verdict
}

// fresh is the one alternative of an instance type of which nothing is taken.
var fresh = []*alternative{{}}

// runNodeClaim searches for a node that does not exist yet: each instance type in each
// region of its label space.
func (s *search) runNodeClaim() (*Result, error) {
	p := &superposition{search: s, result: s.newResult(), verdicts: make(map[verdictKey]*verdict)}
	var boxes, split []*cells.Selector
	if s.state != nil {
		boxes = s.state.boxes
	}
	if len(s.names) > 0 {
		split = s.allocator.split
	}
	p.space = cells.NewSpace(split, s.selectors, s.claims.narrow, boxes)
	for i := range s.types {
		if err := p.instanceType(i); err != nil {
			return nil, err
		}
	}
	if s.allocator.options.Policy == BestFit {
		p.sortByPrice()
	}
	return p.result, nil
}

// instanceType finds where one instance type will do, if anywhere.
func (p *superposition) instanceType(i int) error {
	t, name := p.search.types[i], p.search.on.InstanceTypes[i].Name
	before := fresh
	if p.search.state != nil {
		before = p.search.state.byType[name]
	}
	v, err := p.verdictOfAll(t, before)
	if err != nil {
		return err
	}
	r, left := p.result, len(p.search.types)-i
	if len(v.placements) == 0 {
		if r.Dropped == nil {
			r.Dropped = make([]Dropped, 0, left)
		}
		d := v.dropped
		d.InstanceType = name
		r.Dropped = append(r.Dropped, d)
		return nil
	}
	if r.Survivors == nil {
		r.Survivors = make([]Survivor, 0, left)
		r.commit.places = make([]place, 0, left)
	}
	r.Survivors = append(r.Survivors, Survivor{
		InstanceType: name,
		Placements:   v.placements,
		Unlike:       v.unlike,
		Unknown:      slices.ContainsFunc(v.failures, func(f failure) bool { return f.Unknown }),
	})
	r.commit.places = append(r.commit.places, place{instanceType: t, verdict: v})
	return nil
}

// verdictOfAll is the verdict of all alternatives of an instance type together.
func (p *superposition) verdictOfAll(t *instanceType, before []*alternative) (*verdict, error) {
	switch {
	case p.search.claims.err != nil:
		return &verdict{dropped: Dropped{Reason: p.search.claims.err.Error(), Err: true}}, nil
	case p.search.claims.impossible != "":
		return &verdict{dropped: Dropped{Reason: p.search.claims.impossible}}, nil
	case len(before) == 0:
		return &verdict{dropped: Dropped{Reason: goneReason}}, nil
	case len(before) == 1:
		return p.verdict(t, before[0])
	}
	all := &verdict{}
	for _, a := range before {
		v, err := p.verdict(t, a)
		if err != nil {
			return nil, err
		}
		all.placements = append(all.placements, v.placements...)
		all.taken = append(all.taken, v.taken...)
		all.failures = append(all.failures, v.failures...)
		all.unlike = all.unlike || v.unlike
	}
	all.dropped = merge(all.failures)
	return all, nil
}

// verdict finds the parts of an alternative's label space in which it will do, and why
// the others will not.
func (p *superposition) verdict(t *instanceType, before *alternative) (*verdict, error) {
	grid, fixed, err := p.space.Grid(t.labels, before.box)
	if err != nil {
		tooMany := new(cells.TooMany)
		d := Dropped{Reason: err.Error(), Unknown: errors.As(err, &tooMany)}
		return &verdict{failures: []failure{{Dropped: d}}, dropped: d}, nil
	}
	key := verdictKey{grid: grid, set: t.set, before: before.taken}
	if v, ok := p.verdicts[key]; ok && len(fixed) == 0 {
		return v, nil
	}
	v := &verdict{}
	p.groups = slices.Grow(p.groups[:0], len(grid.Regions))[:len(grid.Regions)]
	groups := p.groups
	var found []outcome
	var failed []*group
	for i := range grid.Regions {
		o, err := p.search.outcome(p.regionReach(&grid.Regions[i], t.set), before.taken)
		if err != nil {
			return nil, err
		}
		groups[i] = -1
		if !o.group.solution.Found {
			failed = append(failed, o.group)
			continue
		}
		groups[i] = slices.IndexFunc(found, func(other outcome) bool { return alike(o, other) })
		if groups[i] < 0 {
			groups[i] = len(found)
			found = append(found, o)
		}
		v.unlike = v.unlike || o.group.unlike
	}
	if len(failed) > 0 {
		v.failures = p.failures(grid, fixed, groups, failed)
		v.dropped = merge(v.failures)
	}
	for _, box := range grid.Boxes(groups, fixed) {
		v.placements = append(v.placements, Placement{Requirements: box.Requirements, Claims: found[box.Group].placed()})
		v.taken = append(v.taken, found[box.Group].taken)
	}
	if len(fixed) == 0 {
		p.verdicts[key] = v
	}
	return v, nil
}

// regionReach is what a new node in a region reaches; nothing has to be known of it if no
// claim needs devices.
func (p *superposition) regionReach(region *cells.Region, set *templateSet) *reach {
	if len(p.search.names) == 0 {
		return nil
	}
	return p.search.allocator.reach(reachKey{signature: region.Signature, set: set}, region.Node)
}

// alike says whether two outcomes of the same alternative are the same devices, so that it
// does not matter which of their labels the node gets.
func alike(a, b outcome) bool {
	return a.taken == b.taken || sameClaims(a.taken.claims, b.taken.claims)
}

// failures describes where an alternative will not do, one for each reason.
func (p *superposition) failures(grid *cells.Grid, fixed cells.Fixed, groups []int, failed []*group) []failure {
	var failures []failure
	reasons := make([]int, len(groups))
	next := 0
	for i, group := range groups {
		reasons[i] = -1
		if group >= 0 {
			continue
		}
		d := failed[next].dropped(p.search.allocator.options.Budget)
		next++
		reasons[i] = slices.IndexFunc(failures, func(f failure) bool { return f.Dropped == d })
		if reasons[i] < 0 {
			reasons[i] = len(failures)
			failures = append(failures, failure{Dropped: d})
		}
	}
	if len(failures) == 1 && len(failed) == len(groups) {
		return failures
	}
	for _, box := range grid.Boxes(reasons, fixed) {
		f := &failures[box.Group]
		if f.where != "" {
			f.where += " or "
		}
		f.where += cells.Format(box.Requirements)
	}
	return failures
}

// maxReasons is how many different reasons are told for one instance type.
const maxReasons = 3

// merge makes one answer of all reasons for which an instance type will not do.
func merge(failures []failure) Dropped {
	var d Dropped
	var words []string
	for _, f := range failures {
		d.Unknown = d.Unknown || f.Unknown
		d.Err = d.Err || f.Err
		word := f.Reason
		if f.where != "" {
			word = "with " + f.where + ": " + word
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	if len(words) > maxReasons {
		words = append(words[:maxReasons], fmt.Sprintf("and %d more reasons for other labels", len(words)-maxReasons))
	}
	d.Reason = strings.Join(words, "; ")
	return d
}

func (p *superposition) sortByPrice() {
	prices := make(map[string]float64, len(p.search.on.InstanceTypes))
	for _, t := range p.search.on.InstanceTypes {
		prices[t.Name] = t.Price
	}
	slices.SortStableFunc(p.result.Survivors, func(a, b Survivor) int {
		return cmp.Or(comparePrices(prices[a.InstanceType], prices[b.InstanceType]), strings.Compare(a.InstanceType, b.InstanceType))
	})
}

// comparePrices puts unknown prices last.
func comparePrices(a, b float64) int {
	if a == 0 || b == 0 {
		a, b = b, a
	}
	return cmp.Compare(a, b)
}
