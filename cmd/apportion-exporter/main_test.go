package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"apportion.dev/apportion/cmd/internal/command"
	"apportion.dev/apportion/pkg/metrics/gpumetrics"
)

// environment is the variables of a test, and no others.
type environment map[string]string

func (e environment) lookup(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestABadCallIsOneLineAndStatusTwo(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		env  environment
		want []string // Parts of the line.
	}{
		{"unknown flag", []string{"--colectors=a"}, nil, []string{"unknown flag: --colectors"}},
		{"argument", []string{"serve"}, nil, []string{`"serve"`, "--help"}},
		{"driver name", []string{"--driver-name=../a"}, nil, []string{`--driver-name "../a"`}},
		{"relative paths", []string{"--kubelet-plugins-directory-path=p", "--container-driver-root=r", "--fake-machine=m", "--ownership-socket=s"}, nil, []string{`"p"`, `"r"`, `"m"`, `"s"`, "absolute"}},
		{"interval", []string{"--collect-interval=1ms"}, nil, []string{"--collect-interval 1ms", "100ms"}},
		{"interval in milliseconds, as dcgm-exporter has it", []string{"--collect-interval=1000"}, nil, []string{"--collect-interval", `"1000"`}},
		{"retention", []string{"--retain-ended=0s"}, nil, []string{"--retain-ended 0s"}},
		{"address", []string{"--web.listen-address=9400"}, nil, []string{`--web.listen-address "9400"`}},
		{"no web config", []string{"--web.config.file=/nonexistent"}, nil, []string{"--web.config.file", "/nonexistent"}},
		{"bad web config", []string{"--web.config.file=" + file(t, "web.yml", "tls: {}\n")}, nil, []string{"--web.config.file", "tls"}},
		{"no fields file", []string{"--collectors=/nonexistent"}, nil, []string{"--collectors", "/nonexistent"}},
		{"bad fields file", []string{"-f", file(t, "f.csv", "DCGM_FI_DEV_GPU_UTIL\n")}, nil, []string{"--collectors", "line 1"}},
		{"no field that NVML has", []string{"-f", file(t, "f.csv", "DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, No GPU's.\n")}, nil, []string{"--collectors", "docs/metrics.md"}},
		{"log format", []string{"--logging-format=xml"}, nil, []string{"xml", "text", "json"}},
		{"variable", nil, environment{"WEB_LISTEN_ADDRESS": "9400"}, []string{`"9400"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := run(t.Context(), test.args, test.env.lookup, &stderr); code != 2 {
				t.Errorf("exit status is %d, want 2", code)
			}
			if got := stderr.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "apportion-exporter: ") {
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
	if err := flags.Parse([]string{"--driver-name=from-flag", "-f", file(t, "f.csv", "# Mine.\nDCGM_FI_DEV_GPU_UTIL, gauge, Busy.\nDCGM_FI_DEV_NO_SUCH, gauge, None.\n")}); err != nil {
		t.Fatal(err)
	}
	env := environment{
		"DRIVER_NAME": "from-variable", "NODE_NAME": "node-a", "COLLECT_INTERVAL": "5s", "WEB_LISTEN_ADDRESS": "localhost:0",
		"RETAIN_ENDED": "1m", "HELP": "1", "HOSTNAME": "host",
	}
	if err := command.FromEnvironment(flags, withoutDots(env.lookup)); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := []string{o.driverName, o.nodeName, o.interval.String(), o.address, o.retainEnded.String(), o.ownershipSocket, strings.Join(o.fields, " ")}
	want := []string{"from-flag", "node-a", "5s", "localhost:0", "1m0s", "/var/lib/kubelet/plugins/from-flag/ownership/ownership.sock", "DCGM_FI_DEV_GPU_UTIL"}
	if !slices.Equal(got, want) {
		t.Errorf("settings are %q, want %q", got, want)
	}
}

func TestTheHostsNameAndDCGMsFieldsAreTheDefaults(t *testing.T) {
	o := defaultOptions()
	o.ownershipSocket = "/run/ownership.sock"
	if err := o.complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if o.nodeName != name || o.ownershipSocket != "/run/ownership.sock" || !slices.Equal(o.fields, gpumetrics.Default()) {
		t.Errorf("%+v", o)
	}
}

// TestTheFlagsInTheManualAreTheProgramsFlags compares the table in docs/metrics.md.
func TestTheFlagsInTheManualAreTheProgramsFlags(t *testing.T) {
	manual, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(manual), "<!-- flags -->\n")
	got, _, ended := strings.Cut(rest, "<!-- end of flags -->")
	if !ok || !ended {
		t.Fatal("the manual has no table of flags")
	}
	logging, all := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	logsapi.AddFlags(logsapi.NewLoggingConfiguration(), logging)
	defaultOptions().addFlags(all)
	var want strings.Builder
	want.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	all.VisitAll(func(f *pflag.Flag) {
		if logging.Lookup(f.Name) != nil {
			return
		}
		value, name := f.DefValue, "`--"+f.Name+"`"
		if value != "" {
			value = "`" + value + "`"
		}
		if f.Shorthand != "" {
			name += ", `-" + f.Shorthand + "`"
		}
		want.WriteString("| " + name + " | " + value + " | " + f.Usage + " |\n")
	})
	if got != want.String() {
		t.Errorf("the table in testdata/metrics.md.tmpl of pkg/metrics/exporter is\n%s\nwant\n%s", got, want.String())
	}
}
