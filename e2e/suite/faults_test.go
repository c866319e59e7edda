package suite

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/e2e/cluster"
)

// faultPort is where the plugin built with fault points listens for them.
const faultPort = 22381

// The places in pkg/node/prepare where the process is killed: those a Prepare passes,
// and those an Unprepare passes.
var (
	preparePoints   = []string{"prepareAfterIntent", "prepareAfterSteps", "prepareAfterRecord"}
	unpreparePoints = []string{"unprepareLocked", "undoAfterSteps", "undoAfterRecord"}
)

// TestKilledInTheMiddle puts a plugin with fault points in place of the real one
// for as long as it runs.
func TestKilledInTheMiddle(t *testing.T) {
	source := faultySource(t)
	t.Cleanup(func() {
		if err := theCluster.InstallDriver(context.Background(), nil); err != nil {
			t.Errorf("put the real plugin back: %v", err)
		}
	})
	err := theCluster.InstallDriverFrom(t.Context(), source, map[string]any{
		"extraEnv": []any{map[string]any{"name": "GOFAIL_HTTP", "value": fmt.Sprintf("0.0.0.0:%d", faultPort)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	n, _ := node(t, "node-b")
	for _, point := range preparePoints {
		t.Run("prepare killed at "+point, func(t *testing.T) {
			s := newSpace(t)
			s.apply(gpuClaimTemplate, map[string]any{"Name": "a100", "Count": nil, "Select": onA100})
			before := pluginPod(t, n)
			arm(t, n, point)
			s.startA100("one")
			killAt(t, n, point)
			pluginIsBack(t, n, before)
			s.nudge("one")
			s.running("one")
			s.startA100("two")
			s.running("two")
			one, two := s.devices("one", "work"), s.devices("two", "work")
			if len(one) != 1 || len(two) != 1 || one[0] == two[0] {
				t.Errorf("the pods see %v and %v, want one GPU each", one, two)
			}
		})
	}
	for _, point := range unpreparePoints {
		t.Run("unprepare killed at "+point, func(t *testing.T) {
			s, gpus := twoA100Pods(t)
			before := pluginPod(t, n)
			arm(t, n, point)
			if err := client.CoreV1().Pods(s.name).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			killAt(t, n, point)
			pluginIsBack(t, n, before)
			s.nudge("one")
			waitFor(t, "pod one is gone", func(ctx context.Context) (bool, error) {
				_, err := client.CoreV1().Pods(s.name).Get(ctx, "one", metav1.GetOptions{})
				return apierrors.IsNotFound(err), err
			})
			s.startA100("three")
			s.running("three")
			if got := s.devices("three", "work"); !slices.Equal(got, gpus["one"]) {
				t.Errorf("the next pod sees %v, want the free %v", got, gpus["one"])
			}
		})
	}
	t.Run("partition", partitionKilledInTheMiddle)
}

// The driver's source with fault points, which several tests build from.
var (
	faultySourceOnce = sync.OnceValues(sourceWithFaultPoints)
	faultySourceDir  string
)

func faultySource(t *testing.T) string {
	t.Helper()
	source, err := faultySourceOnce()
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func removeFaultySource() error {
	if faultySourceDir == "" {
		return nil
	}
	return os.RemoveAll(faultySourceDir)
}

// sourceWithFaultPoints copies the driver's source and turns its gofail comments
// into code there, so that no other build has them.
func sourceWithFaultPoints() (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	source, err := os.MkdirTemp("", "apportion-faults-")
	if err != nil {
		return "", err
	}
	faultySourceDir = source
	for _, name := range []string{"go.mod", "go.sum", "api", "cmd", "internal", "pkg", "deployments"} {
		if err := copyTree(filepath.Join(source, name), filepath.Join(root, name)); err != nil {
			return "", fmt.Errorf("copy the driver's source: %w", err)
		}
	}
	gofail := exec.Command("go", "tool", "gofail", "enable", "./pkg/node/prepare", "./pkg/node/mig")
	gofail.Dir = source
	if output, err := gofail.CombinedOutput(); err != nil {
		return "", fmt.Errorf("gofail: %w\n%s", err, output)
	}
	return source, nil
}

// copyTree copies a file or a folder.
func copyTree(to, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// faultsOf is where the plugin of a node takes orders about fault points.
func faultsOf(t *testing.T, n *cluster.Node) string {
	t.Helper()
	return fmt.Sprintf("http://%s:%d", pluginPod(t, n).Status.PodIP, faultPort)
}

// arm makes the plugin of a node stop at a fault point for as long as it lives.
func arm(t *testing.T, n *cluster.Node, point string) {
	t.Helper()
	if err := armFault(t.Context(), faultsOf(t, n), point); err != nil {
		t.Fatal(err)
	}
}

// killAt waits until the plugin of a node stands at the fault point and kills it
// there.
func killAt(t *testing.T, n *cluster.Node, point string) {
	t.Helper()
	faults := faultsOf(t, n)
	waitFor(t, "the plugin stands at "+point, func(ctx context.Context) (bool, error) {
		return faultReached(ctx, faults, point)
	})
	if err := n.Signal(t.Context(), "KILL", program); err != nil {
		t.Fatal(err)
	}
}

// armFault makes a process that listens for orders at the URL stop at a fault point.
func armFault(ctx context.Context, faults, point string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, faults+"/"+point, strings.NewReader(`1*sleep("1h")`))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("fault point %s: %s", point, response.Status)
	}
	return nil
}

// faultReached says whether the process stands at the fault point.
func faultReached(ctx context.Context, faults, point string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, faults+"/"+point+"/count", nil)
	if err != nil {
		return false, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	var count int
	_, err = fmt.Fscan(response.Body, &count)
	return count > 0, err
}

// nudge changes the pod, so that the kubelet looks at it now and not at its next
// turn, which may be a minute and a half away.
func (s *space) nudge(pod string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"e2e/nudge":%q}}}`, time.Now().Format(time.RFC3339Nano))
	_, err := client.CoreV1().Pods(s.name).Patch(s.t.Context(), pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
}
