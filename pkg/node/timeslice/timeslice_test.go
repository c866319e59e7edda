package timeslice

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

const anyGPU = "GPU-00000000-0000-4000-8000-000000000000"

func newMachine(t *testing.T) (machine *fakegpu.Machine, gpu string) {
	t.Helper()
	m, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", GPUs: []string{"t4"}})
	if err != nil {
		t.Fatal(err)
	}
	summary, err := m.Summary()
	if err != nil {
		t.Fatal(err)
	}
	return m, summary.GPUs[0].UUID
}

func TestSetReachesTheGPU(t *testing.T) {
	m, gpu := newMachine(t)
	for _, test := range []struct{ interval, want string }{
		{"Long", "3"}, {"Medium", "2"}, {"Short", "1"}, {"Default", "0"},
	} {
		if err := New(m.DriverRoot()).Set(t.Context(), gpu, test.interval); err != nil {
			t.Fatal(err)
		}
		if got, err := m.TimeSlice(gpu); err != nil || got != test.want {
			t.Errorf("%s: the GPU has %q, %v; want %q", test.interval, got, err, test.want)
		}
	}
}

func TestSetSaysWhatIsWrong(t *testing.T) {
	m, gpu := newMachine(t)
	for _, test := range []struct {
		name, root, gpu, interval string
		want                      []string
	}{
		{"interval", m.DriverRoot(), gpu, "Forever", []string{`"Forever"`, "Medium"}},
		{"no interval", m.DriverRoot(), gpu, "", []string{`""`}},
		{"partition", m.DriverRoot(), strings.Replace(anyGPU, "GPU", "MIG", 1), "Short", []string{"MIG-"}},
		{"option in place of a GPU", m.DriverRoot(), "--reset", "Short", []string{"--reset"}},
		{"no GPU", m.DriverRoot(), anyGPU, "Short", []string{anyGPU, "exit status 6", "it said: No devices were found"}},
		{"no driver", t.TempDir(), anyGPU, "Short", []string{"nvidia-smi", "usr/bin"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := New(test.root).Set(t.Context(), test.gpu, test.interval)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q has no %q", err, want)
				}
			}
		})
	}
}

func TestMissingProgramIsNotExist(t *testing.T) {
	if err := New(t.TempDir()).Set(t.Context(), anyGPU, "Short"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// program puts a script in place of nvidia-smi.
func program(t *testing.T, script string) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/nvidia-smi"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// A tool that hangs in the kernel's driver hung the plugin, and a shell's children
// outlived it.
func TestAHangingToolIsKilledWithItsChildren(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// The child has the FIFO open, and the shell waits for it.
	s := New(program(t, fmt.Sprintf("echo still here\n(read -r line <>%q) >%q &\nwait\n", fifo, fifo)))
	t.Run("by the caller", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Set(ctx, anyGPU, "Short") }()
		// Opening returns when the child has opened the other side.
		f, err := os.Open(fifo)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		// The end of the file comes when the last writer is gone.
		if n, err := f.Read(make([]byte, 1)); n != 0 {
			t.Error(n, err)
		}
	})
	t.Run("by the limit", func(t *testing.T) {
		s.timeout = time.Millisecond
		if err := s.Set(t.Context(), anyGPU, "Short"); err == nil || !strings.Contains(err.Error(), "did not end within 1ms") {
			t.Error(err)
		}
	})
}
