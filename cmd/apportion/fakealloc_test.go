package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// limitedProbe is a probe in a container with a limit of 10 GiB on GPU 0.
func limitedProbe(t *testing.T) (allocateProbe, *fakegpu.Machine) {
	t.Helper()
	dir := machine(t, "a100-sxm4-40gb")
	ok(t, "fake", "driver-version", "615.43.02")
	m, err := fakegpu.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	cgroup, dev := t.TempDir(), t.TempDir()
	lib := m.NVML()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	t.Cleanup(func() { lib.Shutdown() })
	d, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if ret := d.SetMemoryLimits_v1(cgroup, 10<<30, 10<<30); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if err := os.WriteFile(filepath.Join(dev, "nvidia0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return allocateProbe{dev: dev, root: fstest.MapFS{
		strings.TrimPrefix(cgroup, "/"): {Mode: fs.ModeDir},
		"proc/self/cgroup":              {Data: []byte("0::/\n")},
		"proc/self/mountinfo":           {Data: fmt.Appendf(nil, "1 1 0:1 / %s rw - cgroup2 cgroup2 rw\n", cgroup)},
	}}, m
}

func TestAllocateEndsAtTheFirstAmountThatIsRefused(t *testing.T) {
	p, m := limitedProbe(t)
	var out bytes.Buffer
	err := p.run(t.Context(), &out, m, "0", []string{"9Gi", "2Gi", "1Gi"})
	want := "allocated 9Gi\nout of memory: 2Gi with the 9Gi in use are more than the limit of 10Gi\n"
	if !errors.Is(err, errOutOfMemory) || out.String() != want {
		t.Errorf("%v, %q", err, out.String())
	}
	if used := shown(t).GPUs[0].MemoryUsedBytes; used != 0 {
		t.Errorf("%d bytes are still used", used)
	}
}

// told sends what is printed to whoever waits for it.
type told chan string

func (w told) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func TestAllocateHoldsUntilItIsToldToEnd(t *testing.T) {
	p, m := limitedProbe(t)
	p.hold = true
	ctx, stop := context.WithCancel(t.Context())
	out, ended := make(told), make(chan error, 1)
	go func() { ended <- p.run(ctx, out, m, "0", []string{"4Gi"}) }()
	if line := <-out; line != "allocated 4Gi\n" {
		t.Errorf("it says %q", line)
	}
	g := shown(t).GPUs[0]
	if g.MemoryUsedBytes != 4<<30 || len(g.MemoryLimits) != 1 || g.MemoryLimits[0].UsedBytes != 4<<30 || len(g.Load.Processes) != 1 {
		t.Errorf("while it holds: %+v", g)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if used := shown(t).GPUs[0].MemoryUsedBytes; used != 0 {
		t.Errorf("%d bytes are still used", used)
	}
}

func TestAllocateKeepsTheGPUBusyWhileItHolds(t *testing.T) {
	p, m := limitedProbe(t)
	p.hold, p.smPercent = true, 40
	ctx, stop := context.WithCancel(t.Context())
	out, ended := make(told), make(chan error, 1)
	go func() { ended <- p.run(ctx, out, m, visibleGPU, []string{"4Gi"}) }()
	<-out
	if g := shown(t).GPUs[0]; g.UtilizationPercent != 40 || g.MemoryUsedBytes != 4<<30 || len(g.Load.Processes) != 1 {
		t.Errorf("while it holds: %+v", g)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if g := shown(t).GPUs[0]; g.UtilizationPercent != 0 {
		t.Errorf("the GPU is still %d%% busy", g.UtilizationPercent)
	}
}

func TestAllocateTakesThePartitionThatIsVisible(t *testing.T) {
	p, _ := limitedProbe(t)
	dir := machine(t, "h100-sxm5-80gb")
	m, err := fakegpu.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	uuid, err := m.CreateMIG("0", "1g.10gb", -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.run(t.Context(), &bytes.Buffer{}, m, visibleGPU, []string{"1Gi"}); err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("without the partition's nodes: %v", err)
	}
	// The driver root has the nodes of all devices.
	p.dev = filepath.Join(m.DriverRoot(), "dev")
	var out bytes.Buffer
	if err := p.run(t.Context(), &out, m, visibleGPU, []string{"9Gi", "1Gi"}); !errors.Is(err, errOutOfMemory) || !strings.Contains(out.String(), "9984Mi") {
		t.Errorf("%v, %q", err, out.String())
	}
	if err := p.run(t.Context(), &out, m, uuid, []string{"9Gi"}); err != nil {
		t.Error(err)
	}
	p.dev = ""
	if err := p.run(t.Context(), &out, m, visibleGPU, []string{"9Gi"}); err == nil {
		t.Error("nobody looked for nodes, and one was found")
	}
}

func TestAllocateWithoutTheDevice(t *testing.T) {
	p, m := limitedProbe(t)
	p.dev = t.TempDir()
	if err := p.run(t.Context(), &bytes.Buffer{}, m, "0", []string{"1Gi"}); err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("error is %v", err)
	}
}

func TestAllocateWithoutTheDeviceWhereNobodyChecks(t *testing.T) {
	p, m := limitedProbe(t)
	p.dev = ""
	if err := p.run(t.Context(), &bytes.Buffer{}, m, "0", []string{"1Gi"}); err != nil {
		t.Error(err)
	}
}

func TestAllocateSaysThatTheGPUIsFull(t *testing.T) {
	p, m := limitedProbe(t)
	ok(t, "fake", "set", "--gpu", "0", "--memory-used", "38Gi")
	var out bytes.Buffer
	if err := p.run(t.Context(), &out, m, "0", []string{"3Gi"}); !errors.Is(err, errOutOfMemory) || !strings.Contains(out.String(), "are more than the 40Gi of the GPU") {
		t.Errorf("%v, %q", err, out.String())
	}
}

func TestMistakesWithAllocate(t *testing.T) {
	machine(t, "t4")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--gpu", "0"}, "SIZE is missing"},
		{[]string{"1Gi"}, "--gpu is missing"},
		{[]string{"--gpu", "0", "much"}, `"much" is no amount of memory`},
		{[]string{"--gpu", "0", "--", "-1Gi"}, `"-1Gi" is no amount of memory`},
		{[]string{"--gpu", "0", "0"}, `"0" is no amount of memory`},
		{[]string{"--gpu", "3", "1Gi"}, `no GPU "3"`},
		{[]string{"--gpu", "0", "--sm-percent", "101"}, "--sm-percent is at most 100"},
		{[]string{"--gpu", "MIG-7", "1Gi"}, `no MIG device "MIG-7"`},
	} {
		code, stdout, stderr := call(t, append([]string{"fake", "allocate"}, test.args...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: exit %d, %s%s, want %q", test.args, code, stdout, stderr, test.want)
		}
	}
}
