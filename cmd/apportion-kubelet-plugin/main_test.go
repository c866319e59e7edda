package main

import (
	"strings"
	"testing"

	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/cmd/internal/servicetest"
)

func program() service.Program { return newProgram(defaultOptions()) }

func TestABadCallIsOneLineAndStatusTwo(t *testing.T) {
	servicetest.RefusesBadCalls(t, program,
		servicetest.Bad("unknown flag", []string{"--node-nme=a"}, nil, "unknown flag: --node-nme"),
		servicetest.Bad("argument", []string{"serve"}, nil, `"serve"`, "--help"),
		servicetest.Bad("no node name", nil, nil, "--node-name", "NODE_NAME"),
		servicetest.Bad("number", []string{"--healthcheck-port=ten"}, nil, "--healthcheck-port", `"ten"`),
		servicetest.Bad("port", []string{"--node-name=a", "--healthcheck-port=99999"}, nil, "--healthcheck-port 99999"),
		servicetest.Bad("duration", []string{"--node-name=a", "--poll-interval=0s"}, nil, "--poll-interval 0s", "10s"),
		servicetest.Bad("duration without a unit", []string{"--poll-interval=10"}, nil, "--poll-interval", `"10"`),
		servicetest.Bad("relative path", []string{"--node-name=a", "--cdi-root=cdi"}, nil, `--cdi-root "cdi"`, "absolute"),
		servicetest.Bad("relative driver root", []string{"--node-name=a", "--nvidia-driver-root=r"}, nil, `--nvidia-driver-root "r"`, "absolute"),
		servicetest.Bad("driver name", []string{"--node-name=a", "--driver-name=GPU"}, nil, `--driver-name "GPU"`),
		servicetest.Bad("metrics address", []string{"--node-name=a", "--metrics-address=8080"}, nil, `--metrics-address "8080"`),
		servicetest.Bad("ownership address", []string{"--node-name=a", "--ownership-http-address=8081"}, nil, `--ownership-http-address "8081"`, "localhost:8081"),
		servicetest.Bad("ownership over HTTP without ownership", []string{"--node-name=a", "--ownership=false", "--ownership-http-address=:8081"}, nil, "--ownership-http-address", "need --ownership"),
		servicetest.Bad("relative mapping folder", []string{"--node-name=a", "--dcgm-job-mapping-dir=m"}, nil, `--dcgm-job-mapping-dir "m"`, "absolute"),
		servicetest.Bad("exclusion", []string{"--node-name=a", "--exclude-devices=0"}, nil, `"0"`, "UUID"),
		servicetest.Bad("log format", []string{"--node-name=a", "--logging-format=xml"}, nil, "xml", "text", "json"),
		servicetest.Bad("verbosity", []string{"-v=much"}, nil, `"much"`),
		servicetest.Bad("variable", []string{"--node-name=a"}, servicetest.Environment{"HEALTHCHECK_PORT": "ten"}, "HEALTHCHECK_PORT", `"ten"`),
		servicetest.Bad("two at once", []string{"--cdi-root=cdi"}, nil, `--cdi-root "cdi"`, "--node-name"),
		servicetest.Bad("two variables at once", nil, servicetest.Environment{"HEALTHCHECK_PORT": "ten", "PPROF": "perhaps"}, "HEALTHCHECK_PORT", "PPROF"),
	)
}

func TestSettingsComeFromFlagsThenFromTheEnvironment(t *testing.T) {
	o := defaultOptions()
	servicetest.Parse(t, o, []string{"--node-name=from-flag", "--pprof=false"}, servicetest.Environment{
		"NODE_NAME": "from-variable", "PPROF": "true",
		"DRIVER_NAME": "gpu.example.com", "METRICS_ADDRESS": "", "EXCLUDE_DEVICES": "NVIDIA T4,NVIDIA L4",
		"KUBECONFIG": "/etc/kubeconfig", "POLL_INTERVAL": "30s", "HOSTNAME": "node-z", "HELP": "1",
	})
	got := []any{
		o.config.NodeName, o.config.Pprof, o.config.DriverName, o.config.MetricsAddress, strings.Join(o.exclude, "|"),
		o.kubeconfig, o.pollInterval.String(), o.config.CDIRoot,
	}
	want := []any{
		"from-flag", false, "gpu.example.com", "", "NVIDIA T4|NVIDIA L4",
		"/etc/kubeconfig", "30s", "/var/run/cdi",
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("setting %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func TestTheFlagsInTheManualAreTheProgramsFlags(t *testing.T) {
	servicetest.ManualHasFlags(t, "../../docs/driver.md", defaultOptions())
}

// TestProgramsBesideThePluginLookInItsFolder compares the defaults of flags with the
// same name.
func TestProgramsBesideThePluginLookInItsFolder(t *testing.T) {
	c, d := defaultOptions().config, service.DefaultDriver()
	if d.Name != c.DriverName || d.PluginsDir != c.PluginsDir || d.Root != c.DriverRoot {
		t.Errorf("they look for %+v; the plugin is %s in %s, with the driver in %s", d, c.DriverName, c.PluginsDir, c.DriverRoot)
	}
}
