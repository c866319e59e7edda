package simulate

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// Plan says where pods go.
type Plan struct {
	Policy allocator.Policy `json:"policy"`
	// NodeClaims are the nodes to be made, in the order in which they were opened.
	NodeClaims []NodeClaim `json:"nodeClaims"`
	// Nodes are those that exist and get pods, by name.
	Nodes []NodePods `json:"nodes"`
	// NotPlaced are the pods that go nowhere, in the order of planning.
	NotPlaced []NotPlaced `json:"notPlaced"`
	// LowerBound is how many nodes the pods of the node claims need in any plan.
	LowerBound LowerBound `json:"lowerBound"`
	Totals     Totals     `json:"totals"`
	// Warnings say what was not taken into account.
	Warnings []string `json:"warnings,omitempty"`
}

// NodeClaim is a node to be made.
type NodeClaim struct {
	// Name is unique among the names of nodes and node claims.
	Name string `json:"name"`
	// InstanceType is the cheapest of the survivors: of those with prices the one with
	// the lowest, then the one with the least devices, CPU and memory.
	InstanceType string  `json:"instanceType"`
	Price        float64 `json:"price,omitempty"`
	// Labels are what the node needs for the plan to hold: those of its instance type,
	// with one value each, and what selectors of its pods ask for.
	Labels map[string]string `json:"labels"`
	// RequiredLabels are the keys of those labels that must be as they are. Others may
	// have other values of the instance type.
	RequiredLabels []string `json:"requiredLabels,omitempty"`
	// Taints are those of the instance type.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Survivors are all instance types on which the pods fit together, cheapest first.
	Survivors []Survivor `json:"survivors"`
	Pods      []Pod      `json:"pods"`
	// Unused is what is left on a node of InstanceType.
	Unused Unused `json:"unused"`
}

// Survivor is an instance type that a node claim may become.
type Survivor struct {
	InstanceType string `json:"instanceType"`
	// Price is 0 if unknown.
	Price float64 `json:"price,omitempty"`
}

// NodePods are the pods that go to a node that exists.
type NodePods struct {
	Name   string `json:"name"`
	Pods   []Pod  `json:"pods"`
	Unused Unused `json:"unused"`
}

// Pod is a pod that has a place.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Claims are those that were not allocated before, in the pod's order.
	Claims []Claim `json:"claims,omitempty"`
	// Allocated are claims that were, in the cluster or for a pod before this one.
	Allocated []string `json:"allocatedClaims,omitempty"`
	// Unlike says that kube-scheduler's first fit would take other devices of this node
	// than the plan does. It is false with policy predict.
	Unlike bool `json:"unlikeScheduler,omitempty"`
}

// Claim is what a claim gets.
type Claim struct {
	Name    string   `json:"name"`
	Devices []Device `json:"devices"`
}

// Device is a device, or a share of one.
type Device struct {
	// Request is the request's name, "request/subrequest" for an alternative.
	Request string `json:"request"`
	Driver  string `json:"driver"`
	// Pool is empty for a pool that will have the node's name.
	Pool string `json:"pool,omitempty"`
	// Device is its name, on a node claim that of the template.
	Device string `json:"device"`
	// Kind says what it is in a word or two, such as a product's or a profile's name.
	Kind string `json:"kind,omitempty"`
	// Share says that it is a part of the device, of which others may have the rest.
	Share       bool                                            `json:"share,omitempty"`
	Template    bool                                            `json:"template,omitempty"`
	AdminAccess bool                                            `json:"adminAccess,omitempty"`
	Consumed    map[resourceapi.QualifiedName]resource.Quantity `json:"consumedCapacity,omitempty"`
}

// Unused is what a node has left.
type Unused struct {
	// Devices are those of which nothing is taken, by kind: whole ones, and not the
	// partitions that they could become.
	Devices []UnusedDevices `json:"devices,omitempty"`
	// Parts are what is left of devices of which something is taken.
	Parts []UnusedPart `json:"parts,omitempty"`
	// Resources are what is left of those that the node limits.
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// UnusedDevices are devices of one kind.
type UnusedDevices struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

// UnusedPart is what is left of one device.
type UnusedPart struct {
	Kind string `json:"kind"`
	// Device is the whole device's name.
	Device string `json:"device"`
	// Capacity is what shares may still take.
	Capacity map[resourceapi.QualifiedName]resource.Quantity `json:"capacity,omitempty"`
	// Largest is the kind of the largest partition that is still possible.
	Largest string `json:"largest,omitempty"`
}

// NotPlaced is a pod that goes nowhere.
type NotPlaced struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason is set where it does not depend on the candidate.
	Reason string `json:"reason,omitempty"`
	// Candidates say why not there: nodes, then node claims, then instance types.
	Candidates []Candidate `json:"candidates,omitempty"`
}

// CandidateKind says what a pod might go to.
type CandidateKind string

// The kinds of candidates.
const (
	KindNode         CandidateKind = "node"
	KindNodeClaim    CandidateKind = "nodeClaim"
	KindInstanceType CandidateKind = "instanceType"
)

// Candidate is something to which a pod might go.
type Candidate struct {
	Kind CandidateKind `json:"kind"`
	Name string        `json:"name"`
	// InstanceType is the one of a node claim of which the reason speaks.
	InstanceType string `json:"instanceType,omitempty"`
	Fits         bool   `json:"fits"`
	// Reason is the first unmet thing.
	Reason string `json:"reason,omitempty"`
	// Unknown says that the search was too long to decide.
	Unknown bool `json:"unknown,omitempty"`
	// Claims are what the pod's claims would get, if it fits.
	Claims []Claim `json:"claims,omitempty"`
	// Price is the instance type's, 0 if unknown.
	Price float64 `json:"price,omitempty"`
}

// LowerBound is a number of nodes below which no plan can be.
type LowerBound struct {
	Nodes int `json:"nodes"`
	// Because names what is scarcest.
	Because string `json:"because,omitempty"`
}

// Totals are sums over a plan.
type Totals struct {
	Pods int `json:"pods"`
	// OnNodes and OnNodeClaims are pods that have a place.
	OnNodes      int `json:"onNodes"`
	OnNodeClaims int `json:"onNodeClaims"`
	NotPlaced    int `json:"notPlaced"`
	NodeClaims   int `json:"nodeClaims"`
	// Price is the sum of the node claims', 0 if that of any is unknown.
	Price float64 `json:"price,omitempty"`
}
