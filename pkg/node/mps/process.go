package mps

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"apportion.dev/apportion/pkg/node/driverroot"
)

// controlProgram is the daemon, and its client.
const controlProgram = "nvidia-cuda-mps-control"

const (
	// commandTimeout is how long the daemon may take to answer a command.
	commandTimeout = 10 * time.Second
	// quitSeconds is how long servers may wait for their clients to end when the
	// daemon is told to quit.
	quitSeconds = 5
	// quitTimeout is how long a daemon that was told to quit may take, and termTimeout
	// how long one that was sent SIGTERM.
	quitTimeout = quitSeconds*time.Second + 5*time.Second
	termTimeout = 3 * time.Second
	// firstAsk and lastAsk are the shortest and the longest time between two questions
	// to a daemon that does not answer yet.
	firstAsk = 20 * time.Millisecond
	lastAsk  = time.Second
)

// launcher runs the daemon of one GPU and talks to it.
type launcher struct {
	gpu        string
	driverRoot string
	folder     folder
	isolate    bool
	multiUser  bool
	// self is the command that calls Enter.
	self []string
}

// command is the daemon's program, with the environment of this GPU.
func (l launcher) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	program, err := driverroot.Find(l.driverRoot, controlProgram)
	if err != nil {
		return nil, err
	}
	if !l.isolate {
		cmd := program.Command(ctx, args...)
		cmd.Env = l.environment(program.Env, l.folder.sub(pipeFolder), l.folder.sub(logFolder))
		return cmd, nil
	}
	description, err := json.Marshal(room{Root: program.Root, Folder: l.folder.path, Argv: append([]string{program.Path}, args...)})
	if err != nil {
		return nil, fmt.Errorf("describe a daemon: %w", err)
	}
	cmd := driverroot.Group(ctx, l.self[0], append(l.self[1:len(l.self):len(l.self)], string(description))...)
	cmd.Env = l.environment(program.Env, pipeInside, logInside)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	return cmd, nil
}

func (l launcher) environment(env []string, pipe, log string) []string {
	return append(env[:len(env):len(env)],
		"CUDA_VISIBLE_DEVICES="+l.gpu, "CUDA_MPS_PIPE_DIRECTORY="+pipe, "CUDA_MPS_LOG_DIRECTORY="+log)
}

// tell sends the daemon a command and returns what it answers. It is an error if
// there is no daemon.
func (l launcher) tell(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd, err := l.command(ctx)
	if err != nil {
		return "", err
	}
	cmd.Stdin = strings.NewReader(command + "\n")
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tell the daemon %q: %w, %s", command, err, driverroot.Brief(output))
	}
	return string(output), nil
}

// process is a daemon that was started.
type process struct {
	launcher
	cmd    *exec.Cmd
	output *tail
	// ended is closed when the process has ended; err is how.
	ended chan struct{}
	err   error
}

// start starts a daemon. The calling goroutine must be locked to its thread until
// the daemon has ended: the kernel ends the daemon with the thread.
func (l launcher) start() (*process, error) {
	args := []string{"-f"}
	if l.multiUser {
		args = append(args, "-multiuser-server")
	}
	cmd, err := l.command(context.Background(), args...)
	if err != nil {
		return nil, err
	}
	p := &process{launcher: l, cmd: cmd, output: &tail{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); errors.Is(err, fs.ErrNotExist) {
		// The file is there, so what is missing is what it is run by.
		return nil, fmt.Errorf("%s cannot run here, its interpreter is missing: %w", cmd.Path, err)
	} else if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// why says how a daemon ended that should not have.
func (p *process) why() error {
	said := p.output.bytes()
	if log, err := os.ReadFile(p.folder.sub(logFolder) + "/control.log"); err == nil {
		said = append(append(said, ' '), log...)
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("the MPS daemon ended (%s), %s", how, driverroot.Brief(said))
}

// answers returns when the daemon answers, or with why it will not. watch watches
// its pipe folder since before it was started.
func (p *process) answers(ctx context.Context, watch *fsnotify.Watcher) error {
	wait := firstAsk
	for {
		// The socket is there a moment before anybody listens at it, and that makes no
		// event.
		var again <-chan time.Time
		if _, err := os.Stat(filepath.Join(p.folder.sub(pipeFolder), "control")); err == nil {
			if _, err := p.tell(ctx, "get_server_list"); err == nil {
				return nil
			}
			again = time.After(wait)
			wait = min(2*wait, lastAsk)
		}
		select {
		case <-p.ended:
			return p.why()
		case <-ctx.Done():
			return ctx.Err()
		case <-watch.Events:
		case err := <-watch.Errors:
			return fmt.Errorf("watch %s: %w", p.folder.path, err)
		case <-again:
		}
	}
}

// quit ends the daemon: on its request, or else by force. It returns when it has
// ended.
func (p *process) quit() error {
	_, err := p.tell(context.Background(), fmt.Sprintf("quit -t %d", quitSeconds))
	if err == nil {
		if p.endsWithin(quitTimeout) {
			return nil
		}
		err = fmt.Errorf("it did not end within %s", quitTimeout)
	}
	if kill := p.signal(syscall.SIGTERM); kill != nil || !p.endsWithin(termTimeout) {
		err = errors.Join(err, kill, p.signal(syscall.SIGKILL))
	}
	<-p.ended
	return fmt.Errorf("end the MPS daemon in order: %w", err)
}

// kill ends the daemon by force and returns when it has ended.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL)
	<-p.ended
	return err
}

// signal sends a signal to the daemon and its servers.
func (p *process) signal(s syscall.Signal) error {
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s: %w", s, err)
	}
	return nil
}

func (p *process) endsWithin(d time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const tailSize = 4 << 10

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(data)
	if extra := t.buf.Len() - tailSize; extra > 0 {
		t.buf.Next(extra)
	}
	return len(data), nil
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.buf.Bytes())
}
