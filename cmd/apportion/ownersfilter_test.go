package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"apportion.dev/apportion/pkg/ownership/report"
)

// claimsShown are the names of the claims that are shown, in their order.
func claimsShown(t *testing.T, s surroundings, args ...string) string {
	t.Helper()
	text, _ := printed(t, s, append(args, "-o", "json")...)
	var list report.List
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v: %v in %q", args, err, text)
	}
	names := []string{}
	for _, owner := range list.Owners {
		names = append(names, owner.Claim.Name)
	}
	return fmt.Sprint(names)
}

func TestOwnersThatAreAskedFor(t *testing.T) {
	s := around(fakeCluster(t, testObjects()...))
	for _, test := range []struct{ args, want string }{
		{"", "[small embed look notebook train]"},
		{"-n team-a", "[embed train]"},
		{"--namespace ops", "[look]"},
		{"--node node-b", "[train]"},
		{"--node node-a -n team-b", "[small notebook]"},
		{"--pod embed-6f7d9c-x7k2p", "[embed]"},
		{"--pod team-a/embed-6f7d9c-x7k2p", "[embed]"},
		{"--pod embed-6f7d9c-x7k2p -n team-a", "[embed]"},
		{"--pod team-a/embed-6f7d9c-x7k2p -n team-a", "[embed]"},
		{"--pod web", "[]"},
		{"--pod train-28-x2x9z --node node-a", "[]"},
		{"--gpu gpu-4f3a1b2c", "[embed look notebook]"},
		{"--gpu " + uuidA, "[embed look notebook]"},
		{"--gpu " + strings.ToLower(uuidA), "[embed look notebook]"},
		{"--gpu gpu-0badcafe", "[small]"},
		{"--gpu " + uuidB, "[small]"},
		{"--gpu gpu-0badcafe-mig-1g-5gb-0", "[small]"},
		{"--gpu gpu-0badcafe-mig-3g-20gb-4", "[]"},
		{"--gpu gpu-4f3a1b2c -n team-b", "[notebook]"},
		{"--gpu gpu-4f3a1b2c --pod debug", "[look]"},
	} {
		if got := claimsShown(t, s, strings.Fields(test.args)...); got != test.want {
			t.Errorf("%s: %s, want %s", test.args, got, test.want)
		}
	}
}

// Without slices, a whole GPU is found by what the claims say of it.
func TestOwnersOfAGPUWhereSlicesAreForbidden(t *testing.T) {
	c := fakeCluster(t, testObjects()...)
	forbid(c, "list", "resourceslices")
	for gpu, want := range map[string]string{
		"gpu-0badcafe": "[small]", "gpu-4f3a1b2c": "[embed look notebook]", "gpu-7": "[]",
	} {
		if got := claimsShown(t, around(c), "--gpu", gpu); got != want {
			t.Errorf("%s: %s, want %s", gpu, got, want)
		}
	}
}

func TestNothingIsHeld(t *testing.T) {
	s := around(fakeCluster(t, testObjects()...))
	for _, test := range []struct{ args, want string }{
		{"--pod team-b/web", "Pod team-b/web holds no GPU\n"},
		{"--gpu gpu-0badcafe-mig-3g-20gb-4", "Nobody holds gpu-0badcafe-mig-3g-20gb-4\n"},
		{"-n empty", "Nobody holds a GPU in namespace empty\n"},
		{"-n empty --by namespace", ""},
		{"-n empty -o json", ""},
	} {
		if _, stderr := printed(t, s, strings.Fields(test.args)...); stderr != test.want {
			t.Errorf("%s: stderr %q, want %q", test.args, stderr, test.want)
		}
	}
}

// A name that is mistyped must not read as if nobody used the GPU.
func TestNamesThatAreNotThere(t *testing.T) {
	s := around(fakeCluster(t, testObjects()...))
	for _, test := range []struct{ args, want string }{
		{"--gpu gpu-4f3a1b2d", `the cluster has no GPU or partition "gpu-4f3a1b2d": give a UUID as nvidia-smi shows it, or a device name; "apportion owners -o wide" lists what is in use`},
		{"--gpu gpu-4f3a1b2c --node node-b", `node node-b has no GPU or partition "gpu-4f3a1b2c"`},
		{"--pod wep", `there is no pod "wep" in any namespace`},
		{"--pod team-a/web", `there is no pod "web" in namespace team-a`},
		{"--node node-z", `node "node-z" has no GPU of driver gpu.apportion.dev: see kubectl get resourceslices`},
	} {
		var out bytes.Buffer
		if _, err := owners(t.Context(), s, &out, strings.Fields(test.args)...); err == nil || !strings.Contains(err.Error(), test.want) || out.Len() > 0 {
			t.Errorf("%s: %v, want %s; %s", test.args, err, test.want, &out)
		}
	}
}

func TestMistakesWithOwners(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"now"}, `unexpected argument "now"`},
		{[]string{"-o", "slices"}, "known are: table, wide, json, yaml"},
		{[]string{"--by", "pod"}, "known are: namespace, workload, node"},
		{[]string{"--pod", "a/b/c"}, `--pod "a/b/c" is neither a name nor namespace/name`},
		{[]string{"--pod", "/b"}, `--pod "/b" is neither a name nor namespace/name`},
		{[]string{"--pod", "a/"}, `--pod "a/" is neither a name nor namespace/name`},
		{[]string{"--pod", "a/b", "-n", "c"}, `--pod "a/b" is not in --namespace "c"`},
		{[]string{"--pod", ""}, "--pod is empty"},
		{[]string{"--gpu", ""}, "--gpu is empty"},
		{[]string{"--namespace="}, "--namespace is empty"},
		{[]string{"--node", ""}, "--node is empty"},
		{[]string{"--by", "node", "--gpu", "gpu-0"}, "--by cannot be combined with --pod and --gpu"},
		{[]string{"--by", "node", "--pod", "x"}, "--by cannot be combined with --pod and --gpu"},
		{[]string{"--socket", "/x", "--node", "n"}, "give only one of --socket and --node"},
		{[]string{"--socket", "/x", "--kubeconfig", "n"}, "give only one of --socket and --kubeconfig"},
		{[]string{"--socket", "/x", "--context", "n"}, "give only one of --socket and --context"},
	} {
		code, stdout, stderr := call(t, append([]string{"owners"}, test.args...)...)
		if code != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: exit %d, want %q\nstdout: %s\nstderr: %s", test.args, code, test.want, stdout, stderr)
		}
	}
}
