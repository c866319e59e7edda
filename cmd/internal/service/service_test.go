package service

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// recorded are options that say what was done with them.
type recorded struct {
	name           string
	wrong, failure error
	done           []string
	verbose        bool
}

func (r *recorded) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&r.name, "node.name", "a", "")
}

func (r *recorded) Complete(context.Context) error {
	r.done = append(r.done, "complete")
	return r.wrong
}

func (r *recorded) Run(ctx context.Context) error {
	r.done = append(r.done, "run "+r.name)
	r.verbose = klog.FromContext(ctx).V(4).Enabled()
	return r.failure
}

func TestAProgramChecksItsFlagsAndRuns(t *testing.T) {
	for _, test := range []struct {
		name    string
		options recorded
		args    []string
		code    int
		stderr  string
		done    string
	}{
		{"wrong flag", recorded{wrong: errors.New("no node")}, nil, 2, "p: no node\n", "complete"},
		{"two mistakes", recorded{wrong: errors.New("no node")}, []string{"--logging-format=xml"}, 2, "p: --logging-format \"xml\": known are text and json; no node\n", "complete"},
		{"failure", recorded{failure: errors.New("disk full")}, nil, 1, "p: disk full\n", "complete, run from-variable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stderr bytes.Buffer
			p := Program{Name: "p", Options: &test.options}
			variables := map[string]string{"NODE_NAME": "from-variable", "V": "4", "LOGGING_FORMAT": "json", "HELP": "1"}
			lookup := func(name string) (string, bool) { value, ok := variables[name]; return value, ok }
			if code := p.Execute(t.Context(), test.args, lookup, &stderr); code != test.code || stderr.String() != test.stderr {
				t.Errorf("status %d, output %q; want %d, %q", code, stderr.String(), test.code, test.stderr)
			}
			if got := strings.Join(test.options.done, ", "); got != test.done {
				t.Errorf("done: %s; want %s", got, test.done)
			}
			if test.code == 1 && !test.options.verbose {
				t.Error("V=4 has no effect")
			}
		})
	}
}
