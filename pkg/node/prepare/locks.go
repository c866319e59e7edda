package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/internal/atomicfile"
)

// gpuLocks are exclusive locks, one per physical GPU, held across processes
// (flock) and waited for without polling. A claim takes those of all its GPUs in
// the order of their names, so two claims cannot wait for each other.
type gpuLocks struct {
	dir string

	mu   sync.Mutex
	gate map[string]chan struct{}
	wg   sync.WaitGroup
}

func newGPULocks(dir string) *gpuLocks {
	return &gpuLocks{dir: dir, gate: map[string]chan struct{}{}}
}

// lock waits until all named GPUs are held, or ctx ends. The function it returns
// gives them back.
func (l *gpuLocks) lock(ctx context.Context, gpus []string) (unlock func(), err error) {
	sorted := slices.Compact(slices.Sorted(slices.Values(gpus)))
	var held []func()
	unlock = func() {
		for _, f := range slices.Backward(held) {
			f()
		}
	}
	for _, gpu := range sorted {
		release, err := l.lockOne(ctx, gpu)
		if err != nil {
			unlock()
			return nil, fmt.Errorf("wait for GPU %s: %w", gpu, err)
		}
		held = append(held, release)
	}
	return unlock, nil
}

// lockOne takes the lock within the process first, so that at most one goroutine
// waits for other processes.
func (l *gpuLocks) lockOne(ctx context.Context, gpu string) (func(), error) {
	gate := l.gateOf(gpu)
	select {
	case gate <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	file, err := atomicfile.Open(filepath.Join(l.dir, lockFileName(gpu)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		<-gate
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return func() { _ = file.Close(); <-gate }, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		<-gate
		return nil, errors.Join(err, file.Close())
	}
	return l.waitForProcess(ctx, file, gate)
}

// waitForProcess blocks in flock on a goroutine of its own. If ctx ends first,
// that goroutine gives the lock back as soon as it gets it.
func (l *gpuLocks) waitForProcess(ctx context.Context, file *os.File, gate chan struct{}) (func(), error) {
	got := make(chan error)
	abandoned := make(chan struct{})
	l.wg.Go(func() {
		var err error
		for {
			if err = unix.Flock(int(file.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		select {
		case got <- err:
		case <-abandoned:
			_ = file.Close()
			<-gate
		}
	})
	select {
	case err := <-got:
		if err != nil {
			<-gate
			return nil, errors.Join(err, file.Close())
		}
		return func() { _ = file.Close(); <-gate }, nil
	case <-ctx.Done():
		close(abandoned)
		return nil, ctx.Err()
	}
}

func (l *gpuLocks) gateOf(gpu string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gate[gpu] == nil {
		l.gate[gpu] = make(chan struct{}, 1)
	}
	return l.gate[gpu]
}

// lockFileName keeps a GPU's UUID readable and a file name safe.
func lockFileName(gpu string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '_'
	}, gpu) + ".lock"
}

// claimLocks serialise the calls about one claim within this process, and let a
// Prepare notice that the claim was unprepared while it waited.
type claimLocks struct {
	mu    sync.Mutex
	locks map[types.UID]*claimLock
}

type claimLock struct {
	gate chan struct{}
	refs int
	// unprepares counts the Unprepare calls that came while somebody used this
	// lock.
	unprepares int
}

var errUnprepared = errors.New("the claim was unprepared while this call waited; it is not prepared")

// forPrepare waits for the claim. It fails if an Unprepare of the claim came
// while it waited: the kubelet then no longer wants what this call would do.
func (c *claimLocks) forPrepare(ctx context.Context, uid types.UID) (func(), error) {
	return c.lock(ctx, uid, false)
}

// forUnprepare waits for the claim and makes the Prepares that wait already fail.
func (c *claimLocks) forUnprepare(ctx context.Context, uid types.UID) (func(), error) {
	return c.lock(ctx, uid, true)
}

func (c *claimLocks) lock(ctx context.Context, uid types.UID, unprepare bool) (func(), error) {
	c.mu.Lock()
	if c.locks == nil {
		c.locks = map[types.UID]*claimLock{}
	}
	l := c.locks[uid]
	if l == nil {
		l = &claimLock{gate: make(chan struct{}, 1)}
		c.locks[uid] = l
	}
	l.refs++
	if unprepare {
		l.unprepares++
	}
	before := l.unprepares
	c.mu.Unlock()

	drop := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(c.locks, uid)
		}
	}
	select {
	case l.gate <- struct{}{}:
	case <-ctx.Done():
		drop()
		return nil, ctx.Err()
	}
	unlock := func() { <-l.gate; drop() }

	c.mu.Lock()
	stale := !unprepare && l.unprepares != before
	c.mu.Unlock()
	if stale {
		unlock()
		return nil, errUnprepared
	}
	if err := ctx.Err(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}
