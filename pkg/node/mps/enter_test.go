package mps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespace runs the calling test again as root of a user and mount namespace of
// its own, where it may mount, and returns true there. The test outside ends as the
// one inside does.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const mark = "APPORTION_TEST_NAMESPACE"
	if os.Getenv(mark) != "" {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOSPC):
		t.Skipf("no user namespaces here: %v", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	}
	return false
}

// outsideTmp is a folder that is not hidden where /tmp is.
func outsideTmp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "mps")
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAnIsolatedDaemonHasItsFoldersWhereClientsHaveThem(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	root, gpus := newMachine(t, outsideTmp(t), 2)
	dir := shared(t)
	self, err := os.Executable()
	must(t, err)
	o := Options{Dir: dir, DriverRoot: root, Isolate: true, SharedMemoryBytes: 1 << 20, Self: []string{self, "enter"}}
	r := start(t, o)
	r.acquire(gpus[0], "claim-a")
	r.acquire(gpus[1], "claim-b")
	log, err := os.ReadFile(filepath.Join(dir, gpus[0], "log/control.log"))
	if err != nil || !strings.Contains(string(log), "using socket /tmp/nvidia-mps/control\n") {
		t.Errorf("log %q, %v", log, err)
	}
	pid := r.await(gpus[0], ready)
	must(t, os.WriteFile(filepath.Join(dir, gpus[0], "shm/segment"), []byte("x"), 0o600))
	if got, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/dev/shm/segment", pid)); err != nil || string(got) != "x" {
		t.Errorf("shared memory has %q, %v", got, err)
	}
	if !gone(filepath.Join(dir, gpus[1], "shm/segment")) {
		t.Error("the other GPU's daemon has the same shared memory")
	}
	if err := os.WriteFile(filepath.Join(dir, gpus[0], "shm/large"), make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("2 MiB of shared memory: %v", err)
	}

	// What containers have mounted stays over a restart.
	r.stop()
	r = start(t, o)
	r.await(gpus[0], ready)
	if gone(filepath.Join(dir, gpus[0], "shm/segment")) {
		t.Error("shared memory is another one")
	}
	r.release(gpus[0], "claim-a")
	r.release(gpus[1], "claim-b")
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// shared is a folder that is mounted as a container has one with mount propagation.
func shared(t *testing.T) string {
	t.Helper()
	dir := shortDir(t)
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	return dir
}

// Containers had an empty folder of the disk in place of the daemon's memory.
func TestWithoutMountPropagationNothingIsAcquired(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	root, gpus := newMachine(t, outsideTmp(t), 1)
	dir := shared(t)
	must(t, unix.Mount("", dir, "", unix.MS_PRIVATE, ""))
	self, err := os.Executable()
	must(t, err)
	r := start(t, Options{Dir: dir, DriverRoot: root, Isolate: true, SharedMemoryBytes: 1 << 20, Self: []string{self, "enter"}})
	err = r.Acquire(t.Context(), gpus[0], "claim-a")
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "Bidirectional") {
		t.Error(err)
	}
	r.release(gpus[0], "claim-a")
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// A driver root that is the host's or a driver container's is a whole system, and may
// be read-only.
func TestAProgramOfAWholeSystemIsEntered(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	root, folder := outsideTmp(t), shortDir(t)
	must(t, unix.Mount("/", root, "", unix.MS_BIND|unix.MS_REC, ""))
	t.Cleanup(func() { must(t, unix.Unmount(root, unix.MNT_DETACH)) })
	for _, name := range []string{"pipe", "log", "shm"} {
		must(t, os.Mkdir(filepath.Join(folder, name), 0o755))
	}
	description, err := json.Marshal(room{Root: root, Folder: folder, Argv: []string{
		"/bin/sh", "-c", `echo pipe >/tmp/nvidia-mps/a; echo log >/tmp/nvidia-log/a; echo "$1" >/dev/shm/a; pwd; echo /tmp/*`, "sh", "shm",
	}})
	must(t, err)
	cmd := exec.Command("/proc/self/exe", "enter", string(description))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if want := "/\n/tmp/nvidia-log /tmp/nvidia-mps\n"; err != nil || string(out) != want {
		t.Fatalf("%q, %v; want %q", out, err, want)
	}
	for _, name := range []string{"pipe", "log", "shm"} {
		if got, err := os.ReadFile(filepath.Join(folder, name, "a")); err != nil || string(got) != name+"\n" {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
}

func TestWhatCannotBeEnteredIsAnError(t *testing.T) {
	for _, description := range []string{"", "{", `{"root":"/","folder":"/x","argv":[]}`} {
		if err := Enter(description); err == nil || !strings.Contains(err.Error(), "what to run") {
			t.Errorf("%q: %v", description, err)
		}
	}
}

// A tenant with root could put a link in the daemon's place, for the daemon to
// follow as root of the host.
func TestAContainerUsesTheDaemonsSocketsInAReadOnlyFolder(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	root, gpus := newMachine(t, outsideTmp(t), 1)
	dir := shortDir(t)
	r := start(t, Options{Dir: dir, DriverRoot: root})
	r.acquire(gpus[0], "claim-a")
	edits := Edits(dir, gpus[0], 0, "")
	inside := outsideTmp(t)
	must(t, unix.Mount(edits.Mounts[0].HostPath, inside, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(inside, unix.MNT_DETACH)) })
	must(t, unix.Mount("", inside, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	if err := os.Remove(filepath.Join(inside, "control")); !errors.Is(err, unix.EROFS) {
		t.Errorf("remove the socket: %v", err)
	}
	// The real daemon has sockets, the fake one FIFOs.
	l, err := net.Listen("unix", filepath.Join(edits.Mounts[0].HostPath, "s"))
	must(t, err)
	defer l.Close()
	conn, err := net.Dial("unix", filepath.Join(inside, "s"))
	must(t, err)
	must(t, conn.Close())
	cmd := exec.Command(filepath.Join(root, "usr/bin", controlProgram))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CUDA_MPS_PIPE_DIRECTORY=" + inside}
	cmd.Stdin = strings.NewReader("get_default_active_thread_percentage\n")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "100.0\n" {
		t.Errorf("the daemon says %q, %v", out, err)
	}
}
