package fakegpu

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func allocator(t *testing.T, m *Machine, cgroup string) *Allocator {
	t.Helper()
	a, err := m.NewAllocator("0", cgroup)
	must(t, err)
	return a
}

func wantUsed(t *testing.T, d nvml.Device, want uint64) {
	t.Helper()
	if memory, ret := d.GetMemoryInfo_v2(); ret != nvml.SUCCESS || memory.Used != want {
		t.Errorf("%d bytes are used, %v; want %d", memory.Used, ret, want)
	}
}

func wantNoHolders(t *testing.T, m *Machine) {
	t.Helper()
	if left, err := os.ReadDir(filepath.Join(m.Dir(), allocationDir)); err != nil || len(left) != 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

func TestAllocationsBeyondTheLimitAreRefused(t *testing.T) {
	m, d := newLimitsMachine(t)
	host := t.TempDir()
	// What the container sees its cgroup as is another path to the same folder.
	inside := filepath.Join(t.TempDir(), "memory")
	must(t, os.Symlink(host, inside))
	setLimit(t, d, host, 10*gib, 10*gib)
	// A program may make cgroups below its container's, and stays limited.
	other := t.TempDir()
	below := filepath.Join(other, "init")
	must(t, os.Mkdir(below, 0o700))
	setLimit(t, d, other, 6*gib, 6*gib)

	limited, again := allocator(t, m, inside), allocator(t, m, host)
	nested, free := allocator(t, m, below), allocator(t, m, t.TempDir())
	for i, step := range []struct {
		who  *Allocator
		gib  uint64
		fits bool
	}{
		{limited, 9, true},
		{limited, 2, false},
		{limited, 1, true},
		{again, 1, false}, // Another process of the same container.
		{nested, 5, true},
		{nested, 2, false},
		{free, 20, true},
		{free, 20, false}, // More than the GPU has left.
	} {
		err := step.who.Allocate(step.gib * gib)
		if (err == nil) != step.fits || err != nil && !errors.Is(err, ErrOutOfMemory) {
			t.Errorf("step %d, %d GiB: %v, want fits %t", i, step.gib, err, step.fits)
		}
	}
	if err := limited.Allocate(1<<64 - 1); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("all that can be counted: %v", err)
	}
	wantUsed(t, d, 35*gib)
	wantLimit(t, d, host, 10*gib, 10*gib, 10*gib)
	wantLimit(t, d, other, 6*gib, 6*gib, 5*gib)

	must(t, limited.Close())
	wantUsed(t, d, 25*gib)
	must(t, again.Allocate(10*gib))
	for _, a := range []*Allocator{again, nested, free} {
		must(t, a.Close())
	}
	wantUsed(t, d, 0)
	wantNoHolders(t, m)
}

func TestALimitIsOfOneGPU(t *testing.T) {
	m := newMachine(t, "a100-sxm4-40gb:2")
	must(t, m.SetDriverVersion("615.43.02"))
	cgroup := t.TempDir()
	setLimit(t, gpuAt(t, initialised(t, m), 0), cgroup, gib, gib)
	for gpu, fits := range []bool{false, true} {
		a, err := m.NewAllocator(fmt.Sprint(gpu), cgroup)
		must(t, err)
		if err := a.Allocate(2 * gib); (err == nil) != fits {
			t.Errorf("GPU %d: %v", gpu, err)
		}
		must(t, a.Close())
	}
}

func TestAllocationsCountAsLoad(t *testing.T) {
	m, d := newLimitsMachine(t)
	must(t, m.SetLoad("0", Load{GPUPercent: 50, Processes: []Process{{PID: 7, MemoryBytes: gib}}}))
	a := allocator(t, m, t.TempDir())
	must(t, a.Allocate(2*gib))
	must(t, a.Allocate(3*gib))
	wantUsed(t, d, 6*gib)

	processes, ret := d.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS || len(processes) != 2 || processes[0].Pid != 7 ||
		processes[1].Pid != uint32(os.Getpid()) || processes[1].UsedGpuMemory != 5*gib {
		t.Errorf("processes %+v, %v", processes, ret)
	}
	if graphics, ret := d.GetGraphicsRunningProcesses(); ret != nvml.SUCCESS || len(graphics) != 0 {
		t.Errorf("graphics processes %+v, %v", graphics, ret)
	}
	if name, ret := m.NVML().SystemGetProcessName(os.Getpid()); ret != nvml.SUCCESS || name != processName() {
		t.Errorf("name %q, %v", name, ret)
	}
	if samples, ret := d.GetProcessUtilization(0); ret != nvml.SUCCESS || len(samples) != 2 || samples[1].SmUtil != 25 {
		t.Errorf("samples %+v, %v", samples, ret)
	}
	g := summary(t, m).GPUs[0]
	if g.MemoryUsedBytes != 6*gib || len(g.Load.Processes) != 2 {
		t.Errorf("%+v", g)
	}
	if err := m.ResetGPU("0"); err == nil {
		t.Error("a GPU was reset under a process")
	}
	must(t, m.SetLoad("0", Load{}))
	must(t, a.Close())
	must(t, m.ResetGPU("0"))
}

func TestWhatAllocateSaysWithoutAGPU(t *testing.T) {
	m, _ := newLimitsMachine(t)
	dev := t.TempDir()
	if err := m.CheckDeviceNode(dev, "0"); err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("without a device node: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dev, "nvidia0"), nil, 0o600))
	must(t, m.CheckDeviceNode(dev, "0"))

	for _, test := range []struct{ name, gpu, cgroup, want string }{
		{"no such GPU", "7", dev, `no GPU "7"`},
		{"no cgroup", "0", filepath.Join(dev, "none"), "no cgroup is at"},
		{"a file of a cgroup", "0", filepath.Join(dev, "nvidia0"), "no cgroup is at"},
	} {
		if _, err := m.NewAllocator(test.gpu, test.cgroup); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want %q", test.name, err, test.want)
		}
	}
}

func TestAGPUThatIsGoneIsNotOutOfMemory(t *testing.T) {
	m, _ := newLimitsMachine(t)
	a := allocator(t, m, t.TempDir())
	for _, test := range []struct {
		name    string
		change  func() error
		restore func() error
	}{
		{"in MIG mode", func() error { return m.SetMIGMode("0", true) }, func() error { return errors.Join(m.SetMIGMode("0", false), m.ResetGPU("0")) }},
		{"lost", func() error { return m.LoseGPU("0") }, func() error { return m.RestoreGPU("0") }},
		{"without a driver", func() error { return m.SetDriverVersion("none") }, func() error { return m.SetDriverVersion("615.43.02") }},
		{"pulled out", func() error { return m.RemoveGPU("0") }, func() error { return nil }},
	} {
		must(t, test.change())
		if st, err := m.store.read(); err != nil || test.name == "in MIG mode" && !st.GPUs[0].MIGEnabled {
			// Ampere changes the mode at the next reset.
			must(t, errors.Join(err, m.ResetGPU("0")))
		}
		if err := a.Allocate(gib); err == nil || errors.Is(err, ErrOutOfMemory) {
			t.Errorf("%s: %v", test.name, err)
		}
		must(t, test.restore())
	}
	must(t, a.Close())
}

// holdEnv makes the test's program one that allocates and holds, and runs no test.
const holdEnv = "FAKEGPU_TEST_HOLD"

func init() {
	if dir := os.Getenv(holdEnv); dir != "" {
		hold(dir)
	}
}

// hold allocates 5 GiB for the cgroup beside the machine when a line comes on standard
// input, says how that went, and holds them until standard input ends.
func hold(dir string) {
	stdin := bufio.NewReader(os.Stdin)
	m, err := Open(dir)
	if err == nil {
		var a *Allocator
		if a, err = m.NewAllocator("0", filepath.Join(dir, "cgroup")); err == nil {
			fmt.Println("ready")
			_, _ = stdin.ReadString('\n') // If there is no more input the next read ends this process.
			err = a.Allocate(5 * gib)
		}
	}
	fmt.Println("allocated", err)
	_, _ = stdin.ReadString('\n') // It ends, or this process is killed.
	os.Exit(0)
}

// holder5 is a process that holds 5 GiB for the cgroup in the machine's folder, if it
// gets them.
type holder5 struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// starting starts a process that is ready to allocate.
func starting(t *testing.T, m *Machine) holder5 {
	t.Helper()
	h := holder5{Cmd: exec.Command(os.Args[0])}
	h.Env = append(os.Environ(), holdEnv+"="+m.Dir())
	stdin, err := h.StdinPipe()
	must(t, err)
	stdout, err := h.StdoutPipe()
	must(t, err)
	h.stdin, h.stdout = stdin, bufio.NewReader(stdout)
	must(t, h.Start())
	t.Cleanup(func() {
		stdin.Close()
		_ = h.Wait() // Waited for already, or killed.
	})
	if line := h.says(t); line != "ready\n" {
		t.Fatalf("the process says %q", line)
	}
	return h
}

func (h holder5) says(t *testing.T) string {
	t.Helper()
	line, err := h.stdout.ReadString('\n')
	must(t, err)
	return line
}

func (h holder5) allocate(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(h.stdin, "now\n")
	must(t, err)
}

// holding starts a process that holds 5 GiB.
func holding(t *testing.T, m *Machine) holder5 {
	t.Helper()
	h := starting(t, m)
	h.allocate(t)
	if line := h.says(t); line != "allocated <nil>\n" {
		t.Fatalf("the process says %q", line)
	}
	return h
}

func TestOfProcessesThatAllocateAtOnceAsManyGetMemoryAsFit(t *testing.T) {
	m, d := newLimitsMachine(t)
	cgroup := filepath.Join(m.Dir(), "cgroup")
	must(t, os.Mkdir(cgroup, 0o700))
	setLimit(t, d, cgroup, 17*gib, 17*gib)
	var processes []holder5
	for range 8 {
		processes = append(processes, starting(t, m))
	}
	for _, h := range processes {
		h.allocate(t)
	}
	got := 0
	for _, h := range processes {
		switch line := h.says(t); {
		case line == "allocated <nil>\n":
			got++
		case !strings.Contains(line, ErrOutOfMemory.Error()):
			t.Errorf("a process says %q", line)
		}
	}
	if got != 3 {
		t.Errorf("%d processes got 5 GiB of 17", got)
	}
	wantUsed(t, d, 15*gib)
	wantLimit(t, d, cgroup, 17*gib, 17*gib, 15*gib)
	if running, ret := d.GetComputeRunningProcesses(); ret != nvml.SUCCESS || len(running) != 3 {
		t.Errorf("processes %+v, %v", running, ret)
	}
}

func TestMemoryOfAProcessThatWasKilledIsFree(t *testing.T) {
	m, d := newLimitsMachine(t)
	cgroup := filepath.Join(m.Dir(), "cgroup")
	must(t, os.Mkdir(cgroup, 0o700))
	setLimit(t, d, cgroup, 6*gib, 6*gib)
	cmd := holding(t, m)

	mine := allocator(t, m, cgroup)
	if err := mine.Allocate(2 * gib); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("beside the other process: %v", err)
	}
	wantLimit(t, d, cgroup, 6*gib, 6*gib, 5*gib)

	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // It was killed.
	wantUsed(t, d, 0)
	wantLimit(t, d, cgroup, 6*gib, 6*gib, 0)
	if processes, _ := d.GetComputeRunningProcesses(); len(processes) != 0 {
		t.Errorf("processes %+v", processes)
	}
	must(t, mine.Allocate(6*gib))
	must(t, mine.Close())

	// The next to come clears away what was left.
	must(t, allocator(t, m, cgroup).Close())
	wantNoHolders(t, m)
}

// A container sees another PID of its processes than the node: the PID that NVML gives
// is the one that whoever asks knows.
func TestPIDIsTheOneOfWhoAsks(t *testing.T) {
	m, d := newLimitsMachine(t)
	must(t, os.Mkdir(filepath.Join(m.Dir(), "cgroup"), 0o700))
	cmd := holding(t, m)
	// As if it had said the PID of its container.
	must(t, m.changeGPU("0", func(v view) error {
		v.Allocations[0].PID = 1
		return nil
	}))
	if processes, ret := d.GetComputeRunningProcesses(); ret != nvml.SUCCESS || len(processes) != 1 || processes[0].Pid != uint32(cmd.Process.Pid) {
		t.Errorf("processes %+v, %v; want PID %d", processes, ret, cmd.Process.Pid)
	}
	must(t, cmd.stdin.Close())
	must(t, cmd.Wait())
	wantUsed(t, d, 0)
}
