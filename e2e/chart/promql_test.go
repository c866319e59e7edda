package chart

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// query is what an expression of PromQL names.
type query struct {
	metrics []string
	// labels are those that it selects, groups or joins by.
	labels []string
}

// parseQuery reads the part of PromQL that rules and dashboards use: no @ modifiers and
// no native histograms. It knows no types: rate(1) passes. Variables of Grafana may be
// in strings and in durations.
func parseQuery(text string) (query, error) {
	p := &queryParser{}
	if err := p.split(text); err != nil {
		return query{}, fmt.Errorf("%s: %w", text, err)
	}
	err := p.expression()
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("unexpected %q", p.peek())
	}
	if err != nil {
		return query{}, fmt.Errorf("%s: %w, before %q", text, err, strings.Join(p.tokens[min(p.at, len(p.tokens)):], " "))
	}
	for _, list := range []*[]string{&p.found.metrics, &p.found.labels} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return p.found, nil
}

var (
	token = regexp.MustCompile(`^(?:` + strings.Join([]string{
		`"(?:[^"\\]|\\.)*"`, `'(?:[^'\\]|\\.)*'`, // strings
		`\$[a-z_]+`,                  // variables for durations
		`[0-9]+(?:ms|[smhdwy])\b`,    // durations
		`[0-9]*\.?[0-9]+(?:e-?\d+)?`, // numbers
		`[a-zA-Z_][a-zA-Z0-9_:]*`,    // names
		`=~|!~|!=|==|>=|<=`, `[-+*/%^(){}\[\],=<>:]`,
	}, "|") + `)`)
	nameToken     = regexp.MustCompile(`^[a-zA-Z_]`)
	labelToken    = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	numberToken   = regexp.MustCompile(`^[0-9.]`)
	durationToken = regexp.MustCompile(`^([0-9]+(ms|[smhdwy])|\$__rate_interval|\$__range|\$__interval)$`)
	stringToken   = regexp.MustCompile(`^["']`)

	operators    = []string{"+", "-", "*", "/", "%", "^", "==", "!=", ">", "<", ">=", "<=", "and", "or", "unless"}
	aggregations = []string{"sum", "avg", "min", "max", "count", "group", "topk", "bottomk", "quantile"}
	functions    = []string{
		"rate", "increase", "irate", "delta", "changes", "absent", "sum_over_time", "avg_over_time", "max_over_time",
		"min_over_time", "last_over_time", "label_replace", "clamp_min", "clamp_max", "vector", "scalar", "sort", "sort_desc", "time",
	}
)

type queryParser struct {
	tokens []string
	at     int
	found  query
}

func (p *queryParser) split(text string) error {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		next := token.FindString(text)
		if next == "" {
			return fmt.Errorf("cannot read %q", text)
		}
		p.tokens = append(p.tokens, next)
		text = text[len(next):]
	}
	return nil
}

func (p *queryParser) peek() string {
	if p.at == len(p.tokens) {
		return ""
	}
	return p.tokens[p.at]
}

func (p *queryParser) next() string {
	next := p.peek()
	if next != "" {
		p.at++
	}
	return next
}

// skip takes the next token if it is the one given.
func (p *queryParser) skip(want string) bool {
	if p.peek() != want {
		return false
	}
	p.at++
	return true
}

func (p *queryParser) expect(want string) error {
	if !p.skip(want) {
		return fmt.Errorf("want %q", want)
	}
	return nil
}

// expression is operands with operators between them.
func (p *queryParser) expression() error {
	for {
		if err := p.operand(); err != nil {
			return err
		}
		if !slices.Contains(operators, p.peek()) {
			return nil
		}
		p.next()
		p.skip("bool")
		if p.skip("on") || p.skip("ignoring") {
			if err := p.labelList(); err != nil {
				return err
			}
		}
		if p.skip("group_left") || p.skip("group_right") {
			if p.peek() == "(" {
				if err := p.labelList(); err != nil {
					return err
				}
			}
		}
	}
}

// operand is a number, a string, a selector, a call, an aggregation, or an expression
// in brackets, with a range or an offset behind it.
func (p *queryParser) operand() error {
	for p.skip("-") || p.skip("+") {
		continue
	}
	if err := p.simple(); err != nil {
		return err
	}
	if p.skip("[") {
		if err := p.duration(); err != nil {
			return err
		}
		if p.skip(":") && p.peek() != "]" {
			if err := p.duration(); err != nil {
				return err
			}
		}
		if err := p.expect("]"); err != nil {
			return err
		}
	}
	if p.skip("offset") {
		return p.duration()
	}
	return nil
}

func (p *queryParser) simple() error {
	next := p.next()
	switch {
	case next == "(":
		if err := p.expression(); err != nil {
			return err
		}
		return p.expect(")")
	case numberToken.MatchString(next), stringToken.MatchString(next):
		return nil
	case slices.Contains(aggregations, next):
		return p.aggregation()
	case !nameToken.MatchString(next), slices.Contains(operators, next):
		return fmt.Errorf("%q is no operand", next)
	case p.peek() == "(":
		if !slices.Contains(functions, next) {
			return fmt.Errorf("unknown function %s", next)
		}
		return p.arguments()
	}
	p.found.metrics = append(p.found.metrics, next)
	if p.peek() == "{" {
		return p.matchers()
	}
	return nil
}

func (p *queryParser) aggregation() error {
	by := func() error {
		if p.skip("by") || p.skip("without") {
			return p.labelList()
		}
		return nil
	}
	if err := by(); err != nil {
		return err
	}
	if err := p.arguments(); err != nil {
		return err
	}
	return by()
}

func (p *queryParser) arguments() error {
	if err := p.expect("("); err != nil {
		return err
	}
	for !p.skip(")") {
		if err := p.expression(); err != nil {
			return err
		}
		if !p.skip(",") && p.peek() != ")" {
			return fmt.Errorf("want %q", ")")
		}
	}
	return nil
}

func (p *queryParser) labelList() error {
	if err := p.expect("("); err != nil {
		return err
	}
	for !p.skip(")") {
		if err := p.label(); err != nil {
			return err
		}
		if !p.skip(",") && p.peek() != ")" {
			return fmt.Errorf("want %q", ")")
		}
	}
	return nil
}

func (p *queryParser) label() error {
	name := p.next()
	if !labelToken.MatchString(name) {
		return fmt.Errorf("%q is no label", name)
	}
	p.found.labels = append(p.found.labels, name)
	return nil
}

func (p *queryParser) matchers() error {
	if err := p.expect("{"); err != nil {
		return err
	}
	for !p.skip("}") {
		if err := p.label(); err != nil {
			return err
		}
		if operator := p.next(); !slices.Contains([]string{"=", "!=", "=~", "!~"}, operator) {
			return fmt.Errorf("%q compares no labels", operator)
		}
		if value := p.next(); !stringToken.MatchString(value) {
			return fmt.Errorf("%q is no string", value)
		}
		if !p.skip(",") && p.peek() != "}" {
			return fmt.Errorf("want %q", "}")
		}
	}
	return nil
}

func (p *queryParser) duration() error {
	if next := p.next(); !durationToken.MatchString(next) {
		return fmt.Errorf("%q is no duration", next)
	}
	return nil
}

func TestParseQuery(t *testing.T) {
	for _, test := range []struct {
		text string
		want query
		err  string
	}{
		{"up", query{metrics: []string{"up"}}, ""},
		{`up{job="a", node=~"$node"} == 0`, query{metrics: []string{"up"}, labels: []string{"job", "node"}}, ""},
		{"sum by (pod) (rate(a_total[5m])) / on (uuid) group_left (pod) max(b) by (uuid)",
			query{metrics: []string{"a_total", "b"}, labels: []string{"pod", "uuid"}}, ""},
		{"a > 0 != 13 unless ignoring (x) -b offset 1h", query{metrics: []string{"a", "b"}, labels: []string{"x"}}, ""},
		{"sum_over_time(ns:a:rate5m[1d:1m]) / 60", query{metrics: []string{"ns:a:rate5m"}}, ""},
		{"increase(a[$__rate_interval]) * 1.5e-3", query{metrics: []string{"a"}}, ""},
		{"topk(5, a) or vector(0)", query{metrics: []string{"a"}}, ""},
		{`label_replace(a, "x", "$1", "y", "(.*)")`, query{metrics: []string{"a"}}, ""},
		{"sum(a", query{}, `want ")"`},
		{"sum a", query{}, `want "("`},
		{"a b", query{}, `unexpected "b"`},
		{"a +", query{}, `"" is no operand`},
		{"a * / b", query{}, `"/" is no operand`},
		{"rat(a[5m])", query{}, "unknown function rat"},
		{"rate(a[5])", query{}, `"5" is no duration`},
		{"a{b}", query{}, `"}" compares no labels`},
		{"a{b=c}", query{}, `"c" is no string`},
		{"sum by (a b) (c)", query{}, `want ")"`},
		{"a # b", query{}, "cannot read"},
	} {
		got, err := parseQuery(test.text)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: error %v, want %q", test.text, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(query{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.text, diff)
		}
	}
}
