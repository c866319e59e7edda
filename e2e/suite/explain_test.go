package suite

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// apportion runs the program on the cluster and returns what it printed and its exit
// status.
func apportion(t *testing.T, binary string, args ...string) (output string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append(args, "--kubeconfig", theCluster.Kubeconfig())...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if stderr.Len() > 0 {
		t.Logf("apportion %s: %s", strings.Join(args, " "), stderr.String())
	}
	return string(stdout), cmd.ProcessState.ExitCode()
}

// An administrator asks why a pod waits, and what node it needs.
func TestAPendingPodIsExplained(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "apportion")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/apportion")
	build.Dir = filepath.Join("..", "..")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build apportion: %v: %s", err, output)
	}
	s := newSpace(t)
	s.template("four", asks(request("gpu", counted(wholeOf(is("productName", "NVIDIA A100-SXM4-40GB")), 4))))
	s.start(usesTemplate("waits", "four"))
	s.pending("waits")

	output, status := apportion(t, binary, "explain", "pod", "waits", "-n", s.name, "--instance-types", "p4d.24xlarge,g6.xlarge")
	if status != 0 {
		t.Errorf("explain ends with %d, want 0, as a p4d.24xlarge has 8 of these GPUs", status)
	}
	for _, want := range []string{"node-a", "0 of 4 devices", "node-b", "2 of 4 devices", "p4d.24xlarge", "g6.xlarge"} {
		if !strings.Contains(output, want) {
			t.Errorf("explain says %q, want %q in it", output, want)
		}
	}
	output, status = apportion(t, binary, "explain", "pod", "waits", "-n", s.name, "--instance-types", "g6.xlarge")
	if status != 3 {
		t.Errorf("explain ends with %d, want 3, as the pod fits nowhere: %s", status, output)
	}
	output, status = apportion(t, binary, "simulate", "--cluster", "--instance-types", "p4d.24xlarge,g6.xlarge")
	if status != 0 || !strings.Contains(output, s.name+"/waits") || !strings.Contains(output, "1 new node") {
		t.Errorf("simulate ends with %d and says %q, want the pod on one new node", status, output)
	}
}
