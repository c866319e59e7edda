package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// fail lets calls fail.
func fail(c *clients, verb, resource string, err error) {
	c.typed.(*fake.Clientset).PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, err
	})
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("user \x1b[31mjane\x1b[0m may not\neven look"))
}

func forbid(c *clients, verb, resource string) { fail(c, verb, resource, forbidden(resource)) }

func TestClusterErrorsAreOneLineWithTheWayOut(t *testing.T) {
	for _, test := range []struct {
		resource string
		err      error
		args     string
		want     string
	}{
		{"resourceclaims", forbidden("resourceclaims"), "", "you may not list resourceclaims.resource.k8s.io in all namespaces: give --namespace for one in which you may, or ask for that right (resourceclaims is forbidden"},
		{"resourceclaims", forbidden("resourceclaims"), "-n team-a", "you may not list resourceclaims.resource.k8s.io in namespace team-a: ask for that right (resourceclaims is forbidden"},
		{"pods", forbidden("pods"), "", "you may not list pods in all namespaces: give --namespace for one in which you may, or ask for that right"},
		{"resourceclaims", apierrors.NewUnauthorized("expired"), "", "the API server does not know you: log in again, or give another --context (expired)"},
		{"resourceclaims", apierrors.NewNotFound(schema.GroupResource{}, ""), "", "Dynamic Resource Allocation needs Kubernetes 1.34 or newer"},
		{"resourceslices", apierrors.NewInternalError(errors.New("etcd is ill")), "", "list resourceslices.resource.k8s.io: "},
		{"pods", apierrors.NewTimeoutError("slow", 1), "-n team-a", "list pods in namespace team-a: "},
	} {
		c := fakeCluster(t, testObjects()...)
		fail(c, "list", test.resource, test.err)
		var out bytes.Buffer
		for _, args := range []string{test.args, test.args + " -w"} {
			_, err := owners(t.Context(), around(c), &out, strings.Fields(args)...)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.ContainsAny(err.Error(), "\n\x1b") || out.Len() > 0 {
				t.Errorf("%s %v: %v, want %s; %s", test.resource, args, err, test.want, &out)
			}
		}
	}
}

const noSlices = "You may not read resourceslices, so what is free and GPUs' UUIDs are not known"

// A user who may only read a namespace sees what it holds, and is told what is missing.
func TestOwnersOfANamespaceWithoutTheRightToListSlices(t *testing.T) {
	c := fakeCluster(t, testObjects()...)
	forbid(c, "list", "resourceslices")
	got, stderr := printed(t, around(c), "-n", "team-a")
	check(t, got, `
NODE     GPU            PART   MEMORY   GPUS   NAMESPACE   CLAIM   POD                  STATE     CONTAINERS          AGE
node-a   gpu-4f3a1b2c   -      10Gi     -      team-a      embed   embed-6f7d9c-8kqpl   Running   server              5m
node-a   gpu-4f3a1b2c   -      10Gi     -      team-a      embed   embed-6f7d9c-x7k2p   Waiting   server              5m
node-b   gpu-cccccccc   -      80Gi     -      team-a      train   train-28-x2x9z       Running   init:prepare,main   3h
`)
	if stderr != noSlices+"\n" {
		t.Errorf("stderr: %s", stderr)
	}
	got, stderr = printed(t, around(c), "--by", "namespace")
	check(t, got, `
NAMESPACE   GPUS   SHARE   CLAIMS   PODS
ops         0      -       1        1
team-a      0      -       2        3
team-b      0      -       2        1
USED        0      -       5        5
FREE        -      -
TOTAL       -      -
`)
	if !strings.HasPrefix(stderr, noSlices+"; Not counted") {
		t.Errorf("stderr: %s", stderr)
	}
}

func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}, {name: other, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: secret}}]
current-context: x
`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOwnersFromAServer(t *testing.T) {
	denying := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", `299 - "this API is old"`)
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no\nto \u001b[2Jall"}`)
	}))
	defer denying.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"forbidden", []string{"--kubeconfig", kubeconfig(t, denying.URL)}, "in all namespaces: give --namespace for one in which you may, or ask for that right (no; to \\x1b[2Jall)"},
		{"forbidden watch", []string{"-w", "--kubeconfig", kubeconfig(t, denying.URL)}, "in all namespaces: give --namespace for one in which you may, or ask for that right (no; to \\x1b[2Jall)"},
		{"unreachable", []string{"--kubeconfig", kubeconfig(t, closed.URL)}, "the API server cannot be reached: check --kubeconfig and --context"},
		{"unreachable watch", []string{"-w", "--kubeconfig", kubeconfig(t, closed.URL)}, "the API server cannot be reached: check --kubeconfig and --context"},
		{"no kubeconfig", nil, "no cluster is configured: give --kubeconfig"},
		{"no such kubeconfig", []string{"--kubeconfig", "/nowhere/config"}, "read the kubeconfig: stat /nowhere/config: no such file"},
		{"no such context", []string{"--kubeconfig", kubeconfig(t, closed.URL), "--context", "z"}, `read the kubeconfig: context "z" does not exist`},
		{"no socket", []string{"--socket", "/nowhere/ownership.sock"}, "there is no socket /nowhere/ownership.sock: is the node driver running here, with --ownership?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := call(t, append([]string{"owners"}, test.args...)...)
			if code != exitFailure || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, test.want) {
				t.Errorf("exit %d, want %q\nstdout: %s\nstderr: %s", code, test.want, stdout, stderr)
			}
		})
	}
}

// makersInAPI are ReplicaSets and Jobs as the API server knows them.
func makersInAPI() []runtime.Object {
	object := func(apiVersion, kind, name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(kind + "-" + name)},
		}
	}
	return []runtime.Object{
		madeBy(object("apps/v1", "ReplicaSet", "embed-6f7d9c"), "argoproj.io/v1alpha1", "Rollout", "embed"),
		madeBy(object("batch/v1", "Job", "train-28"), "batch/v1", "CronJob", "train"),
	}
}

// workloadsShown are what --by workload shows, without those of other namespaces.
func workloadsShown(t *testing.T, c *clients) string {
	t.Helper()
	text, _ := printed(t, around(c), "--by", "workload", "-n", "team-a")
	var shown []string
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); fields[0] == "team-a" {
			shown = append(shown, fields[1])
		}
	}
	return strings.Join(shown, " ")
}

func TestWorkloadsComeFromTheAPIWherePermitted(t *testing.T) {
	denied := forbidden("replicasets")
	for _, test := range []struct {
		name    string
		makers  []runtime.Object
		listErr error
		getErr  error
		want    string
	}{
		{"permitted", makersInAPI(), nil, nil, "CronJob/train Rollout/embed"},
		{"without the right to list", makersInAPI(), denied, nil, "Job/train-28 Deployment/embed"},
		{"where listing fails, one by one", makersInAPI(), errors.New("too much"), nil, "CronJob/train Rollout/embed"},
		{"where nothing works", makersInAPI(), errors.New("too much"), errors.New("too much"), "Job/train-28 Deployment/embed"},
		{"that are gone", nil, nil, nil, "Job/train-28 Deployment/embed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fakeCluster(t, testObjects()...)
			metadata := fakeMetadata(t, test.makers...)
			for verb, err := range map[string]error{"list": test.listErr, "get": test.getErr} {
				if err != nil {
					metadata.PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
				}
			}
			c.metadata = metadata
			if got := workloadsShown(t, c); got != test.want {
				t.Errorf("workloads are %s, want %s", got, test.want)
			}
		})
	}
}

// A ReplicaSet of the same name with another UID made other pods.
func TestWorkloadOfAReplicaSetThatWasMadeAnew(t *testing.T) {
	c := fakeCluster(t, testObjects()...)
	makers := makersInAPI()
	makers[0].(*metav1.PartialObjectMetadata).UID = "another"
	c.metadata = fakeMetadata(t, makers...)
	if got := workloadsShown(t, c); got != "CronJob/train Deployment/embed" {
		t.Errorf("workloads are %s", got)
	}
}

func TestTheTableAsksForNoWorkloads(t *testing.T) {
	c := fakeCluster(t, testObjects()...)
	metadata := fakeMetadata(t, makersInAPI()...)
	c.metadata = metadata
	printed(t, around(c))
	if actions := metadata.Actions(); len(actions) > 0 {
		t.Errorf("it asked: %v", actions)
	}
}
