package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"apportion.dev/apportion/cmd/internal/command"
)

// environment is the variables of a test, and no others.
type environment map[string]string

func (e environment) lookup(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}

func TestABadCallIsOneLineAndStatusTwo(t *testing.T) {
	tests := []struct {
		name string
		args []string
		env  environment
		want []string // Parts of the line.
	}{
		{"unknown flag", []string{"--node-nme=a"}, nil, []string{"unknown flag: --node-nme"}},
		{"argument", []string{"serve"}, nil, []string{`"serve"`, "--help"}},
		{"no node name", nil, nil, []string{"--node-name", "NODE_NAME"}},
		{"number", []string{"--healthcheck-port=ten"}, nil, []string{"--healthcheck-port", `"ten"`}},
		{"port", []string{"--node-name=a", "--healthcheck-port=99999"}, nil, []string{"--healthcheck-port 99999"}},
		{"duration", []string{"--node-name=a", "--poll-interval=0s"}, nil, []string{"--poll-interval 0s", "10s"}},
		{"duration without a unit", []string{"--poll-interval=10"}, nil, []string{"--poll-interval", `"10"`}},
		{"relative path", []string{"--node-name=a", "--cdi-root=cdi"}, nil, []string{`--cdi-root "cdi"`, "absolute"}},
		{"relative fake machine", []string{"--node-name=a", "--fake-machine=m"}, nil, []string{`--fake-machine "m"`, "absolute"}},
		{"driver name", []string{"--node-name=a", "--driver-name=GPU"}, nil, []string{`--driver-name "GPU"`}},
		{"metrics address", []string{"--node-name=a", "--metrics-address=8080"}, nil, []string{`--metrics-address "8080"`}},
		{"ownership address", []string{"--node-name=a", "--ownership-http-address=8081"}, nil, []string{`--ownership-http-address "8081"`, "localhost:8081"}},
		{"ownership over HTTP without ownership", []string{"--node-name=a", "--ownership=false", "--ownership-http-address=:8081"}, nil, []string{"--ownership-http-address", "need --ownership"}},
		{"relative mapping folder", []string{"--node-name=a", "--dcgm-job-mapping-dir=m"}, nil, []string{`--dcgm-job-mapping-dir "m"`, "absolute"}},
		{"relative pods socket", []string{"--node-name=a", "--kubelet-pods-socket=s"}, nil, []string{`--kubelet-pods-socket "s"`, "absolute"}},
		{"exclusion", []string{"--node-name=a", "--exclude-devices=0"}, nil, []string{`"0"`, "UUID"}},
		{"log format", []string{"--node-name=a", "--logging-format=xml"}, nil, []string{"xml", "text", "json"}},
		{"verbosity", []string{"-v=much"}, nil, []string{`"much"`}},
		{"variable", []string{"--node-name=a"}, environment{"HEALTHCHECK_PORT": "ten"}, []string{"HEALTHCHECK_PORT", `"ten"`}},
		{"two at once", []string{"--cdi-root=cdi"}, nil, []string{`--cdi-root "cdi"`, "--node-name"}},
		{"two variables at once", nil, environment{"HEALTHCHECK_PORT": "ten", "PPROF": "perhaps"}, []string{"HEALTHCHECK_PORT", "PPROF"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := run(t.Context(), test.args, test.env.lookup, &stderr); code != 2 {
				t.Errorf("exit status is %d, want 2", code)
			}
			if got := stderr.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "apportion-kubelet-plugin: ") {
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
	if err := flags.Parse([]string{"--node-name=from-flag", "--pprof=false"}); err != nil {
		t.Fatal(err)
	}
	env := environment{
		"NODE_NAME": "from-variable", "PPROF": "true",
		"DRIVER_NAME": "gpu.example.com", "METRICS_ADDRESS": "", "EXCLUDE_DEVICES": "NVIDIA T4,NVIDIA L4",
		"KUBECONFIG": "/etc/kubeconfig", "POLL_INTERVAL": "30s", "V": "4", "LOGGING_FORMAT": "json", "HOSTNAME": "node-z", "HELP": "1",
	}
	if err := command.FromEnvironment(flags, env.lookup); err != nil {
		t.Fatal(err)
	}
	got := []any{
		o.config.NodeName, o.config.Pprof, o.config.DriverName, o.config.MetricsAddress, strings.Join(o.exclude, "|"),
		o.kubeconfig, o.pollInterval.String(), int(o.logging.Verbosity), o.logging.Format, o.config.CDIRoot,
	}
	want := []any{
		"from-flag", false, "gpu.example.com", "", "NVIDIA T4|NVIDIA L4",
		"/etc/kubeconfig", "30s", 4, "json", "/var/run/cdi",
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("setting %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func TestTheKubeletsPodsAreBesideItsPlugins(t *testing.T) {
	for plugins, want := range map[string]string{
		defaultOptions().config.PluginsDir: "/var/lib/kubelet/pods-api/pods-api.sock",
		"/srv/k0s/kubelet/plugins/":        "/srv/k0s/kubelet/pods-api/pods-api.sock",
	} {
		if got := podsSocket(plugins); got != want {
			t.Errorf("with plugins in %q the socket is %s, want %s", plugins, got, want)
		}
	}
}

// TestTheFlagsInTheManualAreTheProgramsFlags compares the table in docs/driver.md.
func TestTheFlagsInTheManualAreTheProgramsFlags(t *testing.T) {
	got := manualTable(t, "../../docs/driver.md", "flags")
	logging, all := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	logsapi.AddFlags(logsapi.NewLoggingConfiguration(), logging)
	defaultOptions().addFlags(all)
	var want strings.Builder
	want.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	all.VisitAll(func(f *pflag.Flag) {
		if logging.Lookup(f.Name) != nil {
			return
		}
		value := f.DefValue
		if value != "" && value != "[]" {
			value = "`" + value + "`"
		}
		want.WriteString("| `--" + f.Name + "` | " + strings.TrimPrefix(value, "[]") + " | " + f.Usage + " |\n")
	})
	if got != want.String() {
		t.Errorf("the table is\n%s\nwant\n%s", got, want.String())
	}
}

// manualTable returns what a file has between the marks of that name.
func manualTable(t *testing.T, file, name string) string {
	t.Helper()
	manual, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(manual), "<!-- "+name+" -->\n")
	table, _, ended := strings.Cut(rest, "<!-- end of "+name+" -->")
	if !ok || !ended {
		t.Fatalf("%s has no table between the marks of %s", file, name)
	}
	return table
}
