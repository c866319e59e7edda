package report_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/plan/simulate"
	"apportion.dev/apportion/pkg/plan/simulate/report"
)

func check(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Error(diff)
	}
}

// What stands beside the tables: marks, reasons of many candidates, and sums.
func TestAPlanInWords(t *testing.T) {
	refused := func(kind simulate.CandidateKind, name, reason string) simulate.Candidate {
		return simulate.Candidate{Kind: kind, Name: name, InstanceType: map[bool]string{true: "big"}[kind == simulate.KindNodeClaim], Reason: reason}
	}
	unknown := refused(simulate.KindInstanceType, "huge", "the search was too long")
	unknown.Unknown = true
	plan := &simulate.Plan{
		NodeClaims: []simulate.NodeClaim{{
			Name: "new-1", InstanceType: "big", Price: 1.5, Labels: map[string]string{"disk": "fast", "os": "linux"}, RequiredLabels: []string{"disk"},
			Survivors: []simulate.Survivor{{InstanceType: "big"}, {InstanceType: "b"}, {InstanceType: "c"}, {InstanceType: "d"}, {InstanceType: "e"}},
			Pods: []simulate.Pod{{Namespace: "a", Name: "p", Unlike: true, Claims: []simulate.Claim{{Name: "c", Devices: []simulate.Device{
				{Device: "gpu-0", Kind: "H100", AdminAccess: true}, {Device: "gpu-1", Kind: "H100"}, {Device: "gpu-2", Kind: "H100"},
				{Device: "gpu-3", Kind: "H100", Share: true}, {Device: "x"},
			}}}}},
			Unused: simulate.Unused{
				Devices: []simulate.UnusedDevices{{Kind: "H100", Count: 2}},
				Parts:   []simulate.UnusedPart{{Device: "gpu-0", Largest: "3g.40gb"}, {Device: "gpu-1"}},
			},
		}},
		NotPlaced: []simulate.NotPlaced{
			{Namespace: "a", Name: "gated", Reason: "it waits\x1b"},
			{Namespace: "a", Name: "p-1", Candidates: []simulate.Candidate{
				refused(simulate.KindNode, "node-a", "claim p-1-c: 1 of 2"), refused(simulate.KindNode, "node-b", "claim p-1-c: 0 of 2"),
				refused(simulate.KindNodeClaim, "new-1", "cpu: 1 of 2 left"), unknown,
			}},
			{Namespace: "a", Name: "p-2", Candidates: []simulate.Candidate{
				refused(simulate.KindNode, "node-a", "claim p-2-c: 1 of 2"), refused(simulate.KindNode, "node-b", "claim p-2-c: 0 of 2"),
				refused(simulate.KindNodeClaim, "new-1", "cpu: 1 of 2 left"), unknown,
			}},
		},
		LowerBound: simulate.LowerBound{Nodes: 1},
		Totals:     simulate.Totals{Pods: 4, OnNodeClaims: 1, NotPlaced: 3, NodeClaims: 1, Price: 1.5},
	}
	var out strings.Builder
	if err := report.Plan(&out, plan); err != nil {
		t.Fatal(err)
	}
	check(t, out.String(), `
NODE    INSTANCE TYPE   PRICE   OR                REQUIRED LABELS   PODS   UNUSED
new-1   big             1.5     b, c and 2 more   disk=fast         1      2 x H100; up to 3g.40gb of gpu-0; a share of gpu-1

POD     NODE    CLAIM   DEVICES
a/p *   new-1   c       1 x H100 (admin access), 2 x H100, 1 x x, a share of gpu-3
* kube-scheduler would choose other devices of this node.

NOT PLACED: a/gated
  it waits\x1b

NOT PLACED: a/p-1, a/p-2
  node-a, node-b: claim p-1-c: 1 of 2 (numbers of the first)
  new-1 as big: cpu: 1 of 2 left
  huge: not known: the search was too long

4 pods: 0 on nodes that exist, 1 on 1 new node (at least 1 needed), 3 not placed, price 1.5
`)
	out.Reset()
	if err := report.Explanation(&out, &simulate.Explanation{Namespace: "a", Name: "p", Reason: "it waits"}); err != nil {
		t.Fatal(err)
	}
	check(t, out.String(), "Pod a/p fits nowhere: it waits\n")
	out.Reset()
	if err := report.Explanation(&out, &simulate.Explanation{Namespace: "a", Name: "p", InstanceTypes: []simulate.Candidate{unknown}}); err != nil {
		t.Fatal(err)
	}
	check(t, out.String(), `
Pod a/p fits on 0 of 0 nodes and on 0 of 1 instance type.

INSTANCE TYPE   FITS   DEVICES OR REASON
huge            ?      not known: the search was too long
`)
}
