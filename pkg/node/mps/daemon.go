package mps

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// State is how a daemon is doing.
type State string

const (
	// StateStarting is a daemon that does not answer yet, StateReady one that does.
	StateStarting State = "Starting"
	StateReady    State = "Ready"
	// StateFailed is a daemon that ended by itself and is started again in a while.
	StateFailed State = "Failed"
	// StateStopping is a daemon without users that is ending.
	StateStopping State = "Stopping"
)

// daemon is the daemon of one GPU, from its first user to the end after its last,
// however often it is started meanwhile. The supervisor's lock guards its fields.
type daemon struct {
	gpu string
	// held are its users, waiting how many calls of a claim wait for it to be ready.
	held    map[types.UID]bool
	waiting map[types.UID]int

	state State
	// failures is how often it ended by itself, err why it did the last time.
	failures int
	err      error
	pid      int
	// changed is closed and replaced when the state is set.
	changed chan struct{}

	// stop ends it; stopping is true afterwards. done is closed when it is over.
	stop     context.CancelFunc
	stopping bool
	done     chan struct{}
}

// begin begins the daemon of a GPU that has none. The caller holds the lock.
func (s *Supervisor) begin(gpu string) *daemon {
	ctx, stop := context.WithCancel(s.base)
	d := &daemon{
		gpu: gpu, held: map[types.UID]bool{}, waiting: map[types.UID]int{},
		state: StateStarting, changed: make(chan struct{}), stop: stop, done: make(chan struct{}),
	}
	s.daemons[gpu] = d
	s.running.Go(func() { s.keep(ctx, d) })
	return d
}

// stopUnused stops a daemon that nobody uses. The caller holds the lock.
func (s *Supervisor) stopUnused(d *daemon) {
	if len(d.held) == 0 && len(d.waiting) == 0 && !d.stopping {
		d.stopping = true
		d.set(StateStopping)
		d.stop()
	}
}

// set sets the state. The caller holds the lock.
func (d *daemon) set(state State) {
	d.state = state
	close(d.changed)
	d.changed = make(chan struct{})
}

// update sets the state of a daemon. One that is being stopped stays so. err is for
// StateFailed, and stays until the daemon is ready.
func (s *Supervisor) update(d *daemon, state State, pid int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.pid = pid
	switch state {
	case StateFailed:
		d.failures++
		d.err = err
	case StateReady:
		d.err = nil
	}
	if !d.stopping {
		d.set(state)
	}
}

// keep runs a daemon again and again until ctx ends.
func (s *Supervisor) keep(ctx context.Context, d *daemon) {
	// The kernel ends a daemon when this thread ends, so that none outlives a
	// supervisor that was killed.
	runtime.LockOSThread()
	defer s.over(ctx, d)
	logger := klog.FromContext(ctx).WithValues("gpu", d.gpu)
	delay := s.RestartDelay
	for {
		started := time.Now()
		err := s.runOnce(ctx, d)
		if ctx.Err() != nil {
			if err != nil {
				logger.Error(err, "MPS daemon did not end in order")
			} else {
				logger.Info("MPS daemon ended")
			}
			return
		}
		if time.Since(started) > s.MaxRestartDelay {
			delay = s.RestartDelay
		}
		logger.Error(err, "MPS daemon ended by itself, or could not be started", "startedAgainIn", delay)
		s.update(d, StateFailed, 0, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		delay = min(2*delay, s.MaxRestartDelay)
		s.update(d, StateStarting, 0, nil)
	}
}

// runOnce runs a daemon until it ends by itself, and returns why, or until ctx ends;
// then the error is nil if it ended in order.
func (s *Supervisor) runOnce(ctx context.Context, d *daemon) error {
	l := s.launcher(d.gpu)
	if err := l.folder.prepare(); err != nil {
		return err
	}
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watch.Close()
	if err := watch.Add(l.folder.sub(pipeFolder)); err != nil {
		return err
	}
	p, err := l.start()
	if err != nil {
		return err
	}
	s.update(d, StateStarting, p.cmd.Process.Pid, nil)
	if err := p.answers(ctx, watch); err != nil {
		err = errors.Join(err, p.kill())
		if ctx.Err() != nil {
			// It served nobody yet.
			return nil
		}
		return err
	}
	klog.FromContext(ctx).Info("MPS daemon is ready", "gpu", d.gpu, "pid", p.cmd.Process.Pid)
	s.update(d, StateReady, p.cmd.Process.Pid, nil)
	select {
	case <-ctx.Done():
		return p.quit()
	case <-p.ended:
		// Servers that it left would never end.
		return errors.Join(p.why(), p.kill())
	}
}

// over forgets a daemon that has ended for good. The folder of one that has users
// is kept: their containers have it mounted and may start again before the next
// daemon does.
func (s *Supervisor) over(ctx context.Context, d *daemon) {
	d.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(d.held) == 0 {
		if err := s.launcher(d.gpu).folder.remove(); err != nil {
			klog.FromContext(ctx).Error(err, "Folder of an MPS daemon that ended is left")
		}
	}
	delete(s.daemons, d.gpu)
	close(d.done)
}
