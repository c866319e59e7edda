package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLifecycle starts a cluster of its own, beside one that may be up, does to it
// what tests of the driver will do, and checks that nothing is left of it.
func TestLifecycle(t *testing.T) {
	if os.Getenv("APPORTION_CLUSTER_TEST") == "" {
		t.Skip("needs root and minutes; set APPORTION_CLUSTER_TEST=1 to run it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	options := Options{
		Dir: "/var/lib/apportion-lifecycle",
		Log: os.Stderr,
		Nodes: []NodeSpec{
			{Name: "one", Labels: map[string]string{"example.com/kind": "first"}},
			{Name: "two"},
		},
	}
	before := footprint(t)
	t.Cleanup(func() {
		if err := Down(context.WithoutCancel(ctx), options.Dir, os.Stderr); err != nil {
			t.Error(err)
		}
	})
	c, err := Up(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Up(ctx, options)
	if err != nil || again.controlPlane.holder.pid() != c.controlPlane.holder.pid() {
		t.Fatalf("the second Up did not return the cluster of the first: %v", err)
	}
	if err := c.Apply(ctx, []byte(podYAML("stays", "one")+podYAML("stays-too", "two"))); err != nil {
		t.Fatal(err)
	}
	wait := func(pod string) {
		t.Helper()
		if _, err := c.RunKubectl(ctx, nil, "wait", "--for=condition=Ready", "--timeout=60s", "pod/"+pod); err != nil {
			t.Fatal(err)
		}
	}
	wait("stays")
	wait("stays-too")
	if log, err := c.RunKubectl(ctx, nil, "logs", "stays"); err != nil || string(log) != "started\n" {
		t.Fatalf("log of the pod is %q, %v", log, err)
	}
	if out, err := c.RunKubectl(ctx, nil, "exec", "stays", "--", "echo", "hello"); err != nil || string(out) != "hello\n" {
		t.Fatalf("exec printed %q, %v", out, err)
	}

	node := c.Node("one")
	restarts := func() string {
		out, err := c.RunKubectl(ctx, nil, "get", "pod", "stays", "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}")
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for name, restart := range map[string]func(context.Context) error{"kubelet": node.RestartKubelet, "containerd": node.RestartContainerd} {
		if err := restart(ctx); err != nil {
			t.Fatalf("restart %s: %v", name, err)
		}
		if got := restarts(); got != "Running 0" {
			t.Errorf("after a restart of %s the pod is %q", name, got)
		}
	}
	if err := c.Apply(ctx, []byte(podYAML("later", "one"))); err != nil {
		t.Fatal(err)
	}
	wait("later")

	testFolders(ctx, t, node)
	oldBoot, err := node.Exec(ctx, "cat", bootIDFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	if newBoot, err := node.Exec(ctx, "cat", bootIDFile); err != nil || string(newBoot) == string(oldBoot) {
		t.Errorf("the boot id after a reboot is %q as before, %v", newBoot, err)
	}
	if _, err := os.Stat(node.BackingPath("/var/run/cdi/spec.json")); !os.IsNotExist(err) {
		t.Errorf("/var/run/cdi is not empty after a reboot: %v", err)
	}
	if data, err := os.ReadFile(node.BackingPath("/var/lib/kubelet/record")); err != nil || string(data) != "kept" {
		t.Errorf("a file in /var/lib/kubelet after a reboot holds %q, %v", data, err)
	}
	if _, err := c.RunKubectl(ctx, nil, "wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "--timeout=90s", "pod/stays"); err != nil {
		t.Error(err)
	}
	wait("stays")

	t.Log("killing everything")
	for _, p := range c.processes() {
		if err := p.stop(ctx, 0); err != nil {
			t.Error(err)
		}
	}
	if c, err = Up(ctx, options); err != nil {
		t.Fatal(err)
	}
	if out, err := c.RunKubectl(ctx, nil, "get", "pods", "-o", "name"); err != nil || len(out) != 0 {
		t.Errorf("a new cluster has pods: %s, %v", out, err)
	}
	if err := c.Down(ctx); err != nil {
		t.Fatal(err)
	}
	if after := footprint(t); after != before {
		t.Errorf("left on the host:\n--- before\n%s\n--- after\n%s", before, after)
	}
	if _, err := Attach(options.Dir); err == nil {
		t.Error("Attach finds a cluster that is down")
	}
}

func podYAML(name, node string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    command: [sh, -c, "echo started; exec sleep 1000000"]
`, name, node, BusyboxImage)
}

// testFolders checks that a node's folders are its own and shared with the host.
func testFolders(ctx context.Context, t *testing.T, node *Node) {
	t.Helper()
	for path, text := range map[string]string{"/var/lib/kubelet/record": "kept", "/var/run/cdi/spec.json": "{}"} {
		if err := os.WriteFile(node.BackingPath(path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := node.Exec(ctx, "cat", path); err != nil || string(out) != text {
			t.Errorf("%s on the node holds %q, %v", path, out, err)
		}
		if out, err := node.cluster.Node("two").Exec(ctx, "cat", path); err == nil {
			t.Errorf("%s is on the other node too: %q", path, out)
		}
	}
}

// footprint describes what a cluster could leave on the host.
func footprint(t *testing.T) string {
	t.Helper()
	var lines []string
	for _, file := range append([]string{"/proc/self/mounts", "/proc/sys/net/ipv4/ip_forward"}, nodeSettings...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, file, string(data))
	}
	for _, pattern := range []string{
		"/etc/c*", "/opt/*", "/run/*", "/var/lib/*", "/var/log/*", "/var/log/pods/*", "/usr/libexec/*", "/run/netns/*",
		"/sys/class/net/*", "/sys/fs/cgroup/*/*", "/sys/fs/cgroup/apportion*",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				lines = append(lines, path)
			}
		}
	}
	return strings.Join(lines, "\n")
}
