package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestParseNodes(t *testing.T) {
	for _, test := range []struct {
		text string
		want []NodeSpec
		err  string
	}{
		{text: "node-a=h100-sxm5-80gb:8", want: []NodeSpec{{Name: "node-a", FakeGPUs: "h100-sxm5-80gb:8"}}},
		{text: "a=t4:1+l4:2, b", want: []NodeSpec{{Name: "a", FakeGPUs: "t4:1,l4:2"}, {Name: "b"}}},
		{text: "", err: `node name ""`},
		{text: "a,,b", err: `node name ""`},
		{text: "a=t4:1,a=t4:1", err: "is there twice"},
		{text: "a_b", err: "RFC 1123"},
		{text: "control-plane", err: "the name of a part of the cluster"},
		{text: "logs", err: "the name of a part of the cluster"},
		{text: strings.Repeat("x", 64), err: "no more than 63"},
	} {
		got, err := ParseNodes(test.text)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("ParseNodes(%q): error %v, want one with %q", test.text, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("ParseNodes(%q): %v", test.text, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("ParseNodes(%q) (-want +got):\n%s", test.text, diff)
		}
	}
}

func TestBackingPath(t *testing.T) {
	node := newCluster("/c", state{specification: specification{Nodes: []NodeSpec{{Name: "n"}}}}, nil).Node("n")
	for path, want := range map[string]string{
		"/var/lib/kubelet/plugins": "/c/n/var/lib/kubelet/plugins",
		"/var/run/cdi/x.json":      "/c/n/run/cdi/x.json",
		"/var/run":                 "/c/n/run",
		"/run/cdi":                 "/c/n/run/cdi",
		"/var/runner":              "/c/n/var/runner",
		"/etc/../var/run/cdi/":     "/c/n/run/cdi",
	} {
		if got := node.BackingPath(path); got != want {
			t.Errorf("BackingPath(%q) is %q, want %q", path, got, want)
		}
	}
}

func TestFolderOfACluster(t *testing.T) {
	for dir, want := range map[string]string{
		DefaultDir:                           "",
		"/var/lib/kubelet/cluster":           "which each node has for itself",
		"/run/cdi":                           "which each node has for itself",
		"/var/lib/kubelets":                  "",
		"/home/somebody/with/a/long/path/it": "too long",
	} {
		err := checkDir(dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("checkDir(%q): %v, want %q", dir, err, want)
		}
	}
}

// Sockets of the plugin must be reachable by their backing paths.
func TestSocketPathsFit(t *testing.T) {
	const limit = 107
	path := filepath.Join(DefaultDir, "node-a/var/lib/kubelet/plugins_registry/gpu.apportion.dev-reg.sock")
	if len(path) > limit {
		t.Errorf("%s has %d bytes, more than a socket's path may have (%d)", path, len(path), limit)
	}
}

func TestVersionIsThatOfTheModule(t *testing.T) {
	data, err := os.ReadFile("../kube/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (\S+)$`).FindSubmatch(data)
	if match == nil || string(match[1]) != KubernetesVersion {
		t.Errorf("e2e/kube/go.mod requires k8s.io/kubernetes %s, KubernetesVersion is %s", match, KubernetesVersion)
	}
}

func TestPublished(t *testing.T) {
	slice := func(node string, generation, count int64) resourceapi.ResourceSlice {
		return resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
			NodeName: ptr.To(node),
			Pool:     resourceapi.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: count},
		}}
	}
	c := newCluster("/c", state{specification: specification{Nodes: []NodeSpec{{Name: "a"}, {Name: "b"}}}}, nil)
	for name, test := range map[string]struct {
		slices []resourceapi.ResourceSlice
		err    string
	}{
		"none":                   {err: "node a has published 0 of 0"},
		"one node":               {slices: []resourceapi.ResourceSlice{slice("a", 1, 1)}, err: "node b has published 0 of 0"},
		"both":                   {slices: []resourceapi.ResourceSlice{slice("a", 1, 1), slice("b", 3, 1)}},
		"a part":                 {slices: []resourceapi.ResourceSlice{slice("a", 1, 2), slice("b", 1, 1)}, err: "node a has published 1 of 2"},
		"a part of the new ones": {slices: []resourceapi.ResourceSlice{slice("a", 1, 2), slice("a", 2, 2), slice("b", 1, 1)}, err: "node a has published 1 of 2"},
		"new ones, an old one":   {slices: []resourceapi.ResourceSlice{slice("a", 2, 2), slice("a", 1, 3), slice("a", 2, 2), slice("b", 1, 1)}},
	} {
		err := c.published(test.slices)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, want %q", name, err, test.err)
		}
	}
}

// A Deployment of an older version, or with pods that are still to go, is not waited for
// long enough: the pods that answer would be those of the version before.
func TestDeployed(t *testing.T) {
	for name, test := range map[string]struct {
		replicas *int32
		observed int64
		status   appsv1.DeploymentStatus
		want     string
	}{
		"ready":           {ptr.To[int32](2), 3, appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, ""},
		"one by default":  {nil, 3, appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}, ""},
		"none wanted":     {ptr.To[int32](0), 3, appsv1.DeploymentStatus{}, ""},
		"not seen yet":    {ptr.To[int32](2), 2, appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, "Deployment webhook"},
		"one starts":      {ptr.To[int32](2), 3, appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1}, "1 of 2 pods"},
		"an old one left": {ptr.To[int32](2), 3, appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 2, ReadyReplicas: 3}, "Deployment webhook"},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "webhook", Generation: 3}, Spec: appsv1.DeploymentSpec{Replicas: test.replicas}, Status: test.status}
		d.Status.ObservedGeneration = test.observed
		err := deployed(d)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestDriverValues(t *testing.T) {
	c := newCluster("/c", state{specification: specification{Nodes: DefaultNodes()}}, nil)
	over := map[string]any{"fake": map[string]any{"driverVersion": "570.1"}, "podAnnotations": nil, "logging": map[string]any{"verbosity": 6}}
	want := map[string]any{
		"image":          map[string]any{"repository": "apportion.dev/apportion", "tag": "dev", "pullPolicy": "Never"},
		"fake":           map[string]any{"enabled": true, "gpus": "node-a=h100-sxm5-80gb:8;node-b=a100-sxm4-40gb:2", "driverVersion": "570.1"},
		"podAnnotations": nil,
		"webhook":        map[string]any{"podAnnotations": map[string]any{"apportion.dev/image-digest": "0123"}},
		"exporter":       map[string]any{"podAnnotations": map[string]any{"apportion.dev/image-digest": "0123"}},
		"logging":        map[string]any{"verbosity": 6},
	}
	if diff := cmp.Diff(want, merge(c.driverValues("0123"), over)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A folder that is not a cluster's must never be removed.
func TestForeignFolderIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	if err := checkForeign(dir); err != nil {
		t.Errorf("empty folder: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, logsFolder), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := checkForeign(dir); err != nil {
		t.Errorf("folder with the logs of a cluster that did not start: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := checkForeign(dir); err == nil {
		t.Error("a folder with somebody's file passes")
	}
}

func TestClearFolderRemovesTheStateLast(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{stateFile, "node-a/var/lib/kubelet/x", "logs/etcd.log", "pids/etcd"} {
		if err := writeFile(filepath.Join(dir, file), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := clearFolder(dir, logsFolder); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(dir + "/*")
	if err != nil || len(left) != 1 || left[0] != filepath.Join(dir, logsFolder) {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestMountPoints(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"etc", "var/lib/kubelet"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	points := mountPoints{path: filepath.Join(dir, "list")}
	folders := []string{filepath.Join(dir, "etc/cdi"), filepath.Join(dir, "var/lib/kubelet"), filepath.Join(dir, "var/log/pods"), filepath.Join(dir, "var/log/containers")}
	if err := points.make(folders); err != nil {
		t.Fatal(err)
	}
	// Somebody else uses one of the folders meanwhile.
	if err := os.WriteFile(filepath.Join(dir, "etc/cdi/vendor.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to do
		if err := points.remove(); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{"etc/cdi/vendor.json": true, "var/lib/kubelet": true, "var/log": false, "list": false} {
		if got := exists(filepath.Join(dir, path)); got != want {
			t.Errorf("%s exists: %t, want %t", path, got, want)
		}
	}
}

// A cluster that goes down must not take away what another one has mounted on.
func TestMountPointsAreHandedOver(t *testing.T) {
	dir := t.TempDir()
	first, second := mountPoints{path: filepath.Join(dir, "first")}, mountPoints{path: filepath.Join(dir, "second")}
	cdi, pods := filepath.Join(dir, "etc/cdi"), filepath.Join(dir, "var/pods")
	if err := first.make([]string{cdi}); err != nil {
		t.Fatal(err)
	}
	if err := second.make([]string{cdi, pods}); err != nil {
		t.Fatal(err)
	}
	if err := first.handOver(second); err != nil {
		t.Fatal(err)
	}
	if !exists(cdi) || exists(first.path) {
		t.Error("after the first cluster went down: the folder must be there and its list must not")
	}
	if err := second.remove(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"etc", "var", "second"} {
		if exists(filepath.Join(dir, path)) {
			t.Errorf("after the second cluster went down %s is still there", path)
		}
	}
}

func TestBuildOnce(t *testing.T) {
	b := &builder{bin: t.TempDir(), log: &bytes.Buffer{}}
	made := 0
	build := func(key string) {
		t.Helper()
		err := b.once("tool", key, func(path string) error {
			made++
			return os.WriteFile(path, nil, 0o755)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		key  string
		want int
	}{{"v1", 1}, {"v1", 1}, {"v2", 2}, {"v2", 2}} {
		if build(step.key); made != step.want {
			t.Errorf("with key %s it was made %d times, want %d", step.key, made, step.want)
		}
	}
	if err := os.Remove(filepath.Join(b.bin, "tool")); err != nil {
		t.Fatal(err)
	}
	if build("v2"); made != 3 {
		t.Errorf("after its removal it was made %d times, want 3", made)
	}
}
