package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/pflag"

	"apportion.dev/apportion/cmd/internal/command"
	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/node/mps"
)

// environment is the variables of a test, and no others.
type environment map[string]string

func (e environment) lookup(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}

func TestABadCallIsOneLineAndStatusTwo(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		env  environment
		want []string // Parts of the line.
	}{
		{"unknown flag", []string{"--driver=a"}, nil, []string{"unknown flag: --driver"}},
		{"argument", []string{"serve"}, nil, []string{`"serve"`, "--help"}},
		{"driver name", []string{"--driver-name=../a"}, nil, []string{`--driver-name "../a"`}},
		{"relative paths", []string{"--kubelet-plugins-directory-path=p", "--container-driver-root=r", "--fake-machine=m"}, nil, []string{`"p"`, `"r"`, `"m"`, "absolute"}},
		{"amount", []string{"--shared-memory=much"}, nil, []string{"--shared-memory", `"much"`}},
		{"small amount", []string{"--shared-memory=1Ki"}, nil, []string{"--shared-memory 1Ki", "1Mi"}},
		{"log format", []string{"--logging-format=xml"}, nil, []string{"xml", "text", "json"}},
		{"variable", nil, environment{"MULTI_USER": "perhaps"}, []string{"MULTI_USER", `"perhaps"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := run(t.Context(), test.args, test.env.lookup, &stderr); code != 2 {
				t.Errorf("exit status is %d, want 2", code)
			}
			if got := stderr.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "apportion-mps: ") {
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
	if err := flags.Parse([]string{"--driver-name=from-flag"}); err != nil {
		t.Fatal(err)
	}
	env := environment{"DRIVER_NAME": "from-variable", "MULTI_USER": "false", "SHARED_MEMORY": "64Mi", "HELP": "1"}
	if err := command.FromEnvironment(flags, env.lookup); err != nil {
		t.Fatal(err)
	}
	if o.driverName != "from-flag" || o.multiUser || o.sharedMemory.Value() != 64<<20 || o.driverRoot != "/driver-root" {
		t.Errorf("%+v", o)
	}
}

func TestDaemonsOfAFakeMachineRunUntilTheProgramIsToldToEnd(t *testing.T) {
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", GPUs: []string{"t4"}})
	if err != nil {
		t.Fatal(err)
	}
	summary, err := m.Summary()
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := os.MkdirTemp("", "mps") // A test's own folder has too long a path.
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(plugins)
	folder := filepath.Join(plugins, "gpu.example.com", "mps")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	if err := watch.Add(folder); err != nil {
		t.Fatal(err)
	}

	ctx, end := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"--kubelet-plugins-directory-path=" + plugins, "--driver-name=gpu.example.com", "--fake-machine=" + m.Dir()}, environment{}.lookup, &stderr)
	}()
	socket := filepath.Join(folder, mps.SocketName)
	for {
		// Its mode is set when it listens.
		if event := <-watch.Events; event.Name == socket && event.Has(fsnotify.Chmod) {
			break
		}
	}
	if err := mps.New(socket).Acquire(t.Context(), summary.GPUs[0].UUID, "claim-a"); err != nil {
		t.Error(err)
	}
	end()
	if code := <-ended; code != 0 || stderr.Len() > 0 {
		t.Errorf("exit status %d, output %q", code, stderr.String())
	}
}

func TestAFailureIsOneLineAndStatusOne(t *testing.T) {
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"enter", "{"}, environment{}.lookup, &stderr); code != 1 || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("status %d, output %q", code, stderr.String())
	}
}

func TestAFakeMachineMustBeThere(t *testing.T) {
	o := defaultOptions()
	o.fakeMachine = "/nonexistent"
	if err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Error(err)
	}
}
