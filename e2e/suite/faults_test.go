package suite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/e2e/cluster"
)

// faultPort is where the plugin built with fault points listens for them.
const faultPort = 22381

// faultPoints are the places in pkg/prepare where the process is killed: those
// a Prepare passes, and those an Unprepare passes.
var (
	preparePoints   = []string{"prepareAfterIntent", "prepareAfterSteps", "prepareAfterRecord"}
	unpreparePoints = []string{"unprepareLocked", "undoAfterSteps", "undoAfterRecord"}
)

// TestKilledInTheMiddle puts a plugin with fault points in place of the real one
// for as long as it runs.
func TestKilledInTheMiddle(t *testing.T) {
	source := sourceWithFaultPoints(t)
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
}

// sourceWithFaultPoints copies the driver's source and turns its gofail comments
// into code there, so that no other build has them.
func sourceWithFaultPoints(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	source := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "api", "cmd", "pkg", "deployments"} {
		from := filepath.Join(root, name)
		info, err := os.Stat(from)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil && info.IsDir() {
			err = os.CopyFS(filepath.Join(source, name), os.DirFS(from))
		} else if err == nil {
			var data []byte
			if data, err = os.ReadFile(from); err == nil {
				err = os.WriteFile(filepath.Join(source, name), data, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	gofail := exec.CommandContext(t.Context(), "go", "tool", "gofail", "enable", "./pkg/prepare")
	gofail.Dir = source
	if output, err := gofail.CombinedOutput(); err != nil {
		t.Fatalf("gofail: %v\n%s", err, output)
	}
	return source
}

// arm makes the plugin stop at a fault point for as long as it lives.
func arm(t *testing.T, n *cluster.Node, point string) {
	t.Helper()
	pod := pluginPod(t, n)
	url := fmt.Sprintf("http://%s:%d/%s", pod.Status.PodIP, faultPort, point)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(`1*sleep("1h")`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		t.Fatalf("fault point %s: %s", point, response.Status)
	}
}

// killAt waits until the plugin stands at the fault point and kills it there.
func killAt(t *testing.T, n *cluster.Node, point string) {
	t.Helper()
	pod := pluginPod(t, n)
	url := fmt.Sprintf("http://%s:%d/%s/count", pod.Status.PodIP, faultPort, point)
	waitFor(t, "the plugin stands at "+point, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
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
	})
	if err := n.Signal(t.Context(), "KILL", program); err != nil {
		t.Fatal(err)
	}
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
