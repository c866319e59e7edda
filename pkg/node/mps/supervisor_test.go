package mps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

func TestSharesOfAGPUHaveOneDaemon(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 2)
	dir := shortDir(t)
	r := start(t, Options{Dir: dir, DriverRoot: root, MultiUser: true})
	r.acquire(gpus[0], "claim-a")
	pid := r.await(gpus[0], ready)
	r.acquire(gpus[0], "claim-b")
	r.acquire(gpus[0], "claim-b")
	r.acquire(gpus[1], "claim-a")
	r.wantUsers(sortedLines(gpus[0]+" claim-a claim-b", gpus[1]+" claim-a")...)
	if again := r.await(gpus[0], ready); again != pid {
		t.Errorf("the daemon is process %d, was %d", again, pid)
	}
	// Each daemon has a GPU and settings of its own.
	r.tell(gpus[0], "set_default_active_thread_percentage 40")
	if a, b := r.tell(gpus[0], "get_default_active_thread_percentage"), r.tell(gpus[1], "get_default_active_thread_percentage"); a != "40.0" || b != "100.0" {
		t.Errorf("percentages are %s and %s", a, b)
	}
	log, err := os.ReadFile(filepath.Join(dir, gpus[1], "log/control.log"))
	if err != nil || !strings.Contains(string(log), "CUDA_VISIBLE_DEVICES="+gpus[1]+"\n") {
		t.Errorf("log %q, %v", log, err)
	}

	r.release(gpus[0], "claim-a")
	r.release(gpus[0], "claim-unknown")
	r.wantUsers(sortedLines(gpus[0]+" claim-b", gpus[1]+" claim-a")...)
	r.release(gpus[0], "claim-b")
	r.release(gpus[0], "claim-b")
	r.wantUsers(gpus[1] + " claim-a")
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if got := files(t, dir); len(got) != 1 || got[0] != gpus[1] {
		t.Errorf("folders are %q", got)
	}
}

func sortedLines(lines ...string) []string {
	set := map[string]bool{}
	for _, l := range lines {
		set[l] = true
	}
	return sorted(set)
}

func TestOnlyRootReachesTheFolderAndTheSocket(t *testing.T) {
	root, _ := newMachine(t, t.TempDir(), 1)
	dir := filepath.Join(shortDir(t), "mps")
	r := start(t, Options{Dir: dir, DriverRoot: root})
	for path, want := range map[string]os.FileMode{dir: 0o700, r.supervisor.Socket(): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestUsersOutliveTheSupervisor(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 2)
	o := Options{Dir: shortDir(t), DriverRoot: root}
	r := start(t, o)
	r.acquire(gpus[0], "claim-a")
	r.acquire(gpus[0], "claim-b")
	r.acquire(gpus[1], "claim-c")
	pid := r.await(gpus[0], ready)
	before, err := os.Stat(filepath.Join(o.Dir, gpus[0], "pipe"))
	must(t, err)
	r.stop()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if !gone(r.supervisor.Socket()) {
		t.Error("the socket is still there")
	}

	r = start(t, o)
	r.await(gpus[0], ready)
	r.await(gpus[1], ready)
	// Containers have the folder mounted.
	after, err := os.Stat(filepath.Join(o.Dir, gpus[0], "pipe"))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the pipe folder is another one: %v", err)
	}
	must(t, r.Retain(t.Context(), func(gpu string, claim types.UID) bool { return gpu == gpus[0] && claim == "claim-b" }))
	r.wantUsers(gpus[0] + " claim-b")
	r.stop()
	r = start(t, o)
	r.wantUsers(gpus[0] + " claim-b")
}

// The chart was upgraded while pods ended: the GPUs of claims that were gone had daemons
// again when the new supervisor started.
func TestAClaimThatEndsWhileTheSupervisorIsAwayIsNoUserAfterwards(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 2)
	o := Options{Dir: shortDir(t), DriverRoot: root}
	r := start(t, o)
	ended := []types.UID{"claim-1", "claim-2", "claim-3", "claim-4"}
	for _, claim := range append(ended, "claim-b") {
		r.acquire(gpus[0], claim)
	}
	r.acquire(gpus[1], "claim-c")
	r.acquire(gpus[1], "claim-d")
	r.stop()
	var calls sync.WaitGroup
	for _, claim := range ended {
		calls.Go(func() {
			if err := r.Release(t.Context(), gpus[0], claim); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
	calls.Wait()
	r.release(gpus[0], "claim-1")
	must(t, r.Retain(t.Context(), func(_ string, claim types.UID) bool { return claim != "claim-c" }))
	start(t, o).wantUsers(sortedLines(gpus[0]+" claim-b", gpus[1]+" claim-d")...)
}

func TestDaemonsDieWithASupervisorThatIsKilledAndUsersDoNot(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 1)
	dir := shortDir(t)
	cmd := exec.Command("/proc/self/exe", "supervise", dir, root)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	c := New(filepath.Join(dir, SocketName))
	must(t, c.Acquire(t.Context(), gpus[0], "claim-a"))
	list, err := c.List(t.Context())
	must(t, err)
	daemon, err := unix.PidfdOpen(list[0].PID, 0)
	must(t, err)
	defer unix.Close(daemon)
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
	// The descriptor can be read when the process has ended.
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(daemon), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			must(t, err)
			break
		}
	}
	r := start(t, Options{Dir: dir, DriverRoot: root})
	r.await(gpus[0], ready)
	r.wantUsers(gpus[0] + " claim-a")
}

func TestADaemonThatDiesIsStartedAgain(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 1)
	r := start(t, Options{Dir: shortDir(t), DriverRoot: root})
	r.acquire(gpus[0], "claim-a")
	pid := r.await(gpus[0], ready)
	for _, end := range []func(){
		func() { must(t, syscall.Kill(pid, syscall.SIGKILL)) },
		// A client that reaches the control socket can do that.
		func() { r.tell(gpus[0], "quit") },
	} {
		end()
		next := r.await(gpus[0], func(d *daemon) bool { return d.state == StateReady && d.pid != pid })
		if got := r.tell(gpus[0], "get_default_active_thread_percentage"); got != "100.0" {
			t.Errorf("the next daemon says %q", got)
		}
		pid = next
	}
	r.wantUsers(gpus[0] + " claim-a")
}

// without makes the control program one of an interpreter that is not there.
func without(t *testing.T, root string) string {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(root, "usr/bin", controlProgram), []byte("#!/none/sh\n"), 0o755))
	return root
}

func TestAFailedAcquireLeavesNothing(t *testing.T) {
	_, gpus := newMachine(t, t.TempDir(), 1)
	for _, test := range []struct {
		name, root  string
		gpu         string
		claim       types.UID
		unavailable bool
		want        []string
	}{
		{"no MPS in the driver", t.TempDir(), gpus[0], "claim-a", true, []string{controlProgram, "usr/bin"}},
		{"daemon that ends", script(t, "echo no such option >&2; exit 3"), gpus[0], "claim-a", true, []string{gpus[0], "exit status 3", "it said: no such option"}},
		{"daemon that is happy to end", script(t, "exit 0"), gpus[0], "claim-a", true, []string{"exit status 0", "it said nothing"}},
		{"no shell", without(t, script(t, "")), gpus[0], "claim-a", true, []string{"interpreter is missing"}},
		{"GPU", script(t, ""), "GPU-../../etc", "claim-a", false, []string{`"GPU-../../etc"`}},
		{"claim", script(t, ""), gpus[0], "../a", false, []string{`"../a"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := shortDir(t)
			r := start(t, Options{Dir: dir, DriverRoot: test.root})
			err := r.Acquire(t.Context(), test.gpu, test.claim)
			if err == nil || errors.Is(err, ErrUnavailable) != test.unavailable {
				t.Fatalf("error %v is ErrUnavailable: %v, want %v", err, errors.Is(err, ErrUnavailable), test.unavailable)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q has no %q", err, want)
				}
			}
			if strings.Count(err.Error(), ErrUnavailable.Error()) > 1 {
				t.Errorf("error %q repeats itself", err)
			}
			r.release(gpus[0], "claim-a") // Waits for the daemon's end.
			r.wantUsers()
			if left := files(t, dir); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
		})
	}
}

// The supervisor checks what it is asked too: a client may be another program.
func TestTheServerRefusesBadNames(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 1)
	r := start(t, Options{Dir: shortDir(t), DriverRoot: root})
	for _, path := range []string{"GPU-..%2f..%2fetc/claims/a", gpus[0] + "/claims/..%2fa"} {
		err := r.call(t.Context(), "PUT", gpusPath+"/"+path, nil)
		if err == nil || !strings.Contains(err.Error(), "bad name") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := r.call(t.Context(), "POST", gpusPath, nil); err == nil || !strings.Contains(err.Error(), "405") {
		t.Error(err)
	}
}

// waiting makes a driver root with a daemon that never answers; up returns when it
// runs, and down when it has ended.
func waiting(t *testing.T, rest string) (root string, up, down func()) {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	root = script(t, fmt.Sprintf("[ \"${1-}\" = -f ] || exit 1\n%s\nexec 9>%q\nread -r line <>%q", rest, fifo, fifo+"-other"))
	must(t, unix.Mkfifo(fifo+"-other", 0o600))
	var f *os.File
	return root, func() {
			var err error
			f, err = os.Open(fifo) // Returns when the daemon has opened the other side.
			must(t, err)
		}, func() {
			t.Helper()
			if n, err := f.Read(make([]byte, 1)); n != 0 {
				t.Error(n, err)
			}
			must(t, f.Close())
		}
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	_, gpus := newMachine(t, t.TempDir(), 1)
	root, up, down := waiting(t, "")
	dir := shortDir(t)
	r := start(t, Options{Dir: dir, DriverRoot: root})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Acquire(ctx, gpus[0], "claim-a") }()
	up()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	down()
	r.release(gpus[0], "claim-a")
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// The kubelet gives up a call and calls again while the first is still waiting.
func TestACallThatIsGivenUpDoesNotTakeTheNextOnesDaemon(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 1)
	dir := shortDir(t)
	r := start(t, Options{Dir: dir, DriverRoot: root})
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() { _ = r.Acquire(ctx, gpus[0], "claim-a") })
		calls.Go(cancel)
		r.acquire(gpus[0], "claim-a")
		calls.Wait()
		r.await(gpus[0], ready)
		r.wantUsers(gpus[0] + " claim-a")
		r.release(gpus[0], "claim-a")
	}
}

func TestADaemonThatDoesNotQuitIsEndedByForce(t *testing.T) {
	_, gpus := newMachine(t, t.TempDir(), 1)
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	// It answers, but not to quit.
	root := script(t, fmt.Sprintf(`if [ "${1-}" = -f ]; then
	: >"$CUDA_MPS_PIPE_DIRECTORY/control"
	read -r line <>%q
fi
read -r command
case "$command" in quit*) echo busy; exit 1 ;; esac
`, fifo))
	dir := shortDir(t)
	r := start(t, Options{Dir: dir, DriverRoot: root})
	r.acquire(gpus[0], "claim-a")
	pid := r.await(gpus[0], ready)
	r.release(gpus[0], "claim-a")
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

func TestASecondSupervisorIsKeptOut(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 1)
	o := Options{Dir: shortDir(t), DriverRoot: root}
	r := start(t, o)
	second, err := NewSupervisor(o)
	must(t, err)
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another supervisor") {
		t.Error(err)
	}
	r.acquire(gpus[0], "claim-a")
}

func TestWhatAKilledSupervisorLeftIsRemoved(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 1)
	dir := shortDir(t)
	must(t, os.MkdirAll(filepath.Join(dir, gpus[0], "pipe"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, SocketName), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, ".users.json.tmp-1"), nil, 0o600))
	start(t, Options{Dir: dir, DriverRoot: root})
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// A file cut off by a full disk kept the container from starting.
func TestADamagedFileOfUsersIsSetAside(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 1)
	for name, content := range map[string]string{
		"half": `{"format":1,"gpus":{"GPU`, "format": `{"format":2}`,
		"path": `{"format":1,"gpus":{"../../etc":["claim-a"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			must(t, os.WriteFile(filepath.Join(dir, "users.json"), []byte(content), 0o600))
			r := start(t, Options{Dir: dir, DriverRoot: root})
			r.wantUsers()
			r.acquire(gpus[0], "claim-a")
			kept, err := os.ReadFile(filepath.Join(dir, "users.json.damaged"))
			if err != nil || string(kept) != content {
				t.Errorf("kept is %q, %v", kept, err)
			}
		})
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{Dir: "mps"}, `"mps"`},
		{Options{Dir: "/mps", Isolate: true, Self: []string{"x"}, SharedMemoryBytes: 1000}, "1000 bytes"},
	} {
		if _, err := NewSupervisor(test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Error(err)
		}
	}
	s, err := NewSupervisor(Options{Dir: filepath.Join(shortDir(t), strings.Repeat("x", 100))})
	must(t, err)
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "at most 107") {
		t.Error(err)
	}
}

// TestRandomCalls has claims acquire and release daemons at the same time, and
// compares what is left with a model: a claim uses what it acquired last.
func TestRandomCalls(t *testing.T) {
	root, gpus := newMachine(t, t.TempDir(), 3)
	dir := shortDir(t)
	r := start(t, Options{Dir: dir, DriverRoot: root})
	model := make([]map[string]bool, 6)
	var claims sync.WaitGroup
	for i := range model {
		model[i] = map[string]bool{}
		claims.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 12 {
				gpu := gpus[random.IntN(len(gpus))]
				do, use := r.Acquire, true
				if random.IntN(2) == 0 {
					do, use = r.Release, false
				}
				if err := do(t.Context(), gpu, types.UID(fmt.Sprint("claim-", i))); err != nil {
					t.Error(err)
				}
				model[i][gpu] = use
			}
		})
	}
	claims.Wait()
	var want, folders []string
	for _, gpu := range sortedLines(gpus...) {
		line := gpu
		for i := range model {
			if model[i][gpu] {
				line += fmt.Sprint(" claim-", i)
			}
		}
		if line != gpu {
			want, folders = append(want, line), append(folders, gpu)
			r.await(gpu, ready)
		}
	}
	r.wantUsers(want...)
	if got := files(t, dir); strings.Join(got, " ") != strings.Join(folders, " ") {
		t.Errorf("folders are %q, want %q", got, folders)
	}
}
