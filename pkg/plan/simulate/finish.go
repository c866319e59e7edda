package simulate

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// finish settles what node claims become, and writes the plan.
func (p *planner) finish(ctx context.Context, pods int) (*Plan, error) {
	plan := &Plan{Policy: p.policy, NodeClaims: []NodeClaim{}, Nodes: []NodePods{}, NotPlaced: p.notPlaced}
	if plan.NotPlaced == nil {
		plan.NotPlaced = []NotPlaced{}
	}
	for _, t := range p.nodes {
		if len(t.pods) == 0 {
			continue
		}
		stock := p.shared.nodeStocks[t.name]
		described, all := p.describe(t, stock, "", t.node.Labels)
		unused := stock.unused(stock.hold(append(all, t.held...)))
		unused.Resources = leftOver(t.node.Status.Allocatable, t.used)
		plan.Nodes = append(plan.Nodes, NodePods{Name: t.name, Pods: described, Unused: unused})
		plan.Totals.OnNodes += len(described)
	}
	for _, t := range p.nodeClaims {
		claim, err := p.finishNodeClaim(ctx, t)
		if err != nil {
			return nil, err
		}
		plan.NodeClaims = append(plan.NodeClaims, claim)
		plan.Totals.OnNodeClaims += len(claim.Pods)
	}
	plan.Totals.Pods, plan.Totals.NotPlaced, plan.Totals.NodeClaims = pods, len(plan.NotPlaced), len(plan.NodeClaims)
	plan.Totals.Price = totalPrice(plan.NodeClaims)
	plan.Warnings = warnings(p.shared.in, p.shared.in.pendingPods())
	bound, err := p.lowerBound(ctx)
	plan.LowerBound = bound
	return plan, err
}

func (p *planner) finishNodeClaim(ctx context.Context, t *target) (NodeClaim, error) {
	s, err := p.settle(ctx, t)
	if err != nil {
		return NodeClaim{}, err
	}
	stock := p.shared.stocks[s.it]
	pods, all := p.describe(t, stock, s.it.Name, s.labels)
	unused := stock.unused(stock.hold(all))
	unused.Resources = leftOver(s.it.Allocatable, t.used)
	claim := NodeClaim{
		Name: t.name, InstanceType: s.it.Name, Price: s.it.Price, Labels: s.labels, RequiredLabels: s.required, Taints: s.it.Taints, Pods: pods, Unused: unused,
	}
	for _, it := range t.types {
		claim.Survivors = append(claim.Survivors, Survivor{InstanceType: it.Name, Price: it.Price})
	}
	return claim, nil
}

// describe says which devices the pods of a target get, and what they take of its stock.
func (p *planner) describe(t *target, s *stock, instanceType string, labels map[string]string) ([]Pod, []taken) {
	var pods []Pod
	var all []taken
	for _, placed := range t.pods {
		pod := Pod{Namespace: placed.pod.name.Namespace, Name: placed.pod.name.Name}
		for _, survivor := range placed.result.Survivors {
			if survivor.InstanceType == instanceType {
				pod.Unlike = survivor.Unlike
			}
		}
		var claims []allocator.ClaimAllocation
		if placement := placementFor(placementsOn(placed.result, instanceType), labels); placement != nil {
			claims = placement.Claims
		}
		pod.Claims = describeClaims(claims, s, p.shared.cluster)
		for _, claim := range placed.pod.claims {
			if !slices.ContainsFunc(claims, func(c allocator.ClaimAllocation) bool { return c.Claim == nameOf(claim) }) {
				pod.Allocated = append(pod.Allocated, claim.Name)
			}
		}
		all = append(all, takenBy(claims)...)
		pods = append(pods, pod)
	}
	return pods, all
}

// describeClaims says what claims get of a node's own stock and of the cluster's.
func describeClaims(claims []allocator.ClaimAllocation, own, cluster *stock) []Claim {
	var result []Claim
	for _, c := range claims {
		claim := Claim{Name: c.Claim.Name, Devices: []Device{}}
		for _, d := range c.Devices {
			device := Device{
				Request: d.Request, Driver: d.Device.Driver.String(), Pool: d.Device.Pool.String(), Device: d.Device.Device.String(),
				Template: d.Template, AdminAccess: d.AdminAccess, Consumed: d.Consumed,
			}
			published := own.find(d.Device)
			if published == nil {
				published = cluster.find(d.Device)
			}
			if published != nil {
				device.Kind = kindOf(device.Driver, published)
				device.Share = d.Consumed != nil && share(published, d.Consumed) < 1
			}
			claim.Devices = append(claim.Devices, device)
		}
		result = append(result, claim)
	}
	return result
}

func takenBy(claims []allocator.ClaimAllocation) []taken {
	var all []taken
	for _, c := range claims {
		for _, d := range c.Devices {
			if !d.AdminAccess {
				all = append(all, taken{id: d.Device, consumed: d.Consumed})
			}
		}
	}
	return all
}

// leftOver is what is left of the resources that a node limits.
func leftOver(allocatable, used corev1.ResourceList) corev1.ResourceList {
	if len(allocatable) == 0 {
		return nil
	}
	left := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(allocatable)) {
		quantity := allocatable[name].DeepCopy()
		quantity.Sub(used[name])
		left[name] = quantity
	}
	return left
}

func totalPrice(claims []NodeClaim) float64 {
	sum := 0.0
	for _, claim := range claims {
		if claim.Price == 0 {
			return 0
		}
		sum += claim.Price
	}
	// Prices are decimal numbers, of which sums of binary ones are a bit off.
	return math.Round(sum*1e6) / 1e6
}

// heldByNode is what claims have of the devices of nodes since before the plan.
func (s *shared) heldByNode() map[string][]taken {
	nodes := map[schedulerapi.DeviceID]string{}
	for node, stock := range s.nodeStocks {
		for device := range stock.byDevice {
			nodes[device] = node
		}
	}
	held := map[string][]taken{}
	for _, claim := range s.in.Claims {
		if claim.Status.Allocation == nil || allocator.Departs(claim, s.departing) {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			key := schedulerapi.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if node, has := nodes[key]; has && (result.AdminAccess == nil || !*result.AdminAccess) {
				held[node] = append(held[node], taken{id: key, consumed: result.ConsumedCapacity})
			}
		}
	}
	return held
}

// warnings say what of the input and of the pods is not taken into account.
func warnings(in *Input, of []*corev1.Pod) []string {
	warnings := in.warnings()
	pods := map[string][]string{}
	var features []string
	for _, pod := range of {
		for _, feature := range notConsidered(pod) {
			if pods[feature] == nil {
				features = append(features, feature)
			}
			pods[feature] = append(pods[feature], nameOf(pod).String())
		}
	}
	slices.Sort(features)
	for _, feature := range features {
		warnings = append(warnings, fmt.Sprintf("Not taken into account: %s of %s", feature, some(pods[feature], 3)))
	}
	return warnings
}
