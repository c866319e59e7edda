package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"apportion.dev/apportion/cmd/internal/command"
)

// environment is the variables of a test, and no others.
type environment map[string]string

func (e environment) lookup(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}

func TestABadCallIsOneLineAndStatusTwo(t *testing.T) {
	named := func(more ...string) []string {
		return append([]string{"--namespace=gpus", "--service-name=w", "--secret-name=w", "--configuration-name=w"}, more...)
	}
	for _, test := range []struct {
		name string
		args []string
		env  environment
		want []string // Parts of the line.
	}{
		{"unknown flag", []string{"--servce=a"}, nil, []string{"unknown flag: --servce"}},
		{"argument", []string{"serve"}, nil, []string{`"serve"`, "--help"}},
		{"nothing", nil, nil, []string{"--namespace", "SERVICE_NAME", "--secret-name", "CONFIGURATION_NAME"}},
		{"driver name", named("--driver-name=GPU"), nil, []string{`--driver-name "GPU"`}},
		{"no driver name", named("--driver-name="), nil, []string{"--driver-name is required"}},
		{"address", named("--address=8443"), nil, []string{`--address "8443"`}},
		{"no address", named("--address="), nil, []string{`--address ""`}},
		{"metrics address", named("--metrics-address=x"), nil, []string{`--metrics-address "x"`}},
		{"lifetime", named("--certificate-lifetime=1s"), nil, []string{"--certificate-lifetime 1s", "1m0s"}},
		{"lifetime without a unit", named(), environment{"CERTIFICATE_LIFETIME": "90"}, []string{"CERTIFICATE_LIFETIME", `"90"`}},
		{"log format", named("--logging-format=xml"), nil, []string{"xml", "text", "json"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := run(t.Context(), test.args, test.env.lookup, &stderr); code != 2 {
				t.Errorf("exit status is %d, want 2", code)
			}
			if got := stderr.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "apportion-webhook: ") {
				t.Errorf("output is %q, want one line", got)
			}
			for _, want := range test.want {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("output is %q, want one with %q", stderr.String(), want)
				}
			}
		})
	}
}

func TestSettingsComeFromFlagsThenFromTheEnvironment(t *testing.T) {
	o := defaultOptions()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse([]string{"--namespace=from-flag", "--service-name=s"}); err != nil {
		t.Fatal(err)
	}
	env := environment{
		"NAMESPACE": "from-variable", "SECRET_NAME": "secret", "CONFIGURATION_NAME": "configuration", "DRIVER_NAME": "gpu.example.com",
		"METRICS_ADDRESS": "", "CERTIFICATE_LIFETIME": "24h", "V": "4", "HOSTNAME": "x", "HELP": "1",
	}
	if err := command.FromEnvironment(flags, env.lookup); err != nil {
		t.Fatal(err)
	}
	c := o.config
	got := fmt.Sprint(c, o.logging.Verbosity)
	if want := "{gpu.example.com from-flag s secret configuration :8443  24h0m0s} 4"; got != want {
		t.Errorf("settings are %s, want %s", got, want)
	}
	if err := o.complete(); err != nil {
		t.Error(err)
	}
}
