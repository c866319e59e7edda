package cells

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

type pointKind int

const (
	// value is a label with one certain value.
	value pointKind = iota
	// absent is a node without the label.
	absent
	// other is any value that no selector mentions and that is no integer between the
	// thresholds of Gt and Lt; text is an example.
	other
	// between is any integer between low and high, both exclusive, that no selector
	// mentions; text is an example. There is no bound if high is the largest integer.
	between
)

// point is something that a label may be: a value, or values that no selector can tell
// apart.
type point struct {
	kind      pointKind
	text      string
	low, high int64
}

// domain is what one label of nodes with given labels may be.
type domain struct {
	id int
	// open says that the instance type does not tell the label.
	open bool
	key  string
	// points are what the target allows.
	points []point
	// classes are the points that the narrowing selectors allow as well, as indexes;
	// those of one class are the same for all splitting selectors.
	classes [][]int
	// tells has for each class what the splitting requirements say.
	tells [][]bool
	// reason says why there are no classes.
	reason string
}

// newDomain makes the domain of an axis; values is nil for a label that the instance type
// does not tell. The box is one more narrowing selector, or nil.
func (s *Space) newDomain(a *axis, values *Values, box *Selector) *domain {
	d := &domain{id: s.domains, open: values == nil, key: a.key}
	s.domains++
	points := a.openPoints()
	if values != nil {
		points = points[:0:0]
		for _, text := range values.texts {
			points = append(points, point{kind: value, text: text})
		}
		if len(points) == 0 {
			points = append(points, point{kind: absent})
		}
	}
	d.points = slices.DeleteFunc(slices.Clone(points), func(p point) bool { return !a.target.allow(p) })
	if len(d.points) == 0 {
		d.reason = fmt.Sprintf("label %s: %s is not what the selectors ask for (%s)", a.key, texts(points), a.target.format(a.key))
		return d
	}
	kept := d.kept(a, box)
	index := make(map[string]int)
	for _, i := range kept {
		tells := make([]bool, len(a.tells))
		word := make([]byte, len(a.tells))
		for j, r := range a.tells {
			if tells[j] = r.allows(d.points[i]); tells[j] {
				word[j] = 1
			}
		}
		class, ok := index[string(word)]
		if !ok {
			class = len(d.classes)
			index[string(word)] = class
			d.classes = append(d.classes, nil)
			d.tells = append(d.tells, tells)
		}
		d.classes[class] = append(d.classes[class], i)
	}
	return d
}

// kept are the indexes of the points that all narrowing selectors allow; the first that
// leaves none is the reason.
func (d *domain) kept(a *axis, box *Selector) []int {
	kept := make([]int, len(d.points))
	for i := range kept {
		kept[i] = i
	}
	narrow := a.narrow
	if box != nil && len(box.terms) == 1 {
		for _, r := range box.terms[0] {
			if r.key == a.key {
				narrow = append(slices.Clip(narrow), narrowing{requirement: r, source: boxSource})
			}
		}
	}
	for _, n := range narrow {
		kept = slices.DeleteFunc(kept, func(i int) bool { return !n.requirement.allows(d.points[i]) })
		if len(kept) == 0 {
			d.reason = fmt.Sprintf("%s cannot be used on nodes with label %s: %s", n.source, a.key, texts(d.points))
			return nil
		}
	}
	return kept
}

// texts lists points for a person.
func texts(points []point) string {
	words := make([]string, 0, len(points))
	for _, p := range points {
		switch p.kind {
		case value:
			words = append(words, p.text)
		case absent:
			words = append(words, "(absent)")
		case other:
			words = append(words, "(any other)")
		case between:
			words = append(words, fmt.Sprintf("(%d to %d)", p.low+1, p.high-1))
		}
		if len(words) == 5 && len(points) > 6 {
			return fmt.Sprintf("%s and %d more", strings.Join(words, ", "), len(points)-5)
		}
	}
	return strings.Join(words, ", ")
}

// openPoints are what a label may be of which nothing is known but what selectors
// mention: each such value, the integers between thresholds, anything else, or nothing.
func (a *axis) openPoints() []point {
	if a.open != nil {
		return a.open
	}
	slices.Sort(a.mentioned)
	a.mentioned = slices.Compact(a.mentioned)
	for _, text := range a.mentioned {
		a.open = append(a.open, point{kind: value, text: text})
	}
	slices.Sort(a.thresholds)
	a.thresholds = slices.Compact(a.thresholds)
	low := int64(-1) // a label's value has no sign
	for _, high := range a.thresholds {
		a.addBetween(low, high)
		if high < math.MaxInt64 {
			a.addBetween(high-1, high+1)
		}
		low = high
	}
	if len(a.thresholds) > 0 {
		a.addBetween(low, math.MaxInt64)
	}
	example := "other"
	if a.key == corev1.LabelHostname {
		example = NewNodeName
	}
	for slices.Contains(a.mentioned, example) {
		example += "-other"
	}
	a.open = append(a.open, point{kind: other, text: example})
	if a.key != corev1.LabelHostname {
		a.open = append(a.open, point{kind: absent})
	}
	return a.open
}

// addBetween adds the integers between two others if there are any. The example is
// written with leading zeros if a selector mentions it as it is.
func (a *axis) addBetween(low, high int64) {
	if high-low < 2 {
		return
	}
	example := strconv.FormatInt(low+1, 10)
	for slices.Contains(a.mentioned, example) {
		example = "0" + example
	}
	a.open = append(a.open, point{kind: between, text: example, low: low, high: high})
}

// describe turns points into requirements: want and nothing of avoid, for what is in
// neither it does not matter. Each piece is a conjunction; a node has to match one.
func (d *domain) describe(want, avoid []int) [][]corev1.NodeSelectorRequirement {
	if len(avoid) == 0 {
		return [][]corev1.NodeSelectorRequirement{nil}
	}
	wanted, avoided := d.sort(want), d.sort(avoid)
	if len(wanted.values) == len(want) {
		return [][]corev1.NodeSelectorRequirement{{d.require(corev1.NodeSelectorOpIn, wanted.values)}}
	}
	if d.open && wanted.other != "" && avoided.other == "" && len(avoided.ranges) == 0 {
		var piece []corev1.NodeSelectorRequirement
		if len(avoided.values) > 0 {
			piece = append(piece, d.require(corev1.NodeSelectorOpNotIn, avoided.values))
		}
		if avoided.absent {
			piece = append(piece, d.require(corev1.NodeSelectorOpExists, nil))
		}
		return [][]corev1.NodeSelectorRequirement{piece}
	}
	return d.pieces(wanted)
}

// pieces describes points one kind at a time. An example has to stand for other values:
// no selector can ask for what is not an integer.
func (d *domain) pieces(wanted sorted) [][]corev1.NodeSelectorRequirement {
	var pieces [][]corev1.NodeSelectorRequirement
	values := wanted.values
	if wanted.other != "" {
		values = append(values, wanted.other)
	}
	if len(values) > 0 {
		pieces = append(pieces, []corev1.NodeSelectorRequirement{d.require(corev1.NodeSelectorOpIn, values)})
	}
	for _, p := range wanted.ranges {
		pieces = append(pieces, d.rangePiece(p))
	}
	if wanted.absent {
		pieces = append(pieces, []corev1.NodeSelectorRequirement{d.require(corev1.NodeSelectorOpDoesNotExist, nil)})
	}
	return pieces
}

// rangePiece asks for the integers of a range that no selector mentions.
func (d *domain) rangePiece(p point) []corev1.NodeSelectorRequirement {
	var piece []corev1.NodeSelectorRequirement
	if p.low >= 0 {
		piece = append(piece, d.require(corev1.NodeSelectorOpGt, []string{strconv.FormatInt(p.low, 10)}))
	}
	if p.high < math.MaxInt64 {
		piece = append(piece, d.require(corev1.NodeSelectorOpLt, []string{strconv.FormatInt(p.high, 10)}))
	}
	var mentioned []string
	for _, q := range d.points {
		if n, err := strconv.ParseInt(q.text, 10, 64); q.kind == value && err == nil && n > p.low && n < p.high {
			mentioned = append(mentioned, q.text)
		}
	}
	if len(mentioned) > 0 {
		piece = append(piece, d.require(corev1.NodeSelectorOpNotIn, mentioned))
	}
	return piece
}

// sorted are points by kind.
type sorted struct {
	values []string
	ranges []point
	other  string
	absent bool
}

func (d *domain) sort(indexes []int) sorted {
	var s sorted
	slices.Sort(indexes)
	for _, i := range indexes {
		switch p := d.points[i]; p.kind {
		case value:
			s.values = append(s.values, p.text)
		case between:
			s.ranges = append(s.ranges, p)
		case other:
			s.other = p.text
		case absent:
			s.absent = true
		}
	}
	return s
}

func (d *domain) require(operator corev1.NodeSelectorOperator, values []string) corev1.NodeSelectorRequirement {
	values = slices.Clone(values)
	slices.Sort(values)
	return corev1.NodeSelectorRequirement{Key: d.key, Operator: operator, Values: values}
}
