package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"apportion.dev/apportion/pkg/plan/simulate"
)

// demos is where the examples are that docs/simulate.md shows.
const demos = "../../demo/simulate/"

// The outputs were checked by hand against the manifests.
func TestSimulateTheDemos(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"-f " + demos + "mixed --instance-types " + demos + "types.yaml", exitNotPlaced, `
NODE    INSTANCE TYPE   PRICE   OR            REQUIRED LABELS                      PODS   UNUSED
new-1   g6.12xlarge     4.6     -             topology.kubernetes.io/zone=zone-a   5      memory 12794Mi of gpu-00000000
new-2   g6.12xlarge     4.6     p5.48xlarge   -                                    2      2 x NVIDIA L4
new-3   p5.48xlarge     55      -             -                                    1      -
new-4   p5.48xlarge     55      -             -                                    1      -

POD                  NODE    CLAIM           DEVICES
default/notebook-0   new-1   team-notebook   memory 10Gi of gpu-00000000
default/notebook-1   new-1   team-notebook   allocated before
default/serve-0      new-1   serve-0-gpu     1 x NVIDIA L4
default/serve-1      new-1   serve-1-gpu     1 x NVIDIA L4
default/serve-2      new-1   serve-2-gpu     1 x NVIDIA L4
default/serve-3      new-2   serve-3-gpu     1 x NVIDIA L4
default/serve-4      new-2   serve-4-gpu     1 x NVIDIA L4
default/train-0      new-3   train-0-gpus    8 x NVIDIA H100 80GB HBM3
default/train-1      new-4   train-1-gpus    8 x NVIDIA H100 80GB HBM3

NOT PLACED: default/too-large
  new-1 as g6.12xlarge, new-2 as g6.12xlarge: REASON
  new-2 as p5.48xlarge: REASON
  dgx-h200: taint example.com/owned:NoSchedule is not tolerated
  g6.4xlarge, g6.12xlarge: REASON
  p5.48xlarge: REASON

10 pods: 0 on nodes that exist, 9 on 4 new nodes (at least 3 needed), 1 not placed, price 119.2
`},
		{"-f " + demos + "fractions --instance-types p5.4xlarge,g6.xlarge", 0, `
NODE    INSTANCE TYPE   OR           PODS   UNUSED
new-1   g6.xlarge       p5.4xlarge   3      memory 4602Mi of gpu-00000000
new-2   p5.4xlarge      -            4      -

POD               NODE    CLAIM              DEVICES
default/embed-0   new-1   embed-0-gpu        memory 6Gi of gpu-00000000
default/embed-1   new-1   embed-1-gpu        memory 6Gi of gpu-00000000
default/embed-2   new-1   embed-2-gpu        memory 6Gi of gpu-00000000
default/rank-0    new-2   rank-0-partition   1 x 1g.10gb
default/rank-1    new-2   rank-1-partition   1 x 1g.10gb
default/rank-2    new-2   rank-2-partition   1 x 1g.10gb
default/tune      new-2   tune-partition     1 x 3g.40gb

7 pods: 0 on nodes that exist, 7 on 2 new nodes (at least 2 needed), 0 not placed
`},
		{"-f " + demos + "packing --instance-types p5.48xlarge", 0, `
NODE    INSTANCE TYPE   PODS   UNUSED
new-1   p5.48xlarge     2      3 x NVIDIA H100 80GB HBM3
new-2   p5.48xlarge     1      3 x NVIDIA H100 80GB HBM3
new-3   p5.48xlarge     1      2 x NVIDIA H100 80GB HBM3

POD         NODE    CLAIM   DEVICES
default/a   new-1   a       2 x NVIDIA H100 80GB HBM3
default/b   new-1   b       3 x NVIDIA H100 80GB HBM3
default/c   new-2   c       5 x NVIDIA H100 80GB HBM3
default/d   new-3   d       6 x NVIDIA H100 80GB HBM3

4 pods: 0 on nodes that exist, 4 on 3 new nodes (at least 2 needed), 0 not placed
`},
		{"-f " + demos + "packing --instance-types p5.48xlarge --policy best-fit", 0, `
NODE    INSTANCE TYPE   PODS
new-1   p5.48xlarge     2
new-2   p5.48xlarge     2

POD         NODE    CLAIM   DEVICES
default/d   new-1   d       6 x NVIDIA H100 80GB HBM3
default/a   new-1   a       2 x NVIDIA H100 80GB HBM3
default/c   new-2   c       5 x NVIDIA H100 80GB HBM3
default/b   new-2   b       3 x NVIDIA H100 80GB HBM3

4 pods: 0 on nodes that exist, 4 on 2 new nodes (at least 2 needed), 0 not placed
`},
	} {
		code, stdout, stderr := call(t, append([]string{"simulate"}, strings.Fields(test.args)...)...)
		if code != test.code || stderr != "" {
			t.Errorf("%s: exit %d, %s", test.args, code, stderr)
		}
		check(t, withoutReasons(stdout), test.want)
		checkDocument(t, test.args, stdout)
	}
}

// withoutReasons leaves out what the allocator says, the words of which are its own.
func withoutReasons(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if before, _, found := strings.Cut(line, ": request "); found {
			line = before + ": REASON\n"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// checkDocument makes sure that what docs/simulate.md shows is what the program prints.
func checkDocument(t *testing.T, args, stdout string) {
	t.Helper()
	document, err := os.ReadFile("../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	command := "$ apportion simulate " + strings.ReplaceAll(args, demos, "demo/simulate/") + "\n"
	if _, after, shown := strings.Cut(string(document), command); shown && !strings.HasPrefix(after, stdout) {
		t.Errorf("docs/simulate.md shows something else for %s than\n%s", command, stdout)
	}
}

func TestSimulateAsJSONAndYAML(t *testing.T) {
	args := []string{"simulate", "-f", demos + "mixed", "--instance-types", demos + "types.yaml"}
	var fromJSON, fromYAML simulate.Plan
	code, stdout, _ := call(t, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(stdout), &fromJSON); err != nil || code != exitNotPlaced {
		t.Fatalf("exit %d, %v", code, err)
	}
	_, stdout, _ = call(t, append(args, "-o", "yaml")...)
	if err := yaml.UnmarshalStrict([]byte(stdout), &fromYAML); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
		t.Errorf("JSON and YAML differ: %s", diff)
	}
	labels := map[string]string{
		"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "new-1", "kubernetes.io/os": "linux",
		"node.kubernetes.io/instance-type": "g6.12xlarge", "topology.kubernetes.io/zone": "zone-a",
	}
	if diff := cmp.Diff(labels, fromJSON.NodeClaims[0].Labels); diff != "" {
		t.Error(diff)
	}
	if got := fromJSON.NodeClaims[0].Unused.Resources[corev1.ResourceCPU]; got.String() != "19500m" { // 47.5 - 2*2 - 3*8
		t.Errorf("CPU left: %s", got.String())
	}
}

func TestSimulateWrongly(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bad := write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: \"a\\x1b\"}\nspec: {nodes: 1}\n")
	plugin := write("types.yaml", "instanceTypes:\n- name: p5.48xlarge\n  allocatable: {nvidia.com/gpu: 8}\n")
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "nothing to simulate: give manifests with -f, or --cluster"},
		{[]string{"-f", "nowhere"}, exitUsage, "there is no file or folder nowhere"},
		{[]string{"-f", bad}, exitUsage, bad + `, document 1 (line 1): Pod a\x1b: unknown field "spec.nodes": correct or remove what is named`},
		{[]string{"-f", demos + "packing", "--instance-types", "p5.49xlarge"}, exitUsage, `unknown instance type "p5.49xlarge"; known are: p5.4`},
		{[]string{"-f", demos + "packing", "--instance-types", "z*"}, exitUsage, `instance types "z*": no type has such a name`},
		{[]string{"-f", demos + "packing", "--instance-types", "none.yaml"}, exitUsage, "instance types in none.yaml: there is no such file"},
		{[]string{"-f", demos + "packing", "--instance-types", plugin}, exitUsage, "instance type p5.48xlarge: its allocatable names nvidia.com/gpu, which comes from devices of DeviceClass gpu.apportion.dev: leave it out"},
		{[]string{"-f", demos + "packing", "--driver-version", "new"}, exitUsage, `driver version "new" is no version`},
		{[]string{"-f", demos + "packing", "--policy", "worst-fit"}, exitUsage, "known are: predict, best-fit"},
		{[]string{"-f", demos + "packing", "-o", "table"}, exitUsage, "known are: text, json, yaml"},
		{[]string{"-f", demos + "packing", "more"}, exitUsage, `unexpected argument "more"`},
		{[]string{"--cluster"}, exitFailure, "no cluster is configured: give --kubeconfig"},
	} {
		code, stdout, stderr := call(t, append([]string{"simulate"}, test.args...)...)
		if code != test.code || stdout != "" || !strings.Contains(stderr, test.want) || strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, "\x1b") {
			t.Errorf("%v: exit %d\nstdout: %s\nstderr: %s", test.args, code, stdout, stderr)
		}
	}
}

// planCommand runs "simulate" or "explain" with a cluster.
func planCommand(t *testing.T, c *clients, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	connect := func(_, _ string) (*clients, error) { return c, nil }
	root := newRootCommand("apportion")
	for _, command := range root.Commands() {
		if command.Name() == "simulate" || command.Name() == "explain" {
			root.RemoveCommand(command)
		}
	}
	root.AddCommand(newSimulateCommandIn("apportion", connect), newExplainCommandIn("apportion", connect))
	var out, said bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&said)
	err = root.ExecuteContext(t.Context())
	return out.String(), said.String(), err
}

// plainSlice publishes a device that is not partitioned.
func plainSlice(node string, d resourceapi.Device) *resourceapi.ResourceSlice {
	d.ConsumesCounters = nil
	slice := sliceOf(node, d)
	slice.Spec.SharedCounters = nil
	return slice
}

// planObjects are a cluster with two nodes of one GPU. That of node-a is held by a pod.
func planObjects() []runtime.Object {
	running := podWith("team-a", "running", "held", "main")
	running.Spec.NodeName = "node-a"
	waiting := podWith("team-a", "waiting", "wanted", "main")
	waiting.Status.Phase = corev1.PodPending
	second := podWith("team-a", "second", "wanted-too", "main")
	second.Status.Phase = corev1.PodPending
	objects := []runtime.Object{
		plainSlice("node-a", gpuDevice("gpu-aaaaaaaa", uuidA, "80Gi")), plainSlice("node-b", gpuDevice("gpu-bbbbbbbb", uuidB, "80Gi")),
		claimOn("team-a", "held", "node-a", "gpu-aaaaaaaa", "80Gi", 0, running), running, waiting, second,
	}
	for _, name := range []string{"node-a", "node-b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}
		node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "pods": resource.MustParse("10")}
		objects = append(objects, node)
	}
	for _, name := range []string{"wanted", "wanted-too"} {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
		claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: testDriver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}}}
		objects = append(objects, claim)
	}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: testDriver}}
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: `device.attributes["` + testDriver + `"].type == "gpu"`,
	}}}
	high := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 10}
	return append(objects, class, high)
}

// planOfTheCluster is for planObjects and nodes of g6.xlarge.
const planOfTheCluster = `
NODE     INSTANCE TYPE   PODS
node-b   -               1
new-1    g6.xlarge       1

POD              NODE     CLAIM        DEVICES
team-a/second    node-b   wanted-too   1 x gpu
team-a/waiting   new-1    wanted       1 x NVIDIA L4

2 pods: 1 on nodes that exist, 1 on 1 new node (at least 1 needed), 0 not placed
`

func TestSimulateACluster(t *testing.T) {
	stdout, stderr, err := planCommand(t, fakeCluster(t, planObjects()...), "simulate", "--cluster", "--instance-types", "g6.xlarge")
	if err != nil || stderr != "" {
		t.Fatalf("%v, %s", err, stderr)
	}
	check(t, stdout, planOfTheCluster)
}

// What is in files comes to what the cluster has, and takes the place of what has the
// same name.
func TestSimulateFilesInACluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.yaml")
	text := `
apiVersion: v1
kind: Pod
metadata: {name: first, namespace: team-a}
spec:
  priorityClassName: high
  resourceClaims: [{name: gpu, resourceClaimName: first}]
  containers: [{name: main}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: first, namespace: team-a}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.apportion.dev}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: wanted, namespace: team-a}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.apportion.dev, count: 2}}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := planCommand(t, fakeCluster(t, planObjects()...), "simulate", "--cluster", "-f", path, "--instance-types", "g6.xlarge")
	if !errors.Is(err, errNotPlaced) || stderr != "Ignored, with whatever pods they make, which can be given as Pods: ConfigMap settings\n" {
		t.Fatalf("%v, %s", err, stderr)
	}
	check(t, withoutReasons(stdout), `
NODE     INSTANCE TYPE   PODS
node-b   -               1
new-1    g6.xlarge       1

POD             NODE     CLAIM        DEVICES
team-a/first    node-b   first        1 x gpu
team-a/second   new-1    wanted-too   1 x NVIDIA L4

NOT PLACED: team-a/waiting
  node-a, node-b: REASON
  new-1 as g6.xlarge: REASON
  g6.xlarge: REASON

3 pods: 1 on nodes that exist, 1 on 1 new node (at least 1 needed), 1 not placed
`)
}

// The GPU of node-a is held by pod running, whose manifests are those of the files. So a
// GPU is left for one of the two other pods.
func TestManifestsThatWereAppliedBeforeChangeNoPlan(t *testing.T) {
	claim := `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: held, namespace: team-a}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.apportion.dev}}]}}
`
	pod := `
apiVersion: v1
kind: Pod
metadata: {name: running, namespace: team-a}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: held}]
  containers: [{name: main}]
`
	for name, text := range map[string]string{"claim": claim, "pod": pod, "both": claim + "---" + pod} {
		path := filepath.Join(t.TempDir(), "in.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, err := planCommand(t, fakeCluster(t, planObjects()...), "simulate", "--cluster", "-f", path, "--instance-types", "g6.xlarge")
		if err != nil || stderr != "" {
			t.Fatalf("%s: %v, %s", name, err, stderr)
		}
		check(t, stdout, planOfTheCluster)
	}
}

func TestExplainAPod(t *testing.T) {
	c := fakeCluster(t, planObjects()...)
	stdout, stderr, err := planCommand(t, c, "explain", "pod", "waiting", "-n", "team-a", "--instance-types", "g6.xlarge")
	if err != nil || stderr != "" {
		t.Fatalf("%v, %s", err, stderr)
	}
	lines := strings.Split(stdout, "\n")
	for i, line := range lines {
		if before, _, found := strings.Cut(line, "request "); found {
			lines[i] = before + "REASON"
		}
	}
	check(t, strings.Join(lines, "\n"), `
Pod team-a/waiting fits on 1 of 2 nodes and on 1 of 1 instance type.

NODE     FITS   DEVICES OR REASON
node-a   no     REASON
node-b   yes    wanted: 1 x gpu (gpu-bbbbbbbb)

INSTANCE TYPE   FITS   DEVICES OR REASON
g6.xlarge       yes    wanted: 1 x NVIDIA L4 (gpu-00000000)
`)
	// Where it fits nowhere, the exit status says so.
	objects := planObjects()
	for _, object := range objects {
		if claim, is := object.(*resourceapi.ResourceClaim); is && claim.Name == "wanted" {
			claim.Spec.Devices.Requests[0].Exactly.Count = 2
		}
	}
	stdout, _, err = planCommand(t, fakeCluster(t, objects...), "explain", "pod", "waiting", "-n", "team-a", "--instance-types", "g6.xlarge", "-o", "json")
	var e simulate.Explanation
	if jsonErr := json.Unmarshal([]byte(stdout), &e); jsonErr != nil || !errors.Is(err, errNotPlaced) {
		t.Fatalf("%v, %v", jsonErr, err)
	}
	if len(e.Nodes) != 2 || len(e.InstanceTypes) != 1 || e.Fits() || e.Nodes[1].Reason == "" || e.InstanceTypes[0].Reason == "" {
		t.Errorf("%+v", e)
	}
}

func TestExplainWrongly(t *testing.T) {
	for _, test := range []struct {
		args, want string
	}{
		{"explain pod", "NAME is missing"},
		{"explain pods", `unknown command "pods"; known are: pod`},
		{"explain pod lost", `there is no pod "lost" in namespace default: give its namespace with -n`},
		{"explain pod running -n team-a", "pod team-a/running is not pending: it is on node node-a"},
	} {
		_, _, err := planCommand(t, fakeCluster(t, planObjects()...), strings.Fields(test.args)...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.args, err)
		}
	}
}

func TestPlanningWithoutRights(t *testing.T) {
	for _, test := range []struct {
		resource string
		err      error
		want     string
	}{
		{"pods", forbidden("pods"), "you may not list pods in all namespaces: ask for that right"},
		{"nodes", apierrors.NewUnauthorized("expired"), "the API server does not know you: log in again, or give another --context (expired)"},
		{"deviceclasses", apierrors.NewNotFound(schema.GroupResource{}, ""), "the cluster has no deviceclasses.resource.k8s.io in version v1"},
		{"resourceslices", apierrors.NewInternalError(errors.New("etcd is ill")), "list resourceslices.resource.k8s.io: "},
	} {
		c := fakeCluster(t, planObjects()...)
		fail(c, "list", test.resource, test.err)
		_, _, err := planCommand(t, c, "simulate", "--cluster")
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %v, want %s", test.resource, err, test.want)
		}
	}
	// These are not needed.
	c := fakeCluster(t, planObjects()...)
	fail(c, "list", "devicetaintrules", apierrors.NewNotFound(schema.GroupResource{}, ""))
	forbid(c, "list", "priorityclasses")
	_, stderr, err := planCommand(t, c, "simulate", "--cluster", "--instance-types", "g6.xlarge")
	if err != nil || !strings.HasPrefix(stderr, "Done without: you may not list priorityclasses.scheduling.k8s.io") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("%v, %s", err, stderr)
	}
}

func TestATaintRuleOfTheClusterCounts(t *testing.T) {
	rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}
	rule.Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{Pool: new("node-b")}
	rule.Spec.Taint = resourceapi.DeviceTaint{Key: "example.com/broken", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	stdout, _, err := planCommand(t, fakeCluster(t, append(planObjects(), rule)...), "simulate", "--cluster", "--instance-types", "g6.xlarge")
	if err != nil || !strings.Contains(stdout, "2 pods: 0 on nodes that exist, 2 on 2 new nodes") {
		t.Errorf("%v\n%s", err, stdout)
	}
}
