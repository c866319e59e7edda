package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/internal/atomicfile"
	"apportion.dev/apportion/pkg/node/driverroot"
)

// Options says where things are and how daemons run.
type Options struct {
	// Dir is the supervisor's folder, an absolute path. It is made if it is missing and
	// closed to all but root.
	Dir string
	// DriverRoot is the folder under which the NVIDIA driver is installed, as this
	// process sees it.
	DriverRoot string
	// Isolate gives each daemon a mount namespace of its own and a tmpfs of
	// SharedMemoryBytes, which takes CAP_SYS_ADMIN, and mount propagation from Dir to
	// the host. Without it daemons use Dir as it is, for tests without root.
	Isolate           bool
	SharedMemoryBytes int64
	// MultiUser has one server work for all users, as root; see the package's
	// documentation.
	MultiUser bool
	// Self is the command that calls [Enter] with one more argument; needed to
	// isolate.
	Self []string
	// RestartDelay is how long a daemon that ended is down at first, and
	// MaxRestartDelay how long it is at most; each time takes twice as long as the
	// last. One second and one minute if zero.
	RestartDelay, MaxRestartDelay time.Duration
}

func (o *Options) complete() error {
	if o.RestartDelay == 0 {
		o.RestartDelay = time.Second
	}
	if o.MaxRestartDelay == 0 {
		o.MaxRestartDelay = time.Minute
	}
	if !filepath.IsAbs(o.Dir) {
		return fmt.Errorf("folder of MPS %q: give an absolute path", o.Dir)
	}
	if o.Isolate && (o.SharedMemoryBytes < 1<<20 || len(o.Self) == 0) {
		return fmt.Errorf("shared memory of %d bytes: give an isolated daemon 1 MiB or more", o.SharedMemoryBytes)
	}
	return nil
}

// Supervisor runs a daemon for each GPU for as long as claims use it.
type Supervisor struct {
	Options

	mu      sync.Mutex
	base    context.Context // of all daemons; nil while not running
	daemons map[string]*daemon
	running sync.WaitGroup
	// listening is closed when clients can connect.
	listening chan struct{}
}

// NewSupervisor returns a supervisor. It has no side effects; Run does the work.
func NewSupervisor(o Options) (*Supervisor, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return &Supervisor{Options: o, daemons: map[string]*daemon{}, listening: make(chan struct{})}, nil
}

// Socket is where the supervisor listens.
func (s *Supervisor) Socket() string { return filepath.Join(s.Dir, SocketName) }

// Run starts the daemons that were in use when the last process ended, and serves
// until ctx ends. Then it stops all daemons and returns nil, or what went wrong.
// Claims keep their use of them for the next process. It may be called once.
func (s *Supervisor) Run(ctx context.Context) error {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("folder of MPS: %w", err)
	}
	if err := os.Chmod(s.Dir, 0o700); err != nil {
		return fmt.Errorf("folder of MPS: %w", err)
	}
	lock, err := lockFolder(s.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := atomicfile.Sweep(s.Dir); err != nil {
		return fmt.Errorf("folder of MPS: %w", err)
	}
	kept, aside, err := loadUsers(s.Dir)
	if err != nil {
		return err
	}
	if aside != "" {
		klog.FromContext(ctx).Error(nil, "The file of users was damaged and set aside; restart the plugin to have its claims acquire MPS again", "path", aside)
	}
	if err := s.removeUnused(kept); err != nil {
		return err
	}
	listener, err := listen(s.Socket())
	if err != nil {
		return err
	}
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.resume(base, kept)
	close(s.listening)
	err = s.serve(ctx, listener)
	// Nobody can acquire any more.
	stop()
	s.running.Wait()
	return err
}

// lockFolder keeps a second supervisor out, until the file is closed.
func lockFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("folder of MPS: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another supervisor uses %s: a node can run one at a time", dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// removeUnused removes the folders of GPUs without users, which a process that was
// killed left.
func (s *Supervisor) removeUnused(kept users) error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("folder of MPS: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() && gpuName.MatchString(e.Name()) && len(kept[e.Name()]) == 0 {
			errs = append(errs, s.launcher(e.Name()).folder.remove())
		}
	}
	return errors.Join(errs...)
}

// resume starts the daemons of the users that were kept.
func (s *Supervisor) resume(base context.Context, kept users) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = base
	for gpu, claims := range kept {
		if len(claims) > 0 {
			d := s.begin(gpu)
			for _, claim := range claims {
				d.held[claim] = true
			}
		}
	}
}

func (s *Supervisor) launcher(gpu string) launcher {
	l := launcher{
		gpu: gpu, driverRoot: s.DriverRoot, folder: folder{path: filepath.Join(s.Dir, gpu)},
		isolate: s.Isolate, multiUser: s.MultiUser, self: s.Self,
	}
	if s.Isolate {
		l.folder.shm = s.SharedMemoryBytes
	}
	return l
}

// Acquire makes the claim a user of the GPU's daemon and returns when the daemon
// answers. Then the claim is a user until Release, also over a restart. It may be
// called again. If it fails, the claim is no user unless it was one before.
func (s *Supervisor) Acquire(ctx context.Context, gpu string, claim types.UID) error {
	if err := checkNames(gpu, claim); err != nil {
		return err
	}
	if _, err := driverroot.Find(s.DriverRoot, controlProgram); errors.Is(err, fs.ErrNotExist) {
		return unavailable("%w", err)
	} else if err != nil {
		return err
	}
	d, failures, err := s.join(ctx, gpu, claim)
	if err != nil {
		return err
	}
	return s.settle(d, claim, s.awaitReady(ctx, d, failures))
}

// join makes the claim one that waits for the GPU's daemon, which is begun if there
// is none. It waits for one that is being stopped.
func (s *Supervisor) join(ctx context.Context, gpu string, claim types.UID) (d *daemon, failures int, err error) {
	for {
		s.mu.Lock()
		if s.base == nil || s.base.Err() != nil {
			s.mu.Unlock()
			return nil, 0, errors.New("the supervisor of MPS is not running")
		}
		d := s.daemons[gpu]
		if d == nil {
			d = s.begin(gpu)
		}
		if !d.stopping {
			d.waiting[claim]++
			failures := d.failures
			s.mu.Unlock()
			return d, failures, nil
		}
		s.mu.Unlock()
		select {
		case <-d.done:
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("the last MPS daemon of GPU %s is still ending: %w", gpu, ctx.Err())
		}
	}
}

// awaitReady returns when the daemon answers, or why it does not. failures are how
// often it had failed before.
func (s *Supervisor) awaitReady(ctx context.Context, d *daemon, failures int) error {
	for {
		s.mu.Lock()
		state, failed, reason, changed := d.state, d.failures, d.err, d.changed
		s.mu.Unlock()
		switch {
		case state == StateReady:
			return nil
		case state == StateStopping:
			return fmt.Errorf("the MPS daemon of GPU %s is being stopped", d.gpu)
		case failed > failures:
			return unavailable("GPU %s: %w", d.gpu, reason)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the MPS daemon of GPU %s does not answer yet: %w", d.gpu, ctx.Err())
		}
	}
}

// settle ends the claim's waiting: it is a user now, or gone.
func (s *Supervisor) settle(d *daemon, claim types.UID, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.waiting[claim]--; d.waiting[claim] == 0 {
		delete(d.waiting, claim)
	}
	if err == nil && s.daemons[d.gpu] != d {
		err = fmt.Errorf("the MPS daemon of GPU %s is being stopped", d.gpu)
	}
	if err == nil && !d.held[claim] {
		d.held[claim] = true
		if err = s.users().save(s.Dir); err != nil {
			delete(d.held, claim)
		}
	}
	s.stopUnused(d)
	return err
}

// Release ends the claim's use of the GPU's daemon, and stops it after the last
// one: it returns when the daemon has ended, or with an error when ctx ends, but then
// too the claim is no user any more. It is no error if the claim is none.
func (s *Supervisor) Release(ctx context.Context, gpu string, claim types.UID) error {
	if err := checkNames(gpu, claim); err != nil {
		return err
	}
	s.mu.Lock()
	d := s.daemons[gpu]
	if d == nil {
		s.mu.Unlock()
		return nil
	}
	if d.held[claim] {
		delete(d.held, claim)
		if err := s.users().save(s.Dir); err != nil {
			d.held[claim] = true
			s.mu.Unlock()
			return err
		}
	}
	s.stopUnused(d)
	stopping := d.stopping
	s.mu.Unlock()
	if !stopping {
		return nil
	}
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the MPS daemon of GPU %s is still ending: %w", gpu, ctx.Err())
	}
}

// List says how the daemons are, ordered by GPU.
func (s *Supervisor) List() []GPU {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []GPU
	for _, gpu := range sorted(s.daemons) {
		d := s.daemons[gpu]
		g := GPU{UUID: gpu, State: d.state, PID: d.pid, Claims: sorted(d.held)}
		if d.err != nil {
			g.Error = d.err.Error()
		}
		list = append(list, g)
	}
	return list
}

// users are all users that are to be kept. The caller holds the lock.
func (s *Supervisor) users() users {
	u := users{}
	for gpu, d := range s.daemons {
		if len(d.held) > 0 {
			u[gpu] = sorted(d.held)
		}
	}
	return u
}
