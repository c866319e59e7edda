package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces are what a simulated machine has of its own.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS

// machine is a simulated machine: a set of namespaces that one process holds,
// the first of its process namespace. When the holder ends, the kernel ends all
// other processes of the machine and drops its mounts and network interfaces.
type machine struct {
	name   string
	holder process
	// environment of the programs on the machine.
	environment []string
}

func newMachine(dir, binDir, name string) machine {
	return machine{
		name:   name,
		holder: process{name: name + ".machine", dir: dir},
		// A clean environment: a proxy that the caller's names must not come
		// between the parts of the cluster.
		environment: []string{
			"PATH=" + binDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=/root",
			"LANG=C.UTF-8",
		},
	}
}

// boot starts the machine with nothing on it but a mount table that no longer
// reaches the host's. program is the holder, which must reap orphans.
func (m machine) boot(program string) error {
	log, err := m.holder.openLog()
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, m.name, m.holder.dir) // the arguments are for the reader of a process list
	cmd.Env, cmd.Dir = m.environment, "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: namespaces}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the machine %s: %w (a kernel with namespaces, and root, are needed)", m.name, err)
	}
	if err := m.holder.record(cmd.Process.Pid); err != nil {
		return err
	}
	if err := cmd.Process.Release(); err != nil {
		return err
	}
	if err := m.inside(m.detach); err != nil {
		return err
	}
	// By a program, because a new /proc shows the processes that its mounter is among.
	_, err = m.run(context.Background(), nil, "mount", "--no-mtab", "-t", "proc", "-o", "nosuid,nodev,noexec", "proc", "/proc")
	return err
}

// detach makes the machine's mounts its own: mounts made on it stay on it but
// reach its containers; what the host unmounts is unmounted here too, so that the
// machine keeps no device of the host busy.
func (m machine) detach() error {
	for _, propagation := range []uintptr{unix.MS_SLAVE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("detach the mounts of %s from the host's: %w", m.name, err)
		}
	}
	return unix.Sethostname([]byte(m.name))
}

// inside runs f in the machine's namespaces. What f does with files, sockets and
// new processes happens on the machine; f must not start goroutines that do so.
func (m machine) inside(f func() error) error {
	pid := m.holder.pid()
	if pid == 0 {
		return fmt.Errorf("machine %s does not run", m.name)
	}
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("enter machine %s: %w", m.name, err)
	}
	defer unix.Close(handle)

	result := make(chan error, 1)
	go onSpareThread(func() {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			result <- fmt.Errorf("enter machine %s: %w", m.name, err)
			return
		}
		if err := unix.Setns(handle, namespaces); err != nil {
			result <- fmt.Errorf("enter machine %s: %w", m.name, err)
			return
		}
		result <- f()
	})
	return <-result
}

// onSpareThread runs f on a thread that nothing runs on later: it ends with the
// calling goroutine, which must do nothing after. The program's first thread is
// not taken, because it does not end and /proc/self is what it sees.
func onSpareThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		onSpareThread(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

// launcher starts a program in the background, says its process id on the
// machine and ends as soon as its input is closed. The program's parent is then
// the machine's first process, which reaps it, whoever started it.
const launcher = `"$@" >&3 2>&3 3>&- & echo $!; read _`

// launch starts a long-lived program on the machine.
func (m machine) launch(p process, argv ...string) error {
	if p.pid() != 0 {
		return fmt.Errorf("start %s: it runs already", p.name)
	}
	log, err := p.openLog()
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", launcher, "sh"}, argv...)...)
	cmd.Env, cmd.Dir = m.environment, "/"
	cmd.ExtraFiles = []*os.File{log}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	done, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	answer, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.inside(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	recorded := m.recordLaunched(p, bufio.NewReader(answer))
	return errors.Join(recorded, done.Close(), ignoreExit(cmd.Wait()))
}

// recordLaunched reads the process id that the launcher says and records the
// host's id of that process.
func (m machine) recordLaunched(p process, answer *bufio.Reader) error {
	line, err := answer.ReadString('\n')
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	inner, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	pid, err := m.hostPID(inner)
	if err != nil {
		return fmt.Errorf("start %s: %w%s", p.name, err, p.logTail())
	}
	return p.record(pid)
}

// hostPID returns the host's id of the machine's process inner.
func (m machine) hostPID(inner int) (int, error) {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid_for_children", m.holder.pid()))
	if err != nil {
		return 0, fmt.Errorf("read the process namespace of %s: %w", m.name, err)
	}
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return 0, err
	}
	for _, path := range statuses {
		folder := filepath.Dir(path)
		if own, err := os.Readlink(folder + "/ns/pid"); err != nil || own != space {
			continue
		}
		status, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if ids := namespacedIDs(status); len(ids) > 0 && ids[len(ids)-1] == strconv.Itoa(inner) {
			return strconv.Atoi(filepath.Base(folder))
		}
	}
	return 0, fmt.Errorf("process %d of %s is gone", inner, m.name)
}

// namespacedIDs returns the NSpid line of a process status: one id for each
// nested namespace, the innermost last.
func namespacedIDs(status []byte) []string {
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.Fields(ids)
		}
	}
	return nil
}

// run runs a program on the machine to its end and returns what it printed. An
// error holds what it printed on stderr.
func (m machine) run(ctx context.Context, input *os.File, argv ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/usr/bin/env", argv...) // env finds the program on the machine, not here
	cmd.Env, cmd.Dir = m.environment, "/"
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if input != nil {
		cmd.Stdin = input
	}
	if err := m.inside(cmd.Start); err != nil {
		return nil, fmt.Errorf("run %s on %s: %w", strings.Join(argv, " "), m.name, err)
	}
	if err := cmd.Wait(); err != nil {
		return stdout.Bytes(), fmt.Errorf("run %s on %s: %w: %s", strings.Join(argv, " "), m.name, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// ignoreExit drops the exit status of a program whose result is known otherwise.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}
