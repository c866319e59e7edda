package cells

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// MaxCells is how many combinations of labels are looked at for one instance type.
const MaxCells = 1024

// boxSource names the box of an alternative as the reason for having no cells.
const boxSource = "what was placed there before"

// Narrowing is a selector that restricts which labels will do, and why.
type Narrowing struct {
	Selector *Selector
	// Source is the reason in words: "claim default/a is allocated elsewhere".
	Source string
}

// Space is what the nodes of one target may be. It is for one goroutine.
type Space struct {
	// split are selectors that say what a node reaches, target those that the target
	// must match anyway, narrow those that restrict it further. Of the latter two only
	// those are left that are no simple conjunctions; the others are in the axes.
	split  []*Selector
	target []*Selector
	narrow []Narrowing
	// impossible says why no node will do, whatever its labels.
	impossible string

	axes    []*axis
	domains int
	grids   map[string]*Grid
}

// axis is one label.
type axis struct {
	key string
	// splits says that the label makes a difference in combination with others.
	splits bool
	target conjunction
	narrow []narrowing
	// tells are what selectors that split ask of the label.
	tells []*requirement

	mentioned  []string
	thresholds []int64
	open       []point
	domains    map[domainKey]*domain
}

type domainKey struct {
	values *Values
	box    *Selector
}

type conjunction []*requirement

func (c conjunction) allow(p point) bool {
	for _, r := range c {
		if !r.allows(p) {
			return false
		}
	}
	return true
}

// format lists the requirements for a person.
func (c conjunction) format(key string) string {
	words := make([]string, len(c))
	for i, r := range c {
		words[i] = strings.TrimPrefix(r.String(), key+" ")
	}
	return strings.Join(words, " and ")
}

type narrowing struct {
	requirement *requirement
	source      string
}

// NewSpace makes the space for a target: split are selectors of what a node may reach,
// target what its labels must match, narrow what restricts them further, boxes all those
// that Grid will be called with.
func NewSpace(split, target []*Selector, narrow []Narrowing, boxes []*Selector) *Space {
	s := &Space{grids: make(map[string]*Grid)}
	index := make(map[string]*axis)
	for _, selector := range split {
		if len(selector.terms) > 0 {
			s.split = append(s.split, selector)
			s.addSplit(index, selector, false)
		}
	}
	for _, selector := range target {
		switch len(selector.terms) {
		case 0:
			s.setImpossible("no new node matches the selectors (" + selector.String() + ")")
		case 1:
			for _, r := range selector.terms[0] {
				a := s.axis(index, r, true)
				a.target = append(a.target, r)
			}
		default:
			s.target = append(s.target, selector)
			s.addSplit(index, selector, true)
		}
	}
	for _, n := range narrow {
		switch len(n.Selector.terms) {
		case 0:
			s.setImpossible(n.Source + " cannot be used on a new node")
		case 1:
			for _, r := range n.Selector.terms[0] {
				a := s.axis(index, r, false)
				a.narrow = append(a.narrow, narrowing{requirement: r, source: n.Source})
			}
		default:
			s.narrow = append(s.narrow, n)
			s.addSplit(index, n.Selector, false)
		}
	}
	for _, box := range boxes {
		for _, t := range box.terms {
			for _, r := range t {
				s.axis(index, r, false)
			}
		}
	}
	slices.SortFunc(s.axes, func(a, b *axis) int { return strings.Compare(a.key, b.key) })
	return s
}

func (s *Space) setImpossible(reason string) {
	if s.impossible == "" {
		s.impossible = reason
	}
}

// addSplit makes the labels of a selector ones that make a difference.
func (s *Space) addSplit(index map[string]*axis, selector *Selector, target bool) {
	for _, t := range selector.terms {
		for _, r := range t {
			a := s.axis(index, r, target)
			a.splits = true
			if !slices.Contains(a.tells, r) {
				a.tells = append(a.tells, r)
			}
		}
	}
}

// axis is the one of a requirement's label, which notes what the requirement mentions.
// Names of hosts are not given twice: a new node has none that is mentioned, unless the
// target itself asks for it.
func (s *Space) axis(index map[string]*axis, r *requirement, target bool) *axis {
	a, ok := index[r.key]
	if !ok {
		a = &axis{key: r.key, domains: make(map[domainKey]*domain)}
		index[r.key] = a
		s.axes = append(s.axes, a)
	}
	switch {
	case r.threshold:
		for _, text := range r.values {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				a.thresholds = append(a.thresholds, n)
			}
		}
	case target || r.key != corev1.LabelHostname:
		a.mentioned = append(a.mentioned, r.values...)
	}
	return a
}

// Grid is how nodes with the given labels fall into regions. A box restricts the labels
// further; it may be nil. Without regions there is a reason why.
func (s *Space) Grid(labels *Labels, box *Selector) (*Grid, Fixed, error) {
	if s.impossible != "" {
		return nil, nil, &Impossible{Reason: s.impossible}
	}
	if box != nil && len(box.terms) == 0 {
		return nil, nil, &Impossible{Reason: boxSource + " cannot be used on a new node"}
	}
	var (
		domains []*domain
		fixed   Fixed
		buffer  [64]byte
	)
	key := buffer[:0]
	for _, a := range s.axes {
		d := s.domain(a, labels, box)
		if len(d.classes) == 0 {
			return nil, nil, &Impossible{Reason: d.reason}
		}
		if a.splits {
			domains = append(domains, d)
			key = binary.AppendUvarint(key, uint64(d.id))
			continue
		}
		if len(d.classes[0]) < len(d.points) {
			fixed = append(fixed, d.describe(d.classes[0], missing(d.classes[0], len(d.points))))
		}
	}
	grid, ok := s.grids[string(key)]
	if !ok {
		grid = s.newGrid(domains)
		s.grids[string(key)] = grid
	}
	if grid.err != nil {
		return nil, nil, grid.err
	}
	return grid, fixed, nil
}

func (s *Space) domain(a *axis, labels *Labels, box *Selector) *domain {
	key := domainKey{values: labels.values[a.key], box: box}
	if !a.splits && len(a.narrow) == 0 && box == nil && key.values.someAllowed(a.target) {
		return unrestricted
	}
	d, ok := a.domains[key]
	if !ok {
		d = s.newDomain(a, key.values, box)
		a.domains[key] = d
	}
	return d
}

// unrestricted is a domain of a label that makes no difference and of which nothing has to
// be required.
var unrestricted = &domain{points: make([]point, 1), classes: [][]int{{0}}}

// someAllowed says whether one of several known values is allowed. It is here for
// instance types that differ in many labels.
func (v *Values) someAllowed(by conjunction) bool {
	return v != nil && slices.ContainsFunc(v.texts, func(text string) bool { return by.allow(point{kind: value, text: text}) })
}

// missing are the indexes below n that are not among those given, which are sorted.
func missing(from []int, n int) []int {
	var rest []int
	for i := range n {
		if _, ok := slices.BinarySearch(from, i); !ok {
			rest = append(rest, i)
		}
	}
	return rest
}

// Impossible is the error for labels that no node of the target can have.
type Impossible struct {
	Reason string
}

// Error is the reason.
func (e *Impossible) Error() string {
	return e.Reason
}

// TooMany is the error for more than MaxCells combinations of labels.
type TooMany struct {
	Labels []string
}

// Error names the labels.
func (e *TooMany) Error() string {
	return fmt.Sprintf("the labels %s may be combined in more than %d ways", strings.Join(e.Labels, ", "), MaxCells)
}
