// Package servicetest is what the tests of the programs that service runs have in
// common.
package servicetest

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"apportion.dev/apportion/cmd/internal/command"
	"apportion.dev/apportion/cmd/internal/service"
)

// Environment is the variables of a test, and no others.
type Environment map[string]string

// Lookup is os.LookupEnv of the environment.
func (e Environment) Lookup(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}

// BadCall is a call of a program.
type BadCall struct {
	name string
	args []string
	env  Environment
	want []string
}

// Bad is a call that is to be refused with one line that has all parts in it.
func Bad(name string, args []string, env Environment, parts ...string) BadCall {
	return BadCall{name, args, env, parts}
}

// RefusesBadCalls makes a program for each call and wants it to end with status 2.
func RefusesBadCalls(t *testing.T, program func() service.Program, calls ...BadCall) {
	t.Helper()
	for _, call := range calls {
		t.Run(call.name, func(t *testing.T) {
			p := program()
			var stderr bytes.Buffer
			if code := p.Execute(t.Context(), call.args, call.env.Lookup, &stderr); code != 2 {
				t.Errorf("exit status is %d, want 2", code)
			}
			if got := stderr.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, p.Name+": ") {
				t.Errorf("output is %q, want one line", got)
			}
			for _, want := range call.want {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("output is %q, want one with %q", stderr.String(), want)
				}
			}
		})
	}
}

// Parse sets options by arguments and variables, as a program does before it checks
// them.
func Parse(t *testing.T, o service.Options, args []string, env Environment) {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := command.FromEnvironment(flags, env.Lookup); err != nil {
		t.Fatal(err)
	}
}

// ManualHasFlags wants a file to have, between marks, the table of the options' flags.
func ManualHasFlags(t *testing.T, file string, o service.Options) {
	t.Helper()
	manual, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(manual), "<!-- flags -->\n")
	got, _, ended := strings.Cut(rest, "<!-- end of flags -->")
	if !ok || !ended {
		t.Fatalf("%s has no table between the marks of flags", file)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(flags)
	var want strings.Builder
	want.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		name, value := "`--"+f.Name+"`", strings.TrimPrefix(f.DefValue, "[]")
		if f.Shorthand != "" {
			name += ", `-" + f.Shorthand + "`"
		}
		if value != "" {
			value = "`" + value + "`"
		}
		want.WriteString("| " + name + " | " + value + " | " + f.Usage + " |\n")
	})
	if got != want.String() {
		t.Errorf("the table in %s is\n%s\nwant\n%s", file, got, want.String())
	}
}
