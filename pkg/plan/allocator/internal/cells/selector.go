package cells

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// NewNodeName is the name of the nodes that stand for regions. No node can have it, so
// matchFields with the name of a node do not match (nodeaffinity skips matchFields for a
// node without a name).
const NewNodeName = "(new node)"

// Selector is a parsed node selector. Selectors of equal content from one [Interner] are
// the same pointer.
type Selector struct {
	spec    *corev1.NodeSelector
	matcher *nodeaffinity.NodeSelector
	// terms are what is left of the terms for a node whose name nobody knows: terms
	// that want a certain name are gone, and so is what forbids certain names.
	terms []term
}

// term is a conjunction; an empty one is always true.
type term []*requirement

// Matches says whether the labels and the name of a node match.
func (s *Selector) Matches(node *corev1.Node) bool {
	return s.matcher.Match(node)
}

// Spec is what the selector was parsed from. It must not be changed.
func (s *Selector) Spec() *corev1.NodeSelector {
	return s.spec
}

// String writes the selector's terms the way that kubectl describe does.
func (s *Selector) String() string {
	terms := make([]string, len(s.spec.NodeSelectorTerms))
	for i, t := range s.spec.NodeSelectorTerms {
		terms[i] = Format(slices.Concat(t.MatchExpressions, t.MatchFields))
	}
	return strings.Join(terms, " or ")
}

// Format writes requirements the way that kubectl describe does.
func Format(requirements []corev1.NodeSelectorRequirement) string {
	words := make([]string, len(requirements))
	for i, r := range requirements {
		words[i] = r.Key + " " + strings.ToLower(string(r.Operator))
		if r.Operator == corev1.NodeSelectorOpDoesNotExist {
			words[i] = r.Key + " does not exist"
		}
		if len(r.Values) > 0 {
			words[i] += " [" + strings.Join(r.Values, ", ") + "]"
		}
	}
	return strings.Join(words, " and ")
}

// requirement is one expression of a selector.
type requirement struct {
	spec      corev1.NodeSelectorRequirement
	key       string
	values    []string
	threshold bool // Gt or Lt: compares integers
	// in is set for In, the one operator with long lists.
	in      map[string]struct{}
	matcher *nodeaffinity.NodeSelector
}

// allows says whether the label may have the value, or be absent.
func (r *requirement) allows(p point) bool {
	if r.in != nil {
		if p.kind == absent {
			return false
		}
		_, ok := r.in[p.text]
		return ok
	}
	node := corev1.Node{}
	if p.kind != absent {
		node.ObjectMeta = metav1.ObjectMeta{Labels: map[string]string{r.key: p.text}}
	}
	return r.matcher.Match(&node)
}

func (r *requirement) String() string {
	return Format([]corev1.NodeSelectorRequirement{r.spec})
}

// Interner parses selectors and labels, each content once. It is safe for concurrent use.
type Interner struct {
	mutex        sync.RWMutex
	selectors    map[string]*Selector
	requirements map[string]*requirement
	values       map[string]*Values
}

// NewInterner returns an empty one.
func NewInterner() *Interner {
	return &Interner{
		selectors:    make(map[string]*Selector),
		requirements: make(map[string]*requirement),
		values:       make(map[string]*Values),
	}
}

// Selector parses a selector. Errors are nodeaffinity's: an operator, key or value that
// the API would not accept.
func (n *Interner) Selector(spec *corev1.NodeSelector) (*Selector, error) {
	buffer := make([]byte, 0, 256)
	for _, t := range spec.NodeSelectorTerms {
		for _, r := range t.MatchExpressions {
			buffer = appendRequirement(buffer, r)
		}
		buffer = append(buffer, 1)
		for _, r := range t.MatchFields {
			buffer = appendRequirement(buffer, r)
		}
		buffer = append(buffer, 2)
	}
	n.mutex.RLock()
	s, ok := n.selectors[string(buffer)]
	n.mutex.RUnlock()
	if ok {
		return s, nil
	}
	matcher, err := nodeaffinity.NewNodeSelector(spec)
	if err != nil {
		return nil, err
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if s, ok := n.selectors[string(buffer)]; ok {
		return s, nil
	}
	s = &Selector{spec: spec.DeepCopy(), matcher: matcher}
	for i := range spec.NodeSelectorTerms {
		t, ok, err := n.term(&spec.NodeSelectorTerms[i])
		if err != nil {
			return nil, err
		}
		if ok {
			s.terms = append(s.terms, t)
		}
	}
	n.selectors[string(buffer)] = s
	return s, nil
}

// term is false if no new node can match it.
func (n *Interner) term(spec *corev1.NodeSelectorTerm) (term, bool, error) {
	if len(spec.MatchExpressions) == 0 && len(spec.MatchFields) == 0 {
		return nil, false, nil
	}
	for _, field := range spec.MatchFields {
		if field.Operator == corev1.NodeSelectorOpIn {
			return nil, false, nil
		}
	}
	t := make(term, 0, len(spec.MatchExpressions))
	for _, expression := range spec.MatchExpressions {
		r, err := n.requirement(expression)
		if err != nil {
			return nil, false, err
		}
		if !slices.Contains(t, r) {
			t = append(t, r)
		}
	}
	return t, true, nil
}

func (n *Interner) requirement(spec corev1.NodeSelectorRequirement) (*requirement, error) {
	content := string(appendRequirement(nil, spec))
	if r, ok := n.requirements[content]; ok {
		return r, nil
	}
	matcher, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{spec}},
	}})
	if err != nil {
		return nil, err
	}
	r := &requirement{spec: *spec.DeepCopy(), key: spec.Key, matcher: matcher}
	r.values = r.spec.Values
	switch spec.Operator {
	case corev1.NodeSelectorOpIn:
		r.in = make(map[string]struct{}, len(spec.Values))
		for _, value := range spec.Values {
			r.in[value] = struct{}{}
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		r.threshold = true
	}
	n.requirements[content] = r
	return r, nil
}

func appendRequirement(to []byte, r corev1.NodeSelectorRequirement) []byte {
	to = append(append(append(to, r.Key...), 0), r.Operator...)
	for _, value := range r.Values {
		to = append(append(to, 0), value...)
	}
	return append(to, 3)
}

// Labels are the labels that the nodes of an instance type will have.
type Labels struct {
	values map[string]*Values
}

// Values are the possible values of one label, sorted. None says that there will be no
// such label. Values of equal content from one Interner are the same pointer.
type Values struct {
	texts []string
}

// Labels interns labels and their possible values.
func (n *Interner) Labels(labels map[string][]string) *Labels {
	l := &Labels{values: make(map[string]*Values, len(labels))}
	for key, values := range labels {
		texts := slices.Clone(values)
		slices.Sort(texts)
		l.values[key] = n.intern(slices.Compact(texts))
	}
	return l
}

func (n *Interner) intern(texts []string) *Values {
	content := strconv.Itoa(len(texts)) + "\x00" + strings.Join(texts, "\x00")
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if v, ok := n.values[content]; ok {
		return v
	}
	v := &Values{texts: texts}
	n.values[content] = v
	return v
}
