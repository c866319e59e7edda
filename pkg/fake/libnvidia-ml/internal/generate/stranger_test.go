package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// stranger builds a program in C that knows only NVML's documentation.
func stranger(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "stranger")
	if out, err := exec.Command("cc", "-Wall", "-Werror", "-o", program, "testdata/stranger.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func TestAProgramInCReadsTheMachine(t *testing.T) {
	m := newMachine(t, "h100-sxm5-80gb", "t4")
	must(t, m.SetLoad("1", fakegpu.Load{Processes: []fakegpu.Process{
		{PID: 4001, MemoryBytes: 1 << 30}, {PID: 4002, MemoryBytes: 1 << 30},
	}}))
	command := exec.Command(stranger(t), libraryOf(m))
	stdout, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if line == "ready\n" {
			break
		}
		if err != nil {
			t.Fatalf("it ended early: %q, %v", line, command.Wait())
		}
		t.Error(line)
	}
	must(t, m.RaiseXID("1", 48))
	must(t, m.LoseGPU("0"))
	rest, err := io.ReadAll(lines)
	must(t, err)
	if err := command.Wait(); err != nil || len(rest) > 0 {
		t.Errorf("%v\n%s", err, rest)
	}
}

func TestAProgramInCFindsNoMachine(t *testing.T) {
	alone := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	must(t, os.Link(built, alone))
	command := exec.Command(stranger(t), alone)
	command.Env = append(os.Environ(), "NO_MACHINE=1")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
