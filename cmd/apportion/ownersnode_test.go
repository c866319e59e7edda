package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/report"
	"apportion.dev/apportion/pkg/ownership/server"
)

// serve runs an ownership service and gives its socket; stop ends it.
func serve(t *testing.T, s *server.Server) (socket string, stop func()) {
	t.Helper()
	// A folder of t.TempDir's name may be too long for a socket.
	dir, err := os.MkdirTemp("", "owners")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "ownership.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, socket) }()
	for {
		if _, err := report.DialNode(socket); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	return socket, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// nodeOwners are a partition and a share of another GPU.
func nodeOwners() []ownership.Owner {
	return []ownership.Owner{
		{
			Device: ownership.Device{
				Driver: testDriver, Pool: "node-a", Name: "gpu-0badcafe-mig-1g-5gb-0", Type: "mig", UUID: "MIG-1", ParentUUID: uuidB,
				Profile: "1g.5gb", GPUInstanceID: new(7), Fraction: 0.125,
			},
			Claim: ownership.ClaimRef{Namespace: "team-b", Name: "small", UID: "claim-small"}, Request: "gpu", Since: noon.Add(-time.Hour),
			Consumers: []ownership.Consumer{{
				Namespace: "team-b", Name: "small", UID: "pod-small", State: ownership.Running,
				Workload:   &ownership.Workload{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "small"},
				Containers: []ownership.Container{{Name: "main", Kind: ownership.RegularContainer}, {Name: "debug", Kind: ownership.EphemeralContainer}},
			}},
		},
		{
			Device: ownership.Device{
				Driver: testDriver, Pool: "node-a", Name: "gpu-4f3a1b2c", Type: "gpu", UUID: uuidA, ShareID: "share-c", Fraction: 0.25,
			},
			Claim: ownership.ClaimRef{Namespace: "team-a", Name: "c", UID: "claim-c"}, Request: "gpu",
			Consumed: map[string]string{"memory": "10Gi"}, Since: noon.Add(-time.Minute),
		},
	}
}

// onNode are the surroundings on a node, without a cluster.
func onNode() surroundings {
	s := around(nil)
	s.connect = func(_, _ string) (*clients, error) { return nil, errors.New("no cluster here") }
	s.dial = report.DialNode
	return s
}

func TestOwnersFromTheNode(t *testing.T) {
	service := server.New()
	service.Set(nodeOwners(), "pods: connection refused", noon)
	socket, stop := serve(t, service)
	defer stop()
	got, stderr := printed(t, onNode(), "--socket", socket)
	check(t, got, `
NODE     GPU            PART       MEMORY   GPUS    NAMESPACE   CLAIM   POD     STATE     CONTAINERS             AGE
node-a   gpu-0badcafe   1g.5gb@0   -        0.125   team-b      small   small   Running   main,ephemeral:debug   60m
node-a   gpu-4f3a1b2c   share      10Gi     0.25    team-a      c       -       -         -                      60s
`)
	if stderr != "pods: connection refused\n" {
		t.Errorf("stderr: %s", stderr)
	}
	for args, want := range map[string]string{
		"-n team-a":                  "[c]",
		"--gpu mig-1":                "[small]",
		"--gpu " + uuidB:             "[small]",
		"--gpu gpu-0badcafe":         "[small]",
		"--gpu gpu-4f3a1b2c --pod x": "[]",
		"--pod team-b/small":         "[small]",
		"--gpu gpu-7":                "[]",
	} {
		if got := claimsShown(t, onNode(), append(strings.Fields(args), "--socket", socket)...); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	got, _ = printed(t, onNode(), "--socket", socket, "--by", "workload")
	check(t, got, `
NAMESPACE   WORKLOAD            GPUS    SHARE   CLAIMS   PODS
team-a      -                   0.25    -       1        0
team-b      StatefulSet/small   0.125   -       1        1
USED                            0.375   -       2        1
FREE                            -       -
TOTAL                           -       -
`)
}

func TestWatchFromTheNode(t *testing.T) {
	service := server.New()
	service.Set(nodeOwners()[:1], "", noon)
	socket, stop := serve(t, service)
	prints, end := watching(t, onNode(), "--socket", socket)
	if text := <-prints; strings.Count(text, "\n") != 4 {
		t.Errorf("printed: %s", text)
	}
	service.Set(nodeOwners(), "", noon)
	if text := <-prints; strings.Count(text, "\n") != 5 || !strings.Contains(text, "team-a") {
		t.Errorf("printed: %s", text)
	}
	stop()
	if text := <-prints; !strings.Contains(text, "\nThis may be stale since ") || !strings.Contains(text, "team-a") {
		t.Errorf("printed: %s", text)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestSocketsThatDoNotAnswer(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for socket, want := range map[string]string{
		"none": "none: is the node driver running here, with --ownership?",
		"file": "file: is the node driver running? ",
	} {
		var out bytes.Buffer
		if _, err := owners(t.Context(), onNode(), &out, "--socket", filepath.Join(dir, socket)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", socket, err)
		}
	}
}

// deadNode said who holds what at noon, that nothing had changed an hour later, and then
// nothing more.
type deadNode struct{ hungNode }

func (deadNode) Run(ctx context.Context, changed func(ownership.Snapshot)) {
	changed(ownership.Snapshot{Instance: "i", Generation: 1, Verified: noon, Owners: nodeOwners()})
	<-ctx.Done()
}

func (deadNode) Current() (ownership.Snapshot, error) {
	return ownership.Snapshot{Instance: "i", Generation: 1, Verified: noon.Add(time.Hour), Owners: nodeOwners()}, errors.New("connection refused")
}

func TestAWatchIsStaleSinceTheDriverWasLastHeard(t *testing.T) {
	s := onNode()
	s.dial = func(string) (report.NodeClient, error) { return deadNode{}, nil }
	prints, end := watching(t, s, "--socket", "/x")
	want := "This may be stale since " + noon.Add(time.Hour).Local().Format(time.TimeOnly) + ": connection refused\n"
	if text := <-prints; !strings.Contains(text, want) {
		t.Errorf("printed: %s, want %s", text, want)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// hungNode takes calls and never answers.
type hungNode struct{}

func (hungNode) List(ctx context.Context) (ownership.Snapshot, error) {
	<-ctx.Done()
	return ownership.Snapshot{}, ctx.Err()
}
func (hungNode) Run(ctx context.Context, _ func(ownership.Snapshot)) { <-ctx.Done() }
func (hungNode) Current() (ownership.Snapshot, error) {
	return ownership.Snapshot{}, errors.New("nothing heard")
}

func TestANodeDriverThatHangs(t *testing.T) {
	s := onNode()
	s.dial = func(string) (report.NodeClient, error) { return hungNode{}, nil }
	for _, args := range [][]string{{"--socket", "/x"}, {"--socket", "/x", "-w"}} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			_, err := owners(t.Context(), s, &out, args...)
			if err == nil || !strings.Contains(err.Error(), "ask the node driver on /x: it did not answer within 10s: see its log") {
				t.Errorf("%v: %v", args, err)
			}
		})
	}
}
