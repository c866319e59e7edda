package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/cmd/internal/servicetest"
	"apportion.dev/apportion/pkg/metrics/gpumetrics"
)

func program() service.Program { return newProgram(defaultOptions()) }

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestABadCallIsOneLineAndStatusTwo(t *testing.T) {
	servicetest.RefusesBadCalls(t, program,
		servicetest.Bad("unknown flag", []string{"--colectors=a"}, nil, "unknown flag: --colectors"),
		servicetest.Bad("argument", []string{"serve"}, nil, `"serve"`, "--help"),
		servicetest.Bad("driver name", []string{"--driver-name=../a"}, nil, `--driver-name "../a"`),
		servicetest.Bad("relative paths", []string{"--kubelet-plugins-directory-path=p", "--container-driver-root=r", "--ownership-socket=s"}, nil, `"p"`, `"r"`, `"s"`, "absolute"),
		servicetest.Bad("interval", []string{"--collect-interval=1ms"}, nil, "--collect-interval 1ms", "100ms"),
		servicetest.Bad("interval in milliseconds, as dcgm-exporter has it", []string{"--collect-interval=1000"}, nil, "--collect-interval", `"1000"`),
		servicetest.Bad("retention", []string{"--retain-ended=0s"}, nil, "--retain-ended 0s"),
		servicetest.Bad("address", []string{"--web.listen-address=9400"}, nil, `--web.listen-address "9400"`),
		servicetest.Bad("no web config", []string{"--web.config.file=/nonexistent"}, nil, "--web.config.file", "/nonexistent"),
		servicetest.Bad("bad web config", []string{"--web.config.file=" + file(t, "web.yml", "tls: {}\n")}, nil, "--web.config.file", "tls"),
		servicetest.Bad("no fields file", []string{"--collectors=/nonexistent"}, nil, "--collectors", "/nonexistent"),
		servicetest.Bad("bad fields file", []string{"-f", file(t, "f.csv", "DCGM_FI_DEV_GPU_UTIL\n")}, nil, "--collectors", "line 1"),
		servicetest.Bad("no field that NVML has", []string{"-f", file(t, "f.csv", "DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, No GPU's.\n")}, nil, "--collectors", "docs/metrics.md"),
		servicetest.Bad("log format", []string{"--logging-format=xml"}, nil, "xml", "text", "json"),
		servicetest.Bad("variable", nil, servicetest.Environment{"WEB_LISTEN_ADDRESS": "9400"}, `"9400"`),
	)
}

func TestSettingsComeFromFlagsThenFromTheEnvironment(t *testing.T) {
	o := defaultOptions()
	servicetest.Parse(t, o, []string{"--driver-name=from-flag", "-f", file(t, "f.csv", "# Mine.\nDCGM_FI_DEV_GPU_UTIL, gauge, Busy.\nDCGM_FI_DEV_NO_SUCH, gauge, None.\n")}, servicetest.Environment{
		"DRIVER_NAME": "from-variable", "NODE_NAME": "node-a", "COLLECT_INTERVAL": "5s", "WEB_LISTEN_ADDRESS": "localhost:0",
		"RETAIN_ENDED": "1m", "HELP": "1", "HOSTNAME": "host",
	})
	if err := o.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := []string{o.driver.Name, o.nodeName, o.interval.String(), o.address, o.retainEnded.String(), o.ownershipSocket, strings.Join(o.fields, " ")}
	want := []string{"from-flag", "node-a", "5s", "localhost:0", "1m0s", "/var/lib/kubelet/plugins/from-flag/ownership/ownership.sock", "DCGM_FI_DEV_GPU_UTIL"}
	if !slices.Equal(got, want) {
		t.Errorf("settings are %q, want %q", got, want)
	}
}

func TestTheHostsNameAndDCGMsFieldsAreTheDefaults(t *testing.T) {
	o := defaultOptions()
	o.ownershipSocket = "/run/ownership.sock"
	if err := o.Complete(t.Context()); err != nil {
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

func TestTheFlagsInTheManualAreTheProgramsFlags(t *testing.T) {
	servicetest.ManualHasFlags(t, "../../docs/metrics.md", defaultOptions())
}
