package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/fake/fakeroot"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// driverVersion is that of the tests' machines.
const driverVersion = "615.10.02"

// built is the path of the library, made once for all tests.
var built string

// readerEnv makes the test binary another process: one of readers, which answers on its
// standard output. A library that was loaded stays until the process ends.
const readerEnv = "LIBNVIDIA_ML_TEST_READER"

// readers write what they read of the machine with a driver root.
var readers = map[string]func(driverRoot string) (any, error){
	"snapshot": func(driverRoot string) (any, error) {
		sysfs, ok := os.DirFS(filepath.Join(driverRoot, "sys")).(fs.ReadLinkFS)
		if !ok {
			return nil, errors.New("os.DirFS reads no links")
		}
		source := inventory.NewNVML(inventory.Options{Library: inventory.OpenLibrary("", driverRoot), SysFS: sysfs})
		return source.Snapshot(context.Background())
	},
}

func TestMain(m *testing.M) {
	if name := os.Getenv(readerEnv); name != "" {
		answer, err := readers[name](os.Args[1])
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(answer)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "libnvidia-ml-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = filepath.Join(dir, "libnvidia-ml.so")
	build := exec.Command("make", "-s", "-C", "../../../../..", "fake-library", "FAKE_LIBRARY="+built)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %v\n%s", build, err, out)
		return 1
	}
	return m.Run()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newMachine makes a machine whose driver root has the library.
func newMachine(t *testing.T, gpus ...string) *fakegpu.Machine {
	t.Helper()
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", DriverVersion: driverVersion, GPUs: gpus})
	must(t, err)
	must(t, os.Remove(libraryOf(m)))
	must(t, os.Link(built, libraryOf(m)))
	return m
}

func libraryOf(m *fakegpu.Machine) string {
	return filepath.Join(m.DriverRoot(), fakeroot.LibraryDir, "libnvidia-ml.so."+driverVersion)
}

// readThroughLibrary lets another process read the machine through the library.
func readThroughLibrary(t *testing.T, m *fakegpu.Machine, reader string, answer any) {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	command := exec.Command(program, m.DriverRoot())
	command.Env = append(os.Environ(), readerEnv+"="+reader)
	command.Stderr = os.Stderr
	out, err := command.Output()
	must(t, err)
	must(t, json.Unmarshal(out, answer))
}

func TestInventoryReadsTheSameThroughTheLibrary(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb", "h100-sxm5-80gb", "t4")
	_, err := m.CreateMIG("1", "1g.10gb", 2)
	must(t, err)
	want, err := inventory.NewNVML(inventory.Options{Library: m.NVML(), SysFS: m.SysFS()}).Snapshot(t.Context())
	must(t, err)
	var got inventory.Node
	readThroughLibrary(t, m, "snapshot", &got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("through the library (+) differs from the Go value (-):\n%s", diff)
	}
	if len(got.GPUs) != 3 || len(got.GPUs[1].MIG.Instances) != 1 {
		t.Errorf("got %+v, want three GPUs and a partition on the second", got)
	}
}
