package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"

	"apportion.dev/apportion/cmd/internal/service"
	"apportion.dev/apportion/cmd/internal/servicetest"
	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/node/mps"
)

func program() service.Program { return newProgram(defaultOptions()) }

func TestABadCallIsOneLineAndStatusTwo(t *testing.T) {
	servicetest.RefusesBadCalls(t, program,
		servicetest.Bad("unknown flag", []string{"--driver=a"}, nil, "unknown flag: --driver"),
		servicetest.Bad("argument", []string{"serve"}, nil, `"serve"`, "--help"),
		servicetest.Bad("driver name", []string{"--driver-name=../a"}, nil, `--driver-name "../a"`),
		servicetest.Bad("relative paths", []string{"--kubelet-plugins-directory-path=p", "--container-driver-root=r"}, nil, `"p"`, `"r"`, "absolute"),
		servicetest.Bad("amount", []string{"--shared-memory=much"}, nil, "--shared-memory", `"much"`),
		servicetest.Bad("small amount", []string{"--shared-memory=1Ki"}, nil, "--shared-memory 1Ki", "1Mi"),
		servicetest.Bad("log format", []string{"--logging-format=xml"}, nil, "xml", "text", "json"),
		servicetest.Bad("variable", nil, servicetest.Environment{"MULTI_USER": "perhaps"}, "MULTI_USER", `"perhaps"`),
	)
}

func TestSettingsComeFromFlagsThenFromTheEnvironment(t *testing.T) {
	o := defaultOptions()
	servicetest.Parse(t, o, []string{"--driver-name=from-flag"}, servicetest.Environment{"DRIVER_NAME": "from-variable", "MULTI_USER": "false", "SHARED_MEMORY": "64Mi", "HELP": "1"})
	if o.driver.Name != "from-flag" || o.multiUser || o.sharedMemory.Value() != 64<<20 || o.driver.Root != "/driver-root" {
		t.Errorf("%+v", o)
	}
}

func TestDaemonsRunUntilTheProgramIsToldToEnd(t *testing.T) {
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
	o := defaultOptions()
	o.isolate = false // Mounting takes root.
	go func() {
		ended <- newProgram(o).Execute(ctx, []string{
			"--kubelet-plugins-directory-path=" + plugins, "--driver-name=gpu.example.com", "--container-driver-root=" + m.DriverRoot(),
		}, servicetest.Environment{}.Lookup, &stderr)
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
	if code := program().Execute(t.Context(), []string{"enter", "{"}, servicetest.Environment{}.Lookup, &stderr); code != 1 || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("status %d, output %q", code, stderr.String())
	}
}
