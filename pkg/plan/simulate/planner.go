package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/internal/natural"
	"apportion.dev/apportion/pkg/plan/allocator"
)

// shared is what several plans of one input have in common.
type shared struct {
	in      *Input
	options Options
	cache   *allocator.Cache
	// slices are those of the cluster, with the taints of rules, and cluster is all that
	// is in them.
	slices  []*resourceapi.ResourceSlice
	cluster *stock
	// types are all, cheapest first, and stocks what their nodes will have.
	types  []*InstanceType
	stocks map[*InstanceType]*stock
	// nodeStocks are those of nodes, and held is what claims have of them.
	nodeStocks map[string]*stock
	held       map[string][]taken
	// departing are pods of which what they hold counts as free.
	departing map[types.UID]bool
	weigher   *weigher
}

func newShared(in *Input, options Options) (*shared, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	s := &shared{
		in: in, options: options, cache: allocator.NewCache(), slices: withTaintRules(in.Slices, in.TaintRules),
		stocks: map[*InstanceType]*stock{}, nodeStocks: map[string]*stock{}, departing: map[types.UID]bool{},
	}
	s.cluster = stockOfCluster(s.slices)
	byNode := map[string][]*resourceapi.ResourceSlice{}
	for _, slice := range s.slices {
		if slice.Spec.NodeName != nil {
			byNode[*slice.Spec.NodeName] = append(byNode[*slice.Spec.NodeName], slice)
		}
	}
	for _, node := range in.Nodes {
		s.nodeStocks[node.Name] = stockOfCluster(byNode[node.Name])
	}
	for _, it := range in.InstanceTypes {
		own := asOfNewNodes(it, in.TaintRules)
		s.types = append(s.types, own)
		s.stocks[own] = stockOfType(own)
	}
	cheapestFirst(s.types, s.stocks)
	for _, pod := range in.Pods {
		if pod.DeletionTimestamp != nil && !options.KeepTerminating {
			s.departing[pod.UID] = true
		}
	}
	s.held = s.heldByNode()
	s.weigher = newWeigher(in, s.types, s.slices)
	return s, nil
}

// planner makes one plan.
type planner struct {
	shared *shared
	policy allocator.Policy
	alloc  *allocator.Allocator
	book   *claimBook
	nodes  []*target
	// nodeClaims are those that were opened, in order.
	nodeClaims []*target
	notPlaced  []NotPlaced
	// taken names nodes and node claims.
	taken map[string]bool
	// hopeless are targets on which pods like one did not fit.
	hopeless map[hopelessKey]bool
}

type hopelessKey struct {
	like   string
	target *target
}

// Make plans where the pending pods go, in the order of their priority, age, namespace
// and name. With policy best-fit the plan has no more nodes and leaves no more pods than
// that of predict, which it is if nothing better is found. An error means that the input
// is wrong as a whole, or that the context has ended.
func Make(ctx context.Context, in *Input, options Options) (*Plan, error) {
	policy, err := options.policy()
	if err != nil {
		return nil, err
	}
	s, err := newShared(in, options)
	if err != nil {
		return nil, err
	}
	if policy == allocator.BestFit {
		return s.bestFit(ctx)
	}
	return s.plan(ctx, allocator.Predict, usualOrder)
}

// policy is the one that was chosen.
func (o Options) policy() (allocator.Policy, error) {
	switch o.Policy {
	case "":
		return allocator.Predict, nil
	case allocator.Predict, allocator.BestFit:
		return o.Policy, nil
	}
	return "", fmt.Errorf("policy %q is unknown; known are: %s, %s", o.Policy, allocator.Predict, allocator.BestFit)
}

// newPlanner starts a plan in which nothing is placed.
func (s *shared) newPlanner(policy allocator.Policy) (*planner, error) {
	alloc, err := allocator.New(allocator.Options{
		Slices: s.slices, Classes: s.in.Classes, Allocated: allocator.Allocated(s.in.Claims, s.departing), Departing: s.departing,
		Policy: policy, Budget: s.options.Budget, Cache: s.cache,
	})
	if err != nil {
		return nil, fmt.Errorf("read the cluster's devices: %w", err)
	}
	p := &planner{shared: s, policy: policy, alloc: alloc, book: newClaimBook(s.in), taken: map[string]bool{}, hopeless: map[hopelessKey]bool{}}
	used := map[string]corev1.ResourceList{}
	for _, pod := range s.in.Pods {
		if node := pod.Spec.NodeName; node != "" && !finished(pod) && !s.departing[pod.UID] {
			used[node] = plus(used[node], requestsOf(pod))
		}
	}
	for _, node := range sorted(s.in.Nodes, func(a, b *corev1.Node) int { return natural.Compare(a.Name, b.Name) }) {
		p.taken[node.Name] = true
		p.nodes = append(p.nodes, &target{name: node.Name, node: node, used: used[node.Name], held: s.held[node.Name]})
	}
	return p, nil
}

// ordering sets the order in which pods are placed.
type ordering func(ctx context.Context, s *shared, pods []*podState)

// usualOrder is that of the input.
func usualOrder(context.Context, *shared, []*podState) {}

// plan places the pods in an order.
func (s *shared) plan(ctx context.Context, policy allocator.Policy, order ordering) (*Plan, error) {
	p, err := s.newPlanner(policy)
	if err != nil {
		return nil, err
	}
	var pods []*podState
	for _, pod := range s.in.pendingPods() {
		pods = append(pods, p.book.newPod(pod))
	}
	order(ctx, s, pods)
	for _, pod := range pods {
		if err := p.place(ctx, pod); err != nil {
			return nil, err
		}
	}
	return p.finish(ctx, len(pods))
}

// place finds a place for a pod, or says why there is none.
func (p *planner) place(ctx context.Context, pod *podState) error {
	if pod.problem != "" {
		p.notPlaced = append(p.notPlaced, NotPlaced{Namespace: pod.name.Namespace, Name: pod.name.Name, Reason: pod.problem})
		return nil
	}
	find := p.first
	if p.policy == allocator.BestFit {
		find = p.tightest
	}
	for _, targets := range [][]*target{p.nodes, p.nodeClaims} {
		found, err := find(ctx, pod, targets)
		if err != nil {
			return err
		}
		if found != nil {
			return p.take(pod, found)
		}
	}
	opened := p.newNodeClaim()
	found, err := p.try(ctx, pod, opened, nil)
	if err != nil {
		return err
	}
	if found != nil {
		p.taken[opened.name] = true
		p.nodeClaims = append(p.nodeClaims, opened)
		return p.take(pod, found)
	}
	candidates, err := p.refused(ctx, pod)
	if err != nil {
		return err
	}
	p.notPlaced = append(p.notPlaced, NotPlaced{
		Namespace: pod.name.Namespace, Name: pod.name.Name, Reason: nowhere(candidates), Candidates: candidates,
	})
	return nil
}

// nowhere is the reason where there is nothing to try.
func nowhere(candidates []Candidate) string {
	if len(candidates) > 0 {
		return ""
	}
	return "there is no node, and no instance type was given"
}

// first is the first target on which a pod fits.
func (p *planner) first(ctx context.Context, pod *podState, targets []*target) (*attempt, error) {
	for _, t := range targets {
		found, err := p.tryAgain(ctx, pod, t)
		if found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// tryAgain is try without trying again what cannot succeed. A target gets fuller with
// time; only devices that several nodes reach can become free again, when a node claim
// becomes something that needs less of them.
func (p *planner) tryAgain(ctx context.Context, pod *podState, t *target) (*attempt, error) {
	key := hopelessKey{pod.like, t}
	if p.hopeless[key] {
		return nil, nil
	}
	found, err := p.try(ctx, pod, t, nil)
	if found == nil && err == nil && pod.like != "" && len(p.shared.weigher.elsewhere) == 0 {
		p.hopeless[key] = true
	}
	return found, err
}

// newNodeClaim is a node claim that may become anything. Its name is not taken yet.
func (p *planner) newNodeClaim() *target {
	for i := len(p.nodeClaims) + 1; ; i++ {
		if name := fmt.Sprintf("new-%d", i); !p.taken[name] {
			return &target{name: name, types: p.shared.types}
		}
	}
}

// refused says of every candidate why a pod does not fit there.
func (p *planner) refused(ctx context.Context, pod *podState) ([]Candidate, error) {
	why := &refusals{}
	for _, t := range slices.Concat(p.nodes, p.nodeClaims, []*target{p.newNodeClaim()}) {
		if _, err := p.try(ctx, pod, t, why); err != nil {
			return nil, err
		}
	}
	for i := range why.all {
		if c := &why.all[i]; c.Kind == KindNodeClaim && !p.taken[c.Name] {
			*c = p.ofInstanceType(*c)
		}
	}
	return why.all, nil
}

// ofInstanceType turns a candidate of a new node claim into its instance type.
func (p *planner) ofInstanceType(c Candidate) Candidate {
	c.Kind, c.Name, c.InstanceType = KindInstanceType, c.InstanceType, ""
	if i := slices.IndexFunc(p.shared.types, func(t *InstanceType) bool { return t.Name == c.Name }); i >= 0 {
		c.Price = p.shared.types[i].Price
	}
	return c
}

// newNodeHostname stands for the name that a new node will have, which no pod can ask
// for yet.
const newNodeHostname = "apportion-new-node"

// asOfNewNodes is an instance type with the labels that every node has, and with the
// taints that rules give its devices.
func asOfNewNodes(original *InstanceType, rules []*resourceapi.DeviceTaintRule) *InstanceType {
	it := *original
	it.Templates = taintTemplates(it.Templates, rules)
	it.Labels = maps.Clone(it.Labels)
	if it.Labels == nil {
		it.Labels = map[string][]string{}
	}
	it.Labels[corev1.LabelHostname] = []string{newNodeHostname}
	for key, value := range map[string]string{corev1.LabelInstanceTypeStable: it.Name, corev1.LabelOSStable: string(corev1.Linux)} {
		if len(it.Labels[key]) == 0 {
			it.Labels[key] = []string{value}
		}
	}
	return &it
}

// cheapestFirst orders instance types: those with prices first, by price, then those
// with the least devices, memory on these, CPU and memory, then by name.
func cheapestFirst(all []*InstanceType, stocks map[*InstanceType]*stock) {
	quantity := func(it *InstanceType, name corev1.ResourceName) int64 {
		q := it.Allocatable[name]
		return q.MilliValue()
	}
	unknown := func(it *InstanceType) int {
		if it.Price > 0 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b *InstanceType) int {
		return cmp.Or(
			cmp.Compare(unknown(a), unknown(b)), cmp.Compare(a.Price, b.Price),
			cmp.Compare(len(stocks[a].units), len(stocks[b].units)), cmp.Compare(stocks[a].memory(), stocks[b].memory()),
			cmp.Compare(quantity(a, corev1.ResourceCPU), quantity(b, corev1.ResourceCPU)),
			cmp.Compare(quantity(a, corev1.ResourceMemory), quantity(b, corev1.ResourceMemory)), natural.Compare(a.Name, b.Name),
		)
	})
}
