package main

import (
	"fmt"
	"testing"

	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/cmd/internal/servicetest"
)

func program() service.Program { return newProgram(defaultOptions()) }

func TestABadCallIsOneLineAndStatusTwo(t *testing.T) {
	named := func(more ...string) []string {
		return append([]string{"--namespace=gpus", "--service-name=w", "--secret-name=w", "--configuration-name=w"}, more...)
	}
	servicetest.RefusesBadCalls(t, program,
		servicetest.Bad("unknown flag", []string{"--servce=a"}, nil, "unknown flag: --servce"),
		servicetest.Bad("argument", []string{"serve"}, nil, `"serve"`, "--help"),
		servicetest.Bad("nothing", nil, nil, "--namespace", "SERVICE_NAME", "--secret-name", "CONFIGURATION_NAME"),
		servicetest.Bad("driver name", named("--driver-name=GPU"), nil, `--driver-name "GPU"`),
		servicetest.Bad("no driver name", named("--driver-name="), nil, "--driver-name is required"),
		servicetest.Bad("address", named("--address=8443"), nil, `--address "8443"`),
		servicetest.Bad("no address", named("--address="), nil, `--address ""`),
		servicetest.Bad("metrics address", named("--metrics-address=x"), nil, `--metrics-address "x"`),
		servicetest.Bad("lifetime", named("--certificate-lifetime=1s"), nil, "--certificate-lifetime 1s", "1m0s"),
		servicetest.Bad("lifetime without a unit", named(), servicetest.Environment{"CERTIFICATE_LIFETIME": "90"}, "CERTIFICATE_LIFETIME", `"90"`),
		servicetest.Bad("relative folder", []string{"--certificate-dir=c"}, nil, `--certificate-dir "c"`, "absolute"),
		servicetest.Bad("log format", named("--logging-format=xml"), nil, "xml", "text", "json"),
	)
}

func TestSettingsComeFromFlagsThenFromTheEnvironment(t *testing.T) {
	o := defaultOptions()
	servicetest.Parse(t, o, []string{"--namespace=from-flag", "--service-name=s"}, servicetest.Environment{
		"NAMESPACE": "from-variable", "SECRET_NAME": "secret", "CONFIGURATION_NAME": "configuration", "DRIVER_NAME": "gpu.example.com",
		"METRICS_ADDRESS": "", "CERTIFICATE_LIFETIME": "24h", "HOSTNAME": "x", "HELP": "1",
	})
	c := o.config
	got := fmt.Sprint(c)
	if want := "{gpu.example.com  from-flag s secret configuration :8443  24h0m0s}"; got != want {
		t.Errorf("settings are %s, want %s", got, want)
	}
	if err := o.Complete(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestACertificateThatOthersKeepNeedsNoNames(t *testing.T) {
	o := defaultOptions()
	servicetest.Parse(t, o, []string{"--certificate-dir=/certificates"}, nil)
	if err := o.Complete(t.Context()); err != nil {
		t.Error(err)
	}
}
