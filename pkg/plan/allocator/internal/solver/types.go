package solver

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
)

// TemplateSlice is a ResourceSlice without names, generation and node.
type TemplateSlice struct {
	// Devices and SharedCounters are as in ResourceSliceSpec, where one slice has
	// either the one or the other.
	Devices        []resourceapi.Device     `json:"devices,omitempty"`
	SharedCounters []resourceapi.CounterSet `json:"sharedCounters,omitempty"`
}

// Binding says that devices will have the same value of an attribute. Only
// matchAttribute can use it: selectors see a device without the attribute.
type Binding struct {
	// Attribute is the attribute's full name ("resource.kubernetes.io/pcieRoot").
	Attribute resourceapi.FullyQualifiedName `json:"attribute"`
	// Devices are names of devices of the template.
	Devices []string `json:"devices"`
}

// Device is one device of a pool. It must not be changed.
type Device struct {
	// ID names the device. The pool of a template without a pool name is empty.
	ID schedulerapi.DeviceID
	// Template says that the device is one of a [Template].
	Template bool
	// NodeName is the one node that has the device, empty if there are several or if it
	// is of a template.
	NodeName string
	// NodeSelector selects the nodes that reach the device. It is nil if NodeName is
	// set, if all nodes reach it, and for templates.
	NodeSelector *corev1.NodeSelector
	// BindsToNode, BindingConditions, BindingFailureConditions and Taints are the
	// device's as published.
	BindsToNode              bool
	BindingConditions        []string
	BindingFailureConditions []string
	Taints                   []resourceapi.DeviceTaint

	pool  *pool
	index int // in pool.devices
	*content
	// consumes says that the device names counter sets, even if it takes nothing of
	// them, and charges what it takes of the pool's counters.
	consumes bool
	charges  []charge
	// reach says whether the node reaches the device, where that is said per device.
	reach    reach
	reachErr error
}

// Choice is one device, or a share of one, for one request.
type Choice struct {
	// Claim and Request are positions in the claims given to [Compile] and in the
	// claim's requests.
	Claim, Request int
	// Subrequest is the position of the alternative in firstAvailable, -1 for a request
	// without alternatives.
	Subrequest int
	// RequestName is as in the allocation result: "request" or "request/subrequest".
	RequestName string
	Device      *Device
	// AdminAccess says that the device is not taken.
	AdminAccess bool
	// Consumed is what a share takes of each capacity. It is nil for a device that
	// cannot be shared, or that has no capacities.
	Consumed map[resourceapi.QualifiedName]resource.Quantity
}

// Problem is the question which devices claims get on one node.
type Problem struct {
	// Pools are what the node reaches.
	Pools Pools
	// Node is the node that Pools are for. It is named in errors, and may be nil.
	Node *corev1.Node
	// Usage is what is taken already, nil for nothing.
	Usage *Usage
	// Claims are those to allocate, nil for none.
	Claims *Claims
	// BestFit tries for each request the device first that wastes least (see
	// bestfit.go), instead of the first published. It finds a solution if and only if
	// there is one. Where a device makes the allocation fail with an error, the order
	// remains kube-scheduler's.
	BestFit bool
	// Budget limits the search in search nodes; 0 does not.
	Budget int
}

// Solution is the answer to a [Problem].
type Solution struct {
	// Found says that all claims can be met.
	Found bool
	// OutOfBudget says that the budget did not suffice to tell.
	OutOfBudget bool
	// Choices are what each claim gets, in the order of its requests and, of each
	// request, of publishing.
	Choices [][]Choice
	// Reason is the first unmet thing, in words, if nothing was found.
	Reason string
	// Nodes is how many search nodes were visited.
	Nodes int
}

// Position is the place of a device among those of the pools, -1 if it is none of them.
func (p Pools) Position(d *Device) int {
	offset := 0
	for _, pool := range p.pools {
		if pool == d.pool {
			return offset + d.index
		}
		offset += pool.size
	}
	return -1
}

// Translate gives, for choices that were made among the devices of some pools, the same
// choices among the devices of others with an equal [Pools.Shape]. Choices of devices
// that have no counterpart stay as they are.
func Translate(choices [][]Choice, from, to Pools) [][]Choice {
	counterpart := make(map[*pool]*pool, len(from.pools))
	for i, pool := range from.pools {
		if i < len(to.pools) {
			counterpart[pool] = to.pools[i]
		}
	}
	result := make([][]Choice, len(choices))
	for i, claim := range choices {
		result[i] = make([]Choice, len(claim))
		for j, choice := range claim {
			pool := counterpart[choice.Device.pool]
			if pool != nil && choice.Device.index < len(pool.ready().devices) {
				choice.Device = &pool.devices[choice.Device.index]
			}
			result[i][j] = choice
		}
	}
	return result
}

func (p Problem) nodeName() string {
	if p.Node == nil || p.Node.Name == "" {
		return "the node"
	}
	return fmt.Sprintf("node %s", p.Node.Name)
}
