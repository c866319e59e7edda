package cluster

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// startChild starts a program that the test stands for. It is on record before
// its standard input is closed.
func startChild(t *testing.T, script string) (process, int) {
	t.Helper()
	p, cmd, input := startWaitingChild(t, script)
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	return p, cmd.Process.Pid
}

func startWaitingChild(t *testing.T, script string) (process, *exec.Cmd, io.Closer) {
	t.Helper()
	p := process{name: "child", dir: t.TempDir()}
	cmd := exec.Command("/bin/sh", "-c", script)
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.record(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return p, cmd, input
}

func TestStopOfAProcessThatEndedByItself(t *testing.T) {
	p, cmd, input := startWaitingChild(t, "echo; read _")
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // Its exit status is that of read.
	for range 2 {
		if err := p.stop(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
	}
	if got := p.pid(); got != 0 {
		t.Errorf("it runs as %d", got)
	}
}

func TestStop(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		grace  time.Duration
	}{
		"ends when told": {"echo; exec sleep 1000", time.Minute},
		"must be killed": {"trap '' TERM; echo; while :; do sleep 0.1; done", 50 * time.Millisecond},
		"killed at once": {"trap '' TERM; echo; while :; do sleep 0.1; done", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, pid := startChild(t, test.script+"\nread _ </dev/null")
			if err := p.stop(t.Context(), test.grace); err != nil {
				t.Fatal(err)
			}
			if got := p.pid(); got != 0 {
				t.Errorf("after stop it runs as %d", got)
			}
			if _, err := identify(pid); err == nil {
				t.Errorf("process %d is still there", pid)
			}
			if err := p.stop(t.Context(), test.grace); err != nil {
				t.Errorf("the second stop: %v", err)
			}
		})
	}
}

// Process ids are used again: one that another process has now must not be killed.
func TestStopSparesAnotherProcessWithTheSameID(t *testing.T) {
	p, pid := startChild(t, "echo; exec sleep 1000")
	real, err := os.ReadFile(p.pidPath())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*identity){
		"started at another time": func(id *identity) { id.StartTime++ },
		"of another boot":         func(id *identity) { id.BootID = "0c3f" },
	} {
		var id identity
		if err := json.Unmarshal(real, &id); err != nil {
			t.Fatal(err)
		}
		change(&id)
		data, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.pidPath(), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := p.stop(t.Context(), 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := identify(pid); err != nil {
			t.Fatalf("%s: the other process was killed", name)
		}
	}
	if err := p.record(pid); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
}

func TestLogTail(t *testing.T) {
	p := process{name: "etcd", dir: t.TempDir()}
	if got := p.logTail(); got != "" {
		t.Errorf("without a log it is %q", got)
	}
	if err := writeFile(p.logPath(), []byte("1\n2\n3\n4\n5\n6\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := p.logTail(); !strings.HasSuffix(got, ":\n  2\n  3\n  4\n  5\n  6") {
		t.Errorf("it is %q", got)
	}
}

func TestNamespacedIDs(t *testing.T) {
	const status = "Name:\tkubelet\nPid:\t4711\nNSpid:\t4711\t44\nNSpgid:\t4711\t44\n"
	if got := namespacedIDs([]byte(status)); len(got) != 2 || got[1] != "44" {
		t.Errorf("ids are %v", got)
	}
	if got := namespacedIDs([]byte("Name:\tkthreadd\n")); got != nil {
		t.Errorf("ids of a status without any are %v", got)
	}
}
