package cells

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fixed are requirements that hold for all regions of an instance type, label by label:
// of each, one of the conjunctions.
type Fixed [][][]corev1.NodeSelectorRequirement

// Region is a part of the label space in which all splitting selectors say the same.
type Region struct {
	// Signature has a byte for each splitting selector that can match at all: 1 if it
	// does. It is equal for regions of any grid of spaces with the same selectors.
	Signature string
	// Node has labels of the region, as far as they make a difference, and a name that
	// no node can have.
	Node *corev1.Node
}

// Grid is what nodes with certain labels may be: all combinations of classes of labels
// that make a difference.
type Grid struct {
	domains []*domain
	// cells has the region of each combination, the first label changing slowest.
	cells   []int
	Regions []Region
	err     error
	boxes   map[string][]Box
}

const (
	// outside are cells that the target's own selectors exclude.
	outside = -1
	// excluded are cells that will not do.
	excluded = -2
)

// Box is a part of the label space that requirements describe.
type Box struct {
	// Group is the group of regions to which the box belongs.
	Group int
	// Requirements are beyond what the target's selectors ask for, sorted by label.
	Requirements []corev1.NodeSelectorRequirement
}

func (s *Space) newGrid(domains []*domain) *Grid {
	g := &Grid{domains: domains, boxes: make(map[string][]Box)}
	size := 1
	for _, d := range domains {
		size *= len(d.classes)
		if size > MaxCells {
			tooMany := &TooMany{}
			for _, d := range domains {
				tooMany.Labels = append(tooMany.Labels, d.key)
			}
			return &Grid{err: tooMany}
		}
	}
	asks := s.asks(domains)
	signatures := make(map[string]int)
	at := make([]int, len(domains))
	var reason string
	for range size {
		state, why := s.cell(g, asks, signatures, at)
		if why != "" && reason == "" {
			reason = why
		}
		g.cells = append(g.cells, state)
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < len(domains[i].classes) {
				break
			}
			at[i] = 0
		}
	}
	if len(g.Regions) == 0 {
		if reason == "" {
			reason = "no combination of its labels is what the selectors ask for"
		}
		g.err = &Impossible{Reason: reason}
	}
	return g
}

// ask is one requirement of a term: what the class at an axis must tell.
type ask struct {
	domain, tell int
}

// asks says for each term of selectors that split where the answers are.
func (s *Space) asks(domains []*domain) map[*Selector][][]ask {
	where := make(map[*requirement]ask)
	i := 0
	for _, a := range s.axes {
		if !a.splits {
			continue
		}
		for j, r := range a.tells {
			where[r] = ask{domain: i, tell: j}
		}
		i++
	}
	all := make(map[*Selector][][]ask)
	add := func(selector *Selector) {
		if _, ok := all[selector]; ok {
			return
		}
		terms := make([][]ask, len(selector.terms))
		for i, t := range selector.terms {
			for _, r := range t {
				terms[i] = append(terms[i], where[r])
			}
		}
		all[selector] = terms
	}
	for _, selector := range slices.Concat(s.split, s.target) {
		add(selector)
	}
	for _, n := range s.narrow {
		add(n.Selector)
	}
	return all
}

// cell finds the region of one combination, which it adds if it is new, and otherwise
// why there is none.
func (s *Space) cell(g *Grid, asks map[*Selector][][]ask, signatures map[string]int, at []int) (int, string) {
	holds := func(selector *Selector) bool {
		return slices.ContainsFunc(asks[selector], func(t []ask) bool {
			return !slices.ContainsFunc(t, func(a ask) bool { return !g.domains[a.domain].tells[at[a.domain]][a.tell] })
		})
	}
	for _, selector := range s.target {
		if !holds(selector) {
			return outside, ""
		}
	}
	for _, n := range s.narrow {
		if !holds(n.Selector) {
			return excluded, n.Source + " cannot be used with any combination of its labels"
		}
	}
	signature := make([]byte, len(s.split))
	for i, selector := range s.split {
		if holds(selector) {
			signature[i] = 1
		}
	}
	region, ok := signatures[string(signature)]
	if !ok {
		region = len(g.Regions)
		signatures[string(signature)] = region
		g.Regions = append(g.Regions, Region{Signature: string(signature), Node: g.node(at)})
	}
	return region, ""
}

// node is one that has the first labels of each class.
func (g *Grid) node(at []int) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NewNodeName}}
	for i, d := range g.domains {
		if p := d.points[d.classes[at[i]][0]]; p.kind != absent {
			if node.Labels == nil {
				node.Labels = make(map[string]string)
			}
			node.Labels[d.key] = p.text
		}
	}
	return node
}

// Boxes describes groups of regions: groups has the group of each region, negative for
// those that are left out. The boxes are disjoint, cover exactly the groups, and come in
// the order of groups.
func (g *Grid) Boxes(groups []int, fixed Fixed) []Box {
	var buffer [32]byte
	pattern := buffer[:0]
	for _, group := range groups {
		pattern = append(pattern, byte(group), byte(group>>8))
	}
	boxes, ok := g.boxes[string(pattern)]
	if !ok {
		boxes = g.newBoxes(groups)
		g.boxes[string(pattern)] = boxes
	}
	if len(fixed) == 0 {
		return boxes
	}
	var all []Box
	for _, box := range boxes {
		for _, requirements := range product([][]corev1.NodeSelectorRequirement{box.Requirements}, fixed) {
			all = append(all, Box{Group: box.Group, Requirements: requirements})
		}
	}
	return all
}

func (g *Grid) newBoxes(groups []int) []Box {
	var boxes []Box
	for group := range slices.Max(groups) + 1 {
		marks := make([]mark, len(g.cells))
		for i, region := range g.cells {
			switch {
			case region == outside:
				marks[i] = free
			case region != excluded && groups[region] == group:
				marks[i] = want
			default:
				marks[i] = avoid
			}
		}
		for _, cover := range g.cover(marks, g.domains) {
			boxes = append(boxes, g.describe(group, cover)...)
		}
	}
	return boxes
}

// mark says whether a cell has to be covered, must not be, or does not matter.
type mark byte

const (
	free mark = iota
	want
	avoid
)

// side is how far a box extends in one label: its classes, and those that do not matter.
type side struct {
	classes, free []int
}

// cover finds boxes that cover all cells wanted and none to avoid. Classes of the first
// label behind which the same has to be covered are taken together.
func (g *Grid) cover(marks []mark, domains []*domain) [][]side {
	if len(domains) == 0 {
		if marks[0] == want {
			return [][]side{nil}
		}
		return nil
	}
	type row struct {
		classes []int
		marks   []mark
	}
	var (
		rows       []*row
		unmattered []int
	)
	stride := len(marks) / len(domains[0].classes)
	for class := range domains[0].classes {
		part := marks[class*stride : (class+1)*stride]
		if !slices.Contains(part, want) {
			if !slices.Contains(part, avoid) {
				unmattered = append(unmattered, class)
			}
			continue
		}
		i := slices.IndexFunc(rows, func(r *row) bool { return compatible(r.marks, part) })
		if i < 0 {
			rows = append(rows, &row{classes: []int{class}, marks: slices.Clone(part)})
			continue
		}
		rows[i].classes = append(rows[i].classes, class)
		for j, m := range part {
			if m != free {
				rows[i].marks[j] = m
			}
		}
	}
	var boxes [][]side
	for _, r := range rows {
		for _, rest := range g.cover(r.marks, domains[1:]) {
			boxes = append(boxes, append([]side{{classes: r.classes, free: unmattered}}, rest...))
		}
	}
	return boxes
}

func compatible(a, b []mark) bool {
	for i := range a {
		if a[i] != b[i] && a[i] != free && b[i] != free {
			return false
		}
	}
	return true
}

// describe turns the sides of a box into requirements, in pieces where one conjunction
// cannot tell them.
func (g *Grid) describe(group int, sides []side) []Box {
	labels := make(Fixed, len(sides))
	for i, s := range sides {
		d := g.domains[i]
		var wanted, unmattered []int
		for _, class := range s.classes {
			wanted = append(wanted, d.classes[class]...)
		}
		for _, class := range s.free {
			unmattered = append(unmattered, d.classes[class]...)
		}
		slices.Sort(wanted)
		known := slices.Sorted(slices.Values(slices.Concat(wanted, unmattered)))
		labels[i] = d.describe(wanted, missing(known, len(d.points)))
	}
	var boxes []Box
	for _, requirements := range product([][]corev1.NodeSelectorRequirement{nil}, labels) {
		boxes = append(boxes, Box{Group: group, Requirements: requirements})
	}
	return boxes
}

// product combines every conjunction with one of each label.
func product(conjunctions [][]corev1.NodeSelectorRequirement, labels Fixed) [][]corev1.NodeSelectorRequirement {
	for _, pieces := range labels {
		var next [][]corev1.NodeSelectorRequirement
		for _, conjunction := range conjunctions {
			for _, piece := range pieces {
				next = append(next, slices.Concat(conjunction, piece))
			}
		}
		conjunctions = next
	}
	for _, conjunction := range conjunctions {
		slices.SortStableFunc(conjunction, func(a, b corev1.NodeSelectorRequirement) int { return strings.Compare(a.Key, b.Key) })
	}
	return conjunctions
}
