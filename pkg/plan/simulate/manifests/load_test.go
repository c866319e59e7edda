package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/plan/simulate"
	"apportion.dev/apportion/pkg/plan/simulate/manifests"
)

// load reads text as a file named in.yaml.
func load(t *testing.T, text string, options manifests.Options) (*manifests.Objects, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("in.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return manifests.Load([]string{"in.yaml"}, options)
}

func mustLoad(t *testing.T, text string) *manifests.Objects {
	t.Helper()
	o, err := load(t, text, manifests.Options{Namespace: "team-a"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestErrorsNameFileDocumentAndLine(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"syntax": {
			"apiVersion: v1\nkind: Service\n---\n# a comment\n\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n nope: b\n",
			"in.yaml, document 2: yaml: line 9: did not find expected key",
		},
		"key twice":     {"---\n\nkind: Pod\nkind: Pod\n", `in.yaml, document 1: yaml: unmarshal errors:\n  line 4: key "kind" already set in map`},
		"unknown field": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {nodename: b}\n", `in.yaml, document 1 (line 1): Pod a: unknown field "spec.nodename": correct or remove what is named`},
		"wrong type":    {"kind: Service\napiVersion: v1\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {priority: high}\n", "in.yaml, document 2 (line 4): Pod a: "},
		"no kind":       {"metadata: {name: a}\n", "in.yaml, document 1 (line 1): apiVersion or kind is missing"},
		"not an object": {"- a\n", "in.yaml, document 1 (line 1): this is no Kubernetes object: "},
		"no name":       {"apiVersion: v1\nkind: Pod\n", "in.yaml, document 1 (line 1): Pod without a name: give metadata.name"},
		"unknown version": {
			"apiVersion: resource.k8s.io/v1alpha2\nkind: DeviceClass\nmetadata: {name: a}\n",
			"in.yaml, document 1 (line 1): DeviceClass a: version resource.k8s.io/v1alpha2 is not known: write it in a version that the API server serves",
		},
		"twice": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n",
			"in.yaml, document 2 (line 5), item 1: Pod a is there twice, first in in.yaml, document 1 (line 1): remove one of them",
		},
		"two defaults": {
			"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: a}\nglobalDefault: true\nvalue: 1\n---\n" +
				"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: b}\nglobalDefault: true\nvalue: 2\n",
			"PriorityClasses a and b are both the global default: only one may be",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, test.text, manifests.Options{})
			want := strings.ReplaceAll(test.want, `\n`, "\n")
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

func TestPathsThatAreNotThere(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.MkdirAll("deep/er", 0o700); err != nil {
		t.Fatal(err)
	}
	for file, name := range map[string]string{"deep/er/b.yaml": "b", "deep/notes.txt": "c"} {
		text := "apiVersion: v1\nkind: Node\nmetadata: {name: " + name + "}\n"
		if err := os.WriteFile(filepath.FromSlash(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ path, want string }{
		{"nowhere", "there is no file or folder nowhere"},
		{"deep", "folder deep has no .yaml, .yml or .json file: name another, or give --recursive for the folders in it"},
	} {
		if _, err := manifests.Load([]string{test.path}, manifests.Options{}); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v", test.path, err)
		}
	}
	o, err := manifests.Load([]string{"deep"}, manifests.Options{Recursive: true})
	if err != nil || len(o.Nodes) != 1 || o.Nodes[0].Name != "b" {
		t.Errorf("recursive: %v, %v", o, err)
	}
	o, err = manifests.Load([]string{"-"}, manifests.Options{Stdin: strings.NewReader(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`)})
	if err != nil || len(o.Nodes) != 1 {
		t.Errorf("stdin: %v, %v", o, err)
	}
	_, err = manifests.Load([]string{"-"}, manifests.Options{Stdin: strings.NewReader("{")})
	if err == nil || !strings.HasPrefix(err.Error(), "standard input, document 1: ") {
		t.Errorf("bad stdin: %v", err)
	}
}

func TestWorkloadsAreThePodsTheyMake(t *testing.T) {
	const template = "template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}"
	o := mustLoad(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 2, selector: {}, `+template+`}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, namespace: team-b}
spec: {ordinals: {start: 5}, replicas: 2, selector: {}, serviceName: s, `+template+`}
---
apiVersion: batch/v1
kind: Job
metadata: {name: web}
spec: {parallelism: 4, completions: 1, `+template+`}
---
apiVersion: batch/v1
kind: Job
metadata: {name: later}
spec: {suspend: true, `+template+`}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {`+template+`}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: none}
spec: {replicas: 0, selector: {}, `+template+`}
`)
	var got []string
	for _, pod := range o.Pods {
		owner := metav1.GetControllerOf(pod)
		got = append(got, fmt.Sprintf("%s/%s of %s %s, %s, app=%s", pod.Namespace, pod.Name, owner.Kind, owner.Name, pod.Status.Phase, pod.Labels["app"]))
	}
	want := []string{
		"team-a/web-0 of Deployment web, Pending, app=x",
		"team-a/web-1 of Deployment web, Pending, app=x",
		"team-b/web-5 of StatefulSet web, Pending, app=x",
		"team-b/web-6 of StatefulSet web, Pending, app=x",
		"team-a/web-job-0 of Job web, Pending, app=x",
		"team-a/once-0 of Job once, Pending, app=x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What kubectl get deployments,replicasets,jobs,pods -o yaml prints has each pod up to
// three times: as itself, in its ReplicaSet and in its Deployment. Of the three replicas
// one is not there yet, and of the Job, one of three pods has succeeded and one runs.
func TestPodsOfADumpCountOnce(t *testing.T) {
	const spec = "selector: {}, template: {spec: {containers: [{name: c, image: i}]}}"
	owner := func(kind, name string) string {
		return "ownerReferences: [{apiVersion: x/v1, kind: " + kind + ", name: " + name + ", uid: u, controller: true}]"
	}
	o := mustLoad(t, `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: web-7f9-aaaaa, `+owner("ReplicaSet", "web-7f9")+`}, spec: {containers: []}}
- {apiVersion: v1, kind: Pod, metadata: {name: web-7f9-bbbbb, `+owner("ReplicaSet", "web-7f9")+`}, spec: {nodeName: node-a, containers: []}}
- {apiVersion: v1, kind: Pod, metadata: {name: train-x, `+owner("Job", "train")+`}, status: {phase: Succeeded}}
- {apiVersion: v1, kind: Pod, metadata: {name: train-y, `+owner("Job", "train")+`}, spec: {nodeName: node-a}, status: {phase: Running}}
- {apiVersion: v1, kind: Pod, metadata: {name: alone, `+owner("ReplicaSet", "elsewhere")+`}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, `+spec+`}}
- {apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-7f9, `+owner("Deployment", "web")+`}, spec: {replicas: 2, `+spec+`}}
- {apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 3, completions: 3, `+spec+`}, status: {succeeded: 1}}
- {apiVersion: batch/v1, kind: Job, metadata: {name: done}, spec: {`+spec+`}, status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}}
`)
	var got []string
	for _, pod := range o.Pods {
		got = append(got, pod.Name)
	}
	want := []string{"web-7f9-aaaaa", "web-7f9-bbbbb", "train-x", "train-y", "alone", "web-0", "train-0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultsAreThoseOfTheAPIServer(t *testing.T) {
	o := mustLoad(t, `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - {name: one, exactly: {deviceClassName: x}}
    - {name: all, exactly: {deviceClassName: x, allocationMode: All}}
    - {name: some, firstAvailable: [{name: s, deviceClassName: x, count: 3}, {name: t, deviceClassName: x}]}
---
apiVersion: v1
kind: Pod
metadata: {generateName: p-}
spec:
  priorityClassName: high
  containers:
  - name: c
    resources: {limits: {nvidia.com/gpu: 2, cpu: 4}, requests: {cpu: 1}}
---
apiVersion: v1
kind: Pod
metadata: {generateName: p-}
spec: {priorityClassName: lost, containers: [{name: c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: q}
spec: {containers: [{name: c}]}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 100
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: usual}
globalDefault: true
value: 10
`)
	requests := o.Claims[0].Spec.Devices.Requests
	if e := requests[0].Exactly; e.Count != 1 || e.AllocationMode != "ExactCount" {
		t.Errorf("exactly: %+v", e)
	}
	if e := requests[1].Exactly; e.Count != 0 || e.AllocationMode != "All" {
		t.Errorf("all: %+v", e)
	}
	if s := requests[2].FirstAvailable; s[0].Count != 3 || s[1].Count != 1 || s[1].AllocationMode != "ExactCount" {
		t.Errorf("first available: %+v", s)
	}
	if got := o.Pods[0].Spec.Containers[0].Resources.Requests; got.Cpu().Value() != 1 || got.Name("nvidia.com/gpu", "").Value() != 2 {
		t.Errorf("requests: %v", got)
	}
	var names []string
	for _, pod := range o.Pods {
		priority := "-"
		if pod.Spec.Priority != nil {
			priority = fmt.Sprint(*pod.Spec.Priority)
		}
		names = append(names, pod.Name+" "+priority)
	}
	if diff := cmp.Diff([]string{"p-0 100", "p-1 -", "q 10"}, names); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"Taken as priority 0, as the files do not have them: PriorityClass lost"}, o.Warnings()); diff != "" {
		t.Error(diff)
	}
}

func TestPriorityClassesOfTheCluster(t *testing.T) {
	o, err := load(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {priorityClassName: high}\n", manifests.Options{
		PriorityClasses: []*schedulingv1.PriorityClass{{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7}},
	})
	if err != nil || *o.Pods[0].Spec.Priority != 7 || len(o.Warnings()) != 0 {
		t.Errorf("%v, %v", o, err)
	}
}

// It was said that no pods come of these.
func TestPodsOfACronJobAreNotDenied(t *testing.T) {
	o := mustLoad(t, "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\n---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent}\n")
	want := []string{"Ignored, with whatever pods they make, which can be given as Pods: CronJob nightly; DaemonSet agent"}
	if diff := cmp.Diff(want, o.Warnings()); diff != "" || len(o.Pods) != 0 {
		t.Error(diff, o.Pods)
	}
}

func TestOtherKindsAreNamedInOneLine(t *testing.T) {
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: ml, nonsense: 1}\n---\n" +
		"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {what: ever}\n"
	for i := range 4 {
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: s%d}\n", i)
	}
	o := mustLoad(t, text)
	want := []string{"Ignored, with whatever pods they make, which can be given as Pods: Namespace ml; Service (4); Widget w"}
	if diff := cmp.Diff(want, o.Warnings()); diff != "" {
		t.Error(diff)
	}
}

func TestOldVersionsAreConverted(t *testing.T) {
	for _, test := range []struct{ version, request string }{
		{"v1beta1", "{name: gpu, deviceClassName: x, count: 2}"},
		{"v1beta2", "{name: gpu, exactly: {deviceClassName: x, count: 2}}"},
		{"v1", "{name: gpu, exactly: {deviceClassName: x, count: 2}}"},
	} {
		o := mustLoad(t, "apiVersion: resource.k8s.io/"+test.version+"\nkind: ResourceClaimTemplate\nmetadata: {name: c}\nspec: {spec: {devices: {requests: ["+test.request+"]}}}\n")
		got := o.ClaimTemplates[0].Spec.Spec.Devices.Requests[0]
		if got.Exactly == nil || got.Exactly.Count != 2 || got.Exactly.DeviceClassName != "x" {
			t.Errorf("%s: %+v", test.version, got)
		}
	}
}

func TestListsOfAnyForm(t *testing.T) {
	o := mustLoad(t, `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a}}
---
apiVersion: v1
kind: NodeList
items:
- {metadata: {name: b}}
`)
	if len(o.Nodes) != 2 || o.Nodes[1].Name != "b" {
		t.Errorf("%v", o.Nodes)
	}
}

func TestFilesReplaceWhatTheClusterHas(t *testing.T) {
	o := mustLoad(t, "apiVersion: v1\nkind: Node\nmetadata: {name: a, labels: {from: file}}\n---\n"+
		"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: t, labels: {node.kubernetes.io/instance-type: big}}\nspec: {driver: d, pool: {name: \"\", generation: 1, resourceSliceCount: 1}}\n")
	in := &simulate.Input{Nodes: []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"from": "cluster"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
	}}
	o.MergeInto(in)
	if len(in.Nodes) != 2 || in.Nodes[0].Name != "b" || in.Nodes[1].Labels["from"] != "file" {
		t.Errorf("%v", in.Nodes)
	}
	if len(in.Slices) != 0 || len(o.Templates) != 1 {
		t.Errorf("a template of an instance type is taken for a node's slice")
	}
}

// The classes that are there without a cluster are those of the chart.
func TestDriverClassesAreThoseOfTheChart(t *testing.T) {
	chart, err := os.ReadFile("../../../../deployments/helm/apportion/templates/deviceclasses.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile("../../../../deployments/helm/apportion/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range []string{"gpu.apportion.dev", "gpu.nvidia.com"} {
		var want, got []string
		for _, match := range regexp.MustCompile(`expression: (.*)`).FindAllStringSubmatch(string(chart), -1) {
			want = append(want, strings.ReplaceAll(match[1], "{{ .Values.driverName }}", driver))
		}
		classes := manifests.DriverClasses(driver)
		for _, class := range classes {
			got = append(got, class.Spec.Selectors[0].CEL.Expression)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, chart %v", driver, got, want)
		}
		if !strings.Contains(string(values), "\nextendedResourceName: "+*classes[0].Spec.ExtendedResourceName+"\n") || classes[1].Spec.ExtendedResourceName != nil {
			t.Errorf("%s: extended resources differ from the chart's", driver)
		}
		if names := []string{classes[0].Name, classes[1].Name}; !slices.Equal(names, []string{driver, "mig" + strings.TrimPrefix(driver, "gpu")}) {
			t.Errorf("names %v", names)
		}
	}
	o := mustLoad(t, "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu.apportion.dev}\n")
	o.AddClasses(manifests.DriverClasses("gpu.apportion.dev"))
	if len(o.Classes) != 2 || !slices.ContainsFunc(o.Classes, func(c *resourceapi.DeviceClass) bool {
		return c.Name == "gpu.apportion.dev" && c.Spec.Selectors == nil
	}) {
		t.Errorf("a class of the files must stay as it is")
	}
}
