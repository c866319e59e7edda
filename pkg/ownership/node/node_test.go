package node

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"

	"apportion.dev/apportion/pkg/ownership"
)

func TestTheLastOwnersAreKeptWhileRecordsCannotBeRead(t *testing.T) {
	held := []ownership.Owner{{
		Device: ownership.Device{Driver: "gpu.apportion.dev", Pool: "node-a", Name: "gpu-0"},
		Claim:  ownership.ClaimRef{Namespace: "team", Name: "claim", UID: "c1"}, Request: "gpu",
	}}
	var failing error
	o := New(Options{
		NodeName: "node-a", Client: fake.NewClientset(),
		Held: func() ([]ownership.Owner, error) { return held, failing },
	})
	o.said = true // The time for the first answer is over.
	_, ctx := ktesting.NewTestContext(t)
	if !o.update(ctx) || len(o.server.Snapshot().Owners) != 1 {
		t.Fatalf("owners are %+v, want one", o.server.Snapshot().Owners)
	}
	held, failing = nil, errors.New("input/output error")
	if o.update(ctx) {
		t.Error("it is not tried again")
	}
	if s := o.server.Snapshot(); len(s.Owners) != 1 || !strings.Contains(s.Problem, "records: input/output error") {
		t.Errorf("owners are %+v with problem %q, want the last one and why", s.Owners, s.Problem)
	}
}

func TestNothingIsSaidAtTheStartWhilePodsAreMissing(t *testing.T) {
	o := New(Options{
		NodeName: "node-a", Client: fake.NewClientset(),
		Held: func() ([]ownership.Owner, error) { return []ownership.Owner{}, nil },
	})
	_, ctx := ktesting.NewTestContext(t)
	o.update(ctx)
	if generation := o.server.Snapshot().Generation; generation != 0 {
		t.Errorf("generation %d was published, want none", generation)
	}
}
