package cells

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

const zone = corev1.LabelTopologyZone

func expression(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return expression(key, corev1.NodeSelectorOpIn, values...)
}

func notIn(key string, values ...string) corev1.NodeSelectorRequirement {
	return expression(key, corev1.NodeSelectorOpNotIn, values...)
}

func exists(key string) corev1.NodeSelectorRequirement {
	return expression(key, corev1.NodeSelectorOpExists)
}

func doesNotExist(key string) corev1.NodeSelectorRequirement {
	return expression(key, corev1.NodeSelectorOpDoesNotExist)
}

func gt(key, value string) corev1.NodeSelectorRequirement {
	return expression(key, corev1.NodeSelectorOpGt, value)
}

func lt(key, value string) corev1.NodeSelectorRequirement {
	return expression(key, corev1.NodeSelectorOpLt, value)
}

func all(expressions ...corev1.NodeSelectorRequirement) *corev1.NodeSelector {
	return anyOf(expressions)
}

func anyOf(terms ...[]corev1.NodeSelectorRequirement) *corev1.NodeSelector {
	s := &corev1.NodeSelector{}
	for _, t := range terms {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: t})
	}
	return s
}

func onNode(operator corev1.NodeSelectorOperator, name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{expression(metav1.ObjectNameField, operator, name)},
	}}}
}

type question struct {
	split, target, narrow []*corev1.NodeSelector
	labels                map[string][]string
	box                   *corev1.NodeSelector
}

func (q question) grid(t testing.TB) (*Grid, Fixed, error) {
	t.Helper()
	n := NewInterner()
	parse := func(specs []*corev1.NodeSelector) []*Selector {
		var selectors []*Selector
		for _, spec := range specs {
			s, err := n.Selector(spec)
			if err != nil {
				t.Fatal(err)
			}
			selectors = append(selectors, s)
		}
		return selectors
	}
	var narrow []Narrowing
	for _, s := range parse(q.narrow) {
		narrow = append(narrow, Narrowing{Selector: s, Source: "claim a"})
	}
	var box *Selector
	var boxes []*Selector
	if q.box != nil {
		boxes = parse([]*corev1.NodeSelector{q.box})
		box = boxes[0]
	}
	return NewSpace(parse(q.split), parse(q.target), narrow, boxes).Grid(n.Labels(q.labels), box)
}

// each region is a group of its own.
func identity(n int) []int {
	groups := make([]int, n)
	for i := range groups {
		groups[i] = i
	}
	return groups
}

// words writes "labels of the region's node | signature: requirements or requirements".
func words(g *Grid, fixed Fixed, groups []int) []string {
	lines := make([]string, len(g.Regions))
	for i, r := range g.Regions {
		signature := strings.NewReplacer("\x00", "0", "\x01", "1").Replace(r.Signature)
		lines[i] = fmt.Sprintf("%s %s:", labelText(r.Node.Labels), signature)
	}
	for _, box := range g.Boxes(groups, fixed) {
		for i, group := range groups {
			if group == box.Group {
				lines[i] += " {" + Format(box.Requirements) + "}"
			}
		}
	}
	return lines
}

func labelText(labels map[string]string) string {
	var pairs []string
	for key, value := range labels {
		pairs = append(pairs, strings.TrimPrefix(key, "topology.kubernetes.io/")+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// regionsTest is a question and its regions, each with the boxes that describe it. Without
// groups each region is a group of its own.
type regionsTest struct {
	question
	groups []int
	want   []string
}

func checkRegions(t *testing.T, tests map[string]regionsTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, fixed, err := test.grid(t)
			if err != nil {
				t.Fatal(err)
			}
			groups := test.groups
			if groups == nil {
				groups = identity(len(g.Regions))
			}
			if got := words(g, fixed, groups); !slices.Equal(got, test.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(test.want, "\n\t"))
			}
		})
	}
}

func TestRegions(t *testing.T) {
	zones := map[string][]string{zone: {"b", "a", "c"}}
	checkRegions(t, map[string]regionsTest{
		"no selectors": {question: question{labels: zones}, want: []string{" : {}"}},
		"only the target's": {
			question: question{labels: zones, target: []*corev1.NodeSelector{all(in(zone, "a"))}},
			want:     []string{" : {}"},
		},
		"one zone of the instance type's": {
			question: question{labels: zones, split: []*corev1.NodeSelector{all(in(zone, "a"))}},
			want: []string{
				"zone=a 1: {topology.kubernetes.io/zone in [a]}",
				"zone=b 0: {topology.kubernetes.io/zone in [b, c]}",
			},
		},
		"one zone that the target asks for": {
			question: question{labels: zones, split: []*corev1.NodeSelector{all(in(zone, "a"))}, target: []*corev1.NodeSelector{all(in(zone, "a", "x"))}},
			want:     []string{"zone=a 1: {}"},
		},
		"zones that the target excludes are not mentioned": {
			question: question{labels: zones, split: []*corev1.NodeSelector{all(in(zone, "a"))}, target: []*corev1.NodeSelector{all(notIn(zone, "c"))}},
			want: []string{
				"zone=a 1: {topology.kubernetes.io/zone in [a]}",
				"zone=b 0: {topology.kubernetes.io/zone in [b]}",
			},
		},
		"the same in all regions": {
			question: question{labels: zones, split: []*corev1.NodeSelector{all(in(zone, "a"))}},
			groups:   []int{0, 0},
			want:     []string{"zone=a 1: {}", "zone=b 0: {}"},
		},
		"a region that will not do": {
			question: question{labels: zones, split: []*corev1.NodeSelector{all(in(zone, "a"))}},
			groups:   []int{-1, 0},
			want:     []string{"zone=a 1:", "zone=b 0: {topology.kubernetes.io/zone in [b, c]}"},
		},
		"a label that the instance type does not tell": {
			question: question{split: []*corev1.NodeSelector{all(in(zone, "a"))}},
			want: []string{
				"zone=a 1: {topology.kubernetes.io/zone in [a]}",
				"zone=other 0: {topology.kubernetes.io/zone notin [a]}",
			},
		},
		"such a label exists or not": {
			question: question{split: []*corev1.NodeSelector{all(exists(zone))}},
			want: []string{
				"zone=other 1: {topology.kubernetes.io/zone exists}",
				" 0: {topology.kubernetes.io/zone does not exist}",
			},
		},
		"such a label with all three": {
			question: question{split: []*corev1.NodeSelector{all(exists(zone)), all(notIn(zone, "a", "b"))}},
			want: []string{
				"zone=a 10: {topology.kubernetes.io/zone in [a, b]}",
				"zone=other 11: {topology.kubernetes.io/zone notin [a, b] and topology.kubernetes.io/zone exists}",
				" 01: {topology.kubernetes.io/zone does not exist}",
			},
		},
		"a value or absent needs two": {
			question: question{split: []*corev1.NodeSelector{anyOf([]corev1.NodeSelectorRequirement{in(zone, "a")}, []corev1.NodeSelectorRequirement{doesNotExist(zone)})}},
			want: []string{
				"zone=a 1: {topology.kubernetes.io/zone in [a]} {topology.kubernetes.io/zone does not exist}",
				"zone=other 0: {topology.kubernetes.io/zone notin [a] and topology.kubernetes.io/zone exists}",
			},
		},
		"such a label that the target tells": {
			question: question{split: []*corev1.NodeSelector{all(in(zone, "a"))}, target: []*corev1.NodeSelector{all(in(zone, "a", "b"))}},
			want: []string{
				"zone=a 1: {topology.kubernetes.io/zone in [a]}",
				"zone=b 0: {topology.kubernetes.io/zone in [b]}",
			},
		},
		"a label that its nodes do not have": {
			question: question{labels: map[string][]string{zone: {}}, split: []*corev1.NodeSelector{all(in(zone, "a"))}},
			want:     []string{" 0: {}"},
		},
		"integers": {
			question: question{split: []*corev1.NodeSelector{all(gt("mem", "8")), all(lt("mem", "64"))}},
			want: []string{
				"mem=0 01: {mem lt [8]} {mem gt [7] and mem lt [9]}",
				"mem=9 11: {mem gt [8] and mem lt [64]}",
				"mem=64 10: {mem gt [63] and mem lt [65]} {mem gt [64]}",
				"mem=other 00: {mem in [other]} {mem does not exist}",
			},
		},
		"integers that are mentioned, too": {
			question: question{split: []*corev1.NodeSelector{all(gt("mem", "8"), notIn("mem", "9", "x"))}, target: []*corev1.NodeSelector{all(exists("mem"))}},
			want: []string{
				"mem=9 0: {mem in [9, other, x]} {mem lt [8]} {mem gt [7] and mem lt [9]}",
				"mem=09 1: {mem gt [8] and mem notin [9]}",
			},
		},
	})
}

func TestRegionsOfSeveralLabelsAndClaims(t *testing.T) {
	zones := map[string][]string{zone: {"b", "a", "c"}}
	checkRegions(t, map[string]regionsTest{
		"two labels": {
			question: question{
				labels: map[string][]string{zone: {"a", "b"}, "rack": {"r", "s"}},
				split:  []*corev1.NodeSelector{all(in(zone, "a"), in("rack", "r"))},
			},
			want: []string{
				"rack=r,zone=a 1: {rack in [r] and topology.kubernetes.io/zone in [a]}",
				"rack=r,zone=b 0: {rack in [r] and topology.kubernetes.io/zone in [b]} {rack in [s]}",
			},
		},
		"terms of the target": {
			question: question{
				labels: map[string][]string{zone: {"a", "b"}, "rack": {"r", "s"}},
				split:  []*corev1.NodeSelector{all(in(zone, "a"))},
				target: []*corev1.NodeSelector{anyOf(
					[]corev1.NodeSelectorRequirement{in(zone, "a"), in("rack", "r")},
					[]corev1.NodeSelectorRequirement{in(zone, "b"), in("rack", "s")},
				)},
			},
			// Either label alone tells the two apart.
			want: []string{"rack=r,zone=a 1: {rack in [r]}", "rack=s,zone=b 0: {rack in [s]}"},
		},
		"a claim narrows another label": {
			question: question{
				labels: map[string][]string{zone: {"a", "b"}, "rack": {"r", "s"}},
				split:  []*corev1.NodeSelector{all(in(zone, "a"))},
				narrow: []*corev1.NodeSelector{all(in("rack", "s", "t"))},
			},
			want: []string{
				"zone=a 1: {rack in [s] and topology.kubernetes.io/zone in [a]}",
				"zone=b 0: {rack in [s] and topology.kubernetes.io/zone in [b]}",
			},
		},
		"a claim narrows the same label": {
			question: question{labels: zones, split: []*corev1.NodeSelector{all(in(zone, "a"))}, narrow: []*corev1.NodeSelector{all(notIn(zone, "c"))}},
			groups:   []int{0, 0},
			want: []string{
				"zone=a 1: {topology.kubernetes.io/zone in [a, b]}",
				"zone=b 0: {topology.kubernetes.io/zone in [a, b]}",
			},
		},
		"a claim narrows by terms": {
			question: question{labels: zones, narrow: []*corev1.NodeSelector{anyOf([]corev1.NodeSelectorRequirement{in(zone, "a")}, []corev1.NodeSelectorRequirement{in(zone, "b")})}},
			want:     []string{"zone=a : {topology.kubernetes.io/zone in [a, b]}"},
		},
		"a box narrows": {
			question: question{labels: zones, box: all(in(zone, "b"))},
			want:     []string{" : {topology.kubernetes.io/zone in [b]}"},
		},
		"a name that a new node does not have": {
			question: question{split: []*corev1.NodeSelector{onNode(corev1.NodeSelectorOpIn, "n1")}, target: []*corev1.NodeSelector{onNode(corev1.NodeSelectorOpNotIn, "n1")}},
			want:     []string{" : {}"},
		},
		"the host name of a node that exists": {
			question: question{split: []*corev1.NodeSelector{all(in(corev1.LabelHostname, "n1"))}},
			want:     []string{"kubernetes.io/hostname=(new node) 0: {}"},
		},
		"a host name that the target asks for": {
			question: question{
				split:  []*corev1.NodeSelector{all(in(corev1.LabelHostname, "n1"))},
				target: []*corev1.NodeSelector{all(in(corev1.LabelHostname, "new-1"))},
			},
			want: []string{"kubernetes.io/hostname=new-1 0: {}"},
		},
	})
}

func TestNoRegions(t *testing.T) {
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("v%02d", i)
	}
	var splits []*corev1.NodeSelector
	for _, v := range many {
		splits = append(splits, all(in("x", v)), all(in("y", v)))
	}
	for name, test := range map[string]struct {
		question
		want string
	}{
		"the target asks for other values": {
			question{labels: map[string][]string{zone: {"a", "b"}}, target: []*corev1.NodeSelector{all(in(zone, "c"))}},
			"label topology.kubernetes.io/zone: a, b is not what the selectors ask for (in [c])",
		},
		"the target asks for a node that exists": {
			question{target: []*corev1.NodeSelector{onNode(corev1.NodeSelectorOpIn, "n1")}},
			"no new node matches the selectors (metadata.name in [n1])",
		},
		"a claim is elsewhere": {
			question{labels: map[string][]string{zone: {"a", "b"}}, narrow: []*corev1.NodeSelector{all(in(zone, "c"))}},
			"claim a cannot be used on nodes with label topology.kubernetes.io/zone: a, b",
		},
		"a claim is on a node": {
			question{narrow: []*corev1.NodeSelector{onNode(corev1.NodeSelectorOpIn, "n1")}},
			"claim a cannot be used on a new node",
		},
		"no combination": {
			question{
				labels: map[string][]string{zone: {"a"}, "rack": {"r"}},
				target: []*corev1.NodeSelector{anyOf([]corev1.NodeSelectorRequirement{in(zone, "a"), in("rack", "s")}, []corev1.NodeSelectorRequirement{in(zone, "b")})},
			},
			"no combination of its labels is what the selectors ask for",
		},
		"too many": {
			question{split: splits},
			"the labels x, y may be combined in more than 1024 ways",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := test.grid(t)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
		})
	}
}

// TestAgainstAllNodes tries all nodes with values that the selectors mention and some
// that they do not: each that matches the target has to be in the region that its
// selectors say, and in exactly one box of this region and no other.
func TestAgainstAllNodes(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 5))
		q := randomQuestion(r)
		g, fixed, err := q.grid(t)
		var split []*corev1.NodeSelector
		for _, s := range q.split {
			if matchable(s) {
				split = append(split, s)
			}
		}
		var groups []int
		if err == nil {
			groups = make([]int, len(g.Regions))
			for i := range groups {
				groups[i] = r.IntN(3) - 1
			}
		}
		boxes := boxesOf(g, fixed, groups)
		for _, node := range allNodes(q.labels) {
			if !matchAll(t, q.target, node) {
				continue
			}
			good := matchAll(t, q.narrow, node) && (q.box == nil || matches(t, q.box, node))
			if !good && err != nil {
				continue
			}
			if err != nil {
				t.Fatalf("seed %d: %v, but a node with labels %v would do", seed, err, node.Labels)
			}
			region := slices.IndexFunc(g.Regions, func(region Region) bool { return region.Signature == signature(t, split, node) })
			if good && region < 0 {
				t.Fatalf("seed %d: no region for a node with labels %v", seed, node.Labels)
			}
			want := -1
			if good {
				want = groups[region]
			}
			var got []int
			for _, box := range boxes {
				if box.selector == nil || matches(t, box.selector, node) {
					got = append(got, box.group)
				}
			}
			if len(got) == 0 && undescribed(q, node) {
				continue
			}
			if want < 0 && len(got) > 0 || want >= 0 && !slices.Equal(got, []int{want}) {
				t.Fatalf("seed %d: labels %v are in boxes of groups %v, want %d\n%v", seed, node.Labels, got, want, words(g, fixed, groups))
			}
		}
	}
}

type parsedBox struct {
	group    int
	selector *corev1.NodeSelector
}

func boxesOf(g *Grid, fixed Fixed, groups []int) []parsedBox {
	if g == nil {
		return nil
	}
	var boxes []parsedBox
	for _, box := range g.Boxes(groups, fixed) {
		b := parsedBox{group: box.Group}
		if len(box.Requirements) > 0 {
			b.selector = all(box.Requirements...)
		}
		boxes = append(boxes, b)
	}
	return boxes
}

// keys and what randomQuestion says of them; values beyond those it mentions are 4, 007,
// 7 and z.
var keys = []string{"k", "l", "m"}

func randomQuestion(r *rand.Rand) question {
	q := question{labels: map[string][]string{}}
	for _, key := range keys {
		if r.IntN(2) == 0 {
			q.labels[key] = [][]string{{"a"}, {"a", "b"}, {"3", "5"}, {"a", "7"}, {}}[r.IntN(5)]
		}
	}
	for range r.IntN(3) {
		q.split = append(q.split, randomSelector(r))
	}
	for range r.IntN(3) {
		q.target = append(q.target, randomSelector(r))
	}
	for range r.IntN(2) {
		q.narrow = append(q.narrow, randomSelector(r))
	}
	if r.IntN(4) == 0 {
		q.box = all(randomRequirement(r), randomRequirement(r))
	}
	return q
}

func randomSelector(r *rand.Rand) *corev1.NodeSelector {
	var terms [][]corev1.NodeSelectorRequirement
	for range 1 + r.IntN(5)/3 {
		var term []corev1.NodeSelectorRequirement
		for range 1 + r.IntN(2) {
			term = append(term, randomRequirement(r))
		}
		terms = append(terms, term)
	}
	s := anyOf(terms...)
	if r.IntN(6) == 0 {
		operator := []corev1.NodeSelectorOperator{corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn}[r.IntN(2)]
		s.NodeSelectorTerms[0].MatchFields = onNode(operator, "n1").NodeSelectorTerms[0].MatchFields
	}
	return s
}

func randomRequirement(r *rand.Rand) corev1.NodeSelectorRequirement {
	key := keys[r.IntN(len(keys))]
	switch r.IntN(7) {
	case 0:
		return in(key, "a")
	case 1:
		return in(key, "3", "b")
	case 2:
		return notIn(key, "a", "5")
	case 3:
		return exists(key)
	case 4:
		return doesNotExist(key)
	case 5:
		return gt(key, "3")
	}
	return lt(key, "5")
}

// allNodes have labels as the instance type tells them, or any.
func allNodes(labels map[string][]string) []*corev1.Node {
	nodes := []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a-new-one"}}}
	for _, key := range keys {
		values, known := labels[key]
		if !known {
			values = []string{"", "a", "b", "3", "5", "4", "2", "007", "7", "z", "other"}
		} else if len(values) == 0 {
			values = []string{""}
		}
		var next []*corev1.Node
		for _, node := range nodes {
			for _, value := range values {
				n := node.DeepCopy()
				if value != "" {
					metav1.SetMetaDataLabel(&n.ObjectMeta, key, value)
				}
				next = append(next, n)
			}
		}
		nodes = next
	}
	return nodes
}

// undescribed says that a node has a label of which the instance type does not tell, and
// its value is no integer, and requirements compare integers: no requirement can ask for
// such values but by naming one ("other").
func undescribed(q question, node *corev1.Node) bool {
	compared := make(map[string]bool)
	for _, s := range slices.Concat(q.split, q.target, q.narrow, []*corev1.NodeSelector{q.box}) {
		if s == nil {
			continue
		}
		for _, t := range s.NodeSelectorTerms {
			for _, r := range t.MatchExpressions {
				compared[r.Key] = compared[r.Key] || r.Operator == corev1.NodeSelectorOpGt || r.Operator == corev1.NodeSelectorOpLt
			}
		}
	}
	for key, value := range node.Labels {
		if _, known := q.labels[key]; !known && compared[key] && (value == "a" || value == "b" || value == "z") {
			return true
		}
	}
	return false
}

// parsedSelectors saves parsing for every node.
var parsedSelectors = make(map[*corev1.NodeSelector]*nodeaffinity.NodeSelector)

func matches(t testing.TB, s *corev1.NodeSelector, node *corev1.Node) bool {
	t.Helper()
	parsed, ok := parsedSelectors[s]
	if !ok {
		var err error
		if parsed, err = nodeaffinity.NewNodeSelector(s); err != nil {
			t.Fatal(err)
		}
		parsedSelectors[s] = parsed
	}
	return parsed.Match(node)
}

func matchAll(t testing.TB, selectors []*corev1.NodeSelector, node *corev1.Node) bool {
	t.Helper()
	return !slices.ContainsFunc(selectors, func(s *corev1.NodeSelector) bool { return !matches(t, s, node) })
}

func matchable(s *corev1.NodeSelector) bool {
	return slices.ContainsFunc(s.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchFields) == 0 || t.MatchFields[0].Operator != corev1.NodeSelectorOpIn
	})
}

func signature(t testing.TB, split []*corev1.NodeSelector, node *corev1.Node) string {
	t.Helper()
	var b strings.Builder
	for _, s := range split {
		if matches(t, s, node) {
			b.WriteByte(1)
		} else {
			b.WriteByte(0)
		}
	}
	return b.String()
}
