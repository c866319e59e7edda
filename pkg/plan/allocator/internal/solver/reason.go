package solver

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// reason says in words what is the first thing that the pools cannot give. If each
// request by itself can be met, it names the one at which the search got stuck.
func (s *search) reason() string {
	s.restart()
	for i := range s.pools {
		s.load(int32(i))
	}
	for _, r := range s.claims.requests {
		if reason := s.unmet(r); reason != "" {
			return reason
		}
	}
	r := s.claims.requests[s.deepest]
	a := r.alternatives[len(r.alternatives)-1]
	what := fmt.Sprintf("request %s of claim %s", r.name, s.claims.claims[r.claim].short)
	if !r.prioritized {
		what = s.claims.describe(a)
	}
	together := "each request can be met by itself, but not all together"
	if len(s.claims.requests) == 1 {
		together = "there are enough, but not together"
	}
	if constraints := s.constraintNames(r); constraints != "" {
		together += " (" + constraints + ")"
	}
	if r.prioritized {
		return fmt.Sprintf("%s: no alternative fits; %s", what, together)
	}
	return fmt.Sprintf("%s: %d of %d devices; %s", what, s.deepestHas, s.count(a), together)
}

// constraintNames names the constraints that apply to a request.
func (s *search) constraintNames(r *request) string {
	var names []string
	for _, a := range r.alternatives {
		for _, c := range a.constraints {
			if name := s.claims.constraints[c].String(); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, ", ")
}

func (c constraint) String() string {
	if c.distinct {
		return "distinctAttribute " + string(c.name)
	}
	return "matchAttribute " + string(c.name)
}

// unmet says why a request cannot be met even if it is the only one, empty if it can.
func (s *search) unmet(r *request) string {
	reasons := make([]string, 0, len(r.alternatives))
	for _, a := range r.alternatives {
		reason := s.unmetAlternative(a)
		if reason == "" {
			return ""
		}
		reasons = append(reasons, reason)
	}
	if !r.prioritized {
		return reasons[0]
	}
	return fmt.Sprintf("request %s of claim %s: no alternative fits: %s",
		r.name, s.claims.claims[r.claim].short, strings.Join(reasons, " | "))
}

// rejections counts devices by what keeps them from a request.
type rejections struct {
	bySelector []int
	// unreached devices are not for this node, unfit ones are too small.
	unreached, unfit           int
	taints                     []taintCount
	inUse, capacity, overdrawn int
	missing                    []int // by constraint of the alternative
}

type taintCount struct {
	taint resourceapi.DeviceTaint
	count int
}

// unmetAlternative says why an alternative cannot be met even by itself.
func (s *search) unmetAlternative(a *alternative) string {
	rejected := rejections{bySelector: make([]int, len(a.filter.selectors)), missing: make([]int, len(a.constraints))}
	var open []*candidate
	for i, p := range s.pools {
		m := p.match(a.filter)
		for d := range p.devices {
			c := s.candidate(m, ref{int32(i), int32(d)})
			if s.reject(a, &c, &rejected) {
				open = append(open, new(c))
			}
		}
	}
	wanted := s.count(a)
	if a.all && wanted == 0 {
		return s.explain(a, "no device", &rejected, "")
	}
	limit := ""
	possible := len(open)
	if possible >= wanted {
		possible, limit = s.atMost(a, open)
	}
	if possible >= wanted {
		return ""
	}
	if a.all {
		return s.explain(a, fmt.Sprintf("%d of all %d devices", possible, wanted), &rejected, limit)
	}
	return s.explain(a, fmt.Sprintf("%d of %d devices", possible, wanted), &rejected, limit)
}

// reject counts what keeps a candidate from an alternative, or says that nothing does.
func (s *search) reject(a *alternative, c *candidate, to *rejections) (open bool) {
	d := s.device(c.ref)
	switch c.outcome {
	case unselected:
		to.bySelector[c.rejectedBy]++
		return false
	case unreached:
		to.unreached++
		return false
	case unfit:
		to.unfit++
		return false
	case tainted:
		_, taint := a.filter.tolerates(d.Taints)
		to.addTaint(*taint)
		return false
	}
	switch {
	case !s.free(a, c.number):
		to.inUse++
		return false
	case !s.fits(c.ref, c.consumed):
		to.capacity++
		return false
	case d.consumes && !s.paid(d, c.number) && !s.affords(c.ref, d):
		to.overdrawn++
		return false
	}
	for i, constraint := range a.constraints {
		if !s.allows(constraint, c.ref) {
			to.missing[i]++
			return false
		}
	}
	return true
}

func (r *rejections) addTaint(taint resourceapi.DeviceTaint) {
	for i := range r.taints {
		known := &r.taints[i]
		if known.taint.Key == taint.Key && known.taint.Value == taint.Value && known.taint.Effect == taint.Effect {
			known.count++
			return
		}
	}
	r.taints = append(r.taints, taintCount{taint: taint, count: 1})
}

// atMost is how many of the open devices can be taken at once, and what limits them.
func (s *search) atMost(a *alternative, open []*candidate) (int, string) {
	most, limit := len(open), ""
	if given := s.countersAllow(open); given < most {
		most, limit = given, fmt.Sprintf("counters suffice for %d", given)
	}
	for _, index := range a.constraints {
		constraint := s.claims.constraints[index]
		byValue := make(map[int32]int)
		for _, c := range open {
			byValue[s.valuesOf(c.pool, constraint.attribute)[c.device]]++
		}
		given := len(byValue)
		text := fmt.Sprintf("%s: there are %d values", constraint, given)
		if !constraint.distinct {
			given = 0
			for _, n := range byValue {
				given = max(given, n)
			}
			text = fmt.Sprintf("%s: at most %d have the same value", constraint, given)
		}
		if given < most {
			most, limit = given, text
		}
	}
	return most, limit
}

// countersAllow bounds how many of some devices can be taken at once, by counters.
func (s *search) countersAllow(open []*candidate) int {
	if !slices.ContainsFunc(open, func(c *candidate) bool { return len(s.device(c.ref).charges) > 0 }) {
		return len(open)
	}
	if !s.plan.finished {
		s.finishPlan()
	}
	entries := make(map[int32][]entry)
	for _, c := range open {
		component := s.plan.symmetry.component[c.number]
		entries[component] = append(entries[component], entry{candidate: c})
	}
	total := 0
	for _, of := range entries {
		total += min(s.gives(of, len(of)), len(of))
	}
	return total
}

// explain writes a reason, the causes in a fixed order.
func (s *search) explain(a *alternative, what string, rejected *rejections, limit string) string {
	text := s.claims.describe(a) + ": " + what
	add := func(n int, format string, args ...any) {
		if n > 0 {
			text += "; " + fmt.Sprintf(format, args...) + fmt.Sprintf(" %d", n)
		}
	}
	ofClass := 0
	for i, n := range rejected.bySelector {
		if i < a.filter.ofClass {
			ofClass += n
		}
	}
	add(ofClass, "device class %s rejects", a.class)
	for i, n := range rejected.bySelector {
		if i >= a.filter.ofClass {
			add(n, "selector %q rejects", abbreviated(a.filter.selectors[i].text))
		}
	}
	add(rejected.unreached, "not for this node:")
	add(rejected.unfit, "capacity too small:")
	for _, t := range rejected.taints {
		add(t.count, "taint %s=%s:%s:", t.taint.Key, t.taint.Value, t.taint.Effect)
	}
	add(rejected.inUse, "in use:")
	add(rejected.capacity, "capacity used up:")
	add(rejected.overdrawn, "counters used up:")
	for i, n := range rejected.missing {
		add(n, "without a value for %s:", s.claims.constraints[a.constraints[i]])
	}
	if limit != "" {
		text += "; " + limit
	}
	for _, p := range s.pools {
		if p.incomplete {
			text += fmt.Sprintf("; pool %s is incomplete", p.id)
		}
	}
	if len(s.pools) == 0 {
		text += "; there are no devices"
	}
	return text
}

// abbreviated cuts a long expression.
func abbreviated(expression string) string {
	const most = 100
	expression = strings.Join(strings.Fields(expression), " ")
	if len(expression) <= most {
		return expression
	}
	return expression[:most] + "..."
}
