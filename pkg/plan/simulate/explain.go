package simulate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Explanation says where one pod fits, and where not and why.
type Explanation struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason is set where the pod cannot go anywhere, whatever the candidate.
	Reason string `json:"reason,omitempty"`
	// Nodes and InstanceTypes are all candidates: nodes by name, instance types with the
	// cheapest first.
	Nodes         []Candidate `json:"nodes"`
	InstanceTypes []Candidate `json:"instanceTypes"`
	Warnings      []string    `json:"warnings,omitempty"`
}

// Fits says whether there is a place for the pod.
func (e *Explanation) Fits() bool {
	fits := func(c Candidate) bool { return c.Fits }
	return slices.ContainsFunc(e.Nodes, fits) || slices.ContainsFunc(e.InstanceTypes, fits)
}

// Explain looks at every node and every instance type for one pod, as if no other pod was
// pending.
func Explain(ctx context.Context, in *Input, pod *corev1.Pod, options Options) (*Explanation, error) {
	policy, err := options.policy()
	if err != nil {
		return nil, err
	}
	s, err := newShared(in, options)
	if err != nil {
		return nil, err
	}
	p, err := s.newPlanner(policy)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Namespace: pod.Namespace, Name: pod.Name, Nodes: []Candidate{}, InstanceTypes: []Candidate{}, Warnings: warnings(in, []*corev1.Pod{pod})}
	state := p.book.newPod(pod)
	if state.problem != "" {
		e.Reason = state.problem
		return e, nil
	}
	for _, t := range p.nodes {
		why := &refusals{}
		found, err := p.try(ctx, state, t, why)
		if err != nil {
			return nil, err
		}
		if found != nil {
			c := Candidate{Kind: KindNode, Name: t.name, Fits: true}
			if placement := placementFor(placementsOn(found.result, ""), t.node.Labels); placement != nil {
				c.Claims = describeClaims(placement.Claims, s.nodeStocks[t.name], s.cluster)
			}
			why.all = []Candidate{c}
		}
		e.Nodes = append(e.Nodes, why.all...)
	}
	e.InstanceTypes, err = p.explainTypes(ctx, state)
	if err != nil {
		return nil, err
	}
	e.Reason = nowhere(slices.Concat(e.Nodes, e.InstanceTypes))
	return e, nil
}

// explainTypes looks at a new node.
func (p *planner) explainTypes(ctx context.Context, pod *podState) ([]Candidate, error) {
	t := p.newNodeClaim()
	why := &refusals{}
	found, err := p.try(ctx, pod, t, why)
	if err != nil {
		return nil, err
	}
	byType := map[string]Candidate{}
	for _, c := range why.all {
		c = p.ofInstanceType(c)
		byType[c.Name] = c
	}
	candidates := []Candidate{}
	for _, it := range p.shared.types {
		c, refused := byType[it.Name]
		if !refused {
			c = Candidate{Kind: KindInstanceType, Name: it.Name, Price: it.Price, Fits: true}
			if placements := placementsOn(found.result, it.Name); len(placements) > 0 {
				c.Claims = describeClaims(placements[0].Claims, p.shared.stocks[it], p.shared.cluster)
			}
		}
		candidates = append(candidates, c)
	}
	return candidates, nil
}
