package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one long-lived program of the cluster. It outlives the program
// that started it; what identifies it is kept in a file, so that any later
// program can find, check and stop it.
type process struct {
	// name is unique in the cluster: "etcd", "node-a.kubelet".
	name string
	// dir is the cluster's folder.
	dir string
}

// identity tells one process from all others, before and after it: process ids
// are used again, a pair of id and start time is not until the next boot.
type identity struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks since the boot (proc_pid_stat(5), field 22).
	StartTime uint64 `json:"startTime"`
	BootID    string `json:"bootID"`
}

func (p process) pidPath() string { return filepath.Join(p.dir, pidsFolder, p.name) }
func (p process) logPath() string { return filepath.Join(p.dir, logsFolder, p.name+".log") }

// pid returns the host's id of the process, or 0 if it does not run.
func (p process) pid() int {
	data, err := os.ReadFile(p.pidPath())
	if err != nil {
		return 0
	}
	var recorded identity
	if json.Unmarshal(data, &recorded) != nil || recorded.PID <= 0 {
		return 0
	}
	if now, err := identify(recorded.PID); err != nil || now != recorded {
		return 0
	}
	return recorded.PID
}

// record makes the running process pid the one that p stands for.
func (p process) record(pid int) error {
	id, err := identify(pid)
	if err != nil {
		return fmt.Errorf("%s ended as soon as it was started%s", p.name, p.logTail())
	}
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return writeFile(p.pidPath(), data, 0o644)
}

// openLog opens the file to which the process writes, for appending.
func (p process) openLog() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(p.logPath()), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// logTail returns the end of the log as a part of an error message.
func (p process) logTail() string {
	data, err := os.ReadFile(p.logPath())
	if err != nil || len(data) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	lines = lines[max(0, len(lines)-5):]
	return fmt.Sprintf("; the end of %s:\n  %s", p.logPath(), strings.Join(lines, "\n  "))
}

// stop ends the process: with SIGTERM, and with SIGKILL what does not end
// within the grace period (0: SIGKILL at once). It is no error if it does not run.
func (p process) stop(ctx context.Context, grace time.Duration) error {
	pid := p.pid()
	if pid == 0 {
		return p.forget()
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return p.forget()
	} else if err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	defer unix.Close(fd)
	if p.pid() == 0 { // it ended before the handle was opened
		return p.forget()
	}

	if grace > 0 {
		if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
		patience, cancel := context.WithTimeout(ctx, grace)
		err := waitExit(patience, fd)
		cancel()
		if err == nil {
			return p.reap(pid)
		}
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	if err := waitExit(ctx, fd); err != nil {
		return fmt.Errorf("wait for the end of %s (process %d): %w", p.name, pid, err)
	}
	return p.reap(pid)
}

// reap clears the exit status if the process was a child of this program.
func (p process) reap(pid int) error {
	if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != nil && !errors.Is(err, unix.ECHILD) {
		return fmt.Errorf("reap %s: %w", p.name, err)
	}
	return p.forget()
}

func (p process) forget() error {
	if err := os.Remove(p.pidPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// waitExit waits until the process behind the handle has ended.
func waitExit(ctx context.Context, pidfd int) error {
	const step = 100 // ms, after which the context is looked at again
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, step)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case ready > 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// identify reads what tells the process from others. A process that has ended
// but is not reaped yet does not exist for it.
func identify(pid int) (identity, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return identity{}, err
	}
	// The command in parentheses may hold anything, so count from its end.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, startTime = 0, 19
	if len(fields) <= startTime {
		return identity{}, fmt.Errorf("read the status of process %d: unexpected format", pid)
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return identity{}, fmt.Errorf("process %d: %w", pid, syscall.ESRCH)
	}
	started, err := strconv.ParseUint(fields[startTime], 10, 64)
	if err != nil {
		return identity{}, fmt.Errorf("read the start time of process %d: %w", pid, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return identity{}, err
	}
	return identity{PID: pid, StartTime: started, BootID: strings.TrimSpace(string(boot))}, nil
}

// writeFile replaces a file in one step and makes its folder if needed.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
