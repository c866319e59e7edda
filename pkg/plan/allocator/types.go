package allocator

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"

	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

// Policy says which of several possible allocations is taken.
type Policy string

const (
	// Predict takes what kube-scheduler will: claims and requests in their order, and
	// for each the first devices in publishing order with which the rest is possible.
	Predict Policy = "predict"
	// BestFit wastes least: the smallest sufficient partition, the fullest shared
	// device. It orders what is tried and never gives up what Predict would find.
	BestFit Policy = "best-fit"
)

// DefaultBudget is how many search nodes one alternative of one call may cost.
const DefaultBudget = 200_000

// Options are what is known at the start of a scheduling loop. None of it may be
// changed while the Allocator is in use.
type Options struct {
	// Slices are the cluster's, after DeviceTaintRules. Those of nodes that are not
	// initialized are left out by the caller, whose targets carry templates instead.
	Slices []*resourceapi.ResourceSlice
	// Uninitialized are the slices that were left out. They are not searched; they only
	// tell which devices of a template claims in the cluster hold already.
	Uninitialized []*resourceapi.ResourceSlice
	// Classes are all DeviceClasses.
	Classes []*resourceapi.DeviceClass
	// Allocated says which devices claims hold (see [Allocated]).
	Allocated schedulerapi.AllocatedState
	// Departing are pods that are being deleted or moved. A claim that is reserved for
	// these alone counts as unallocated; Allocated must have been made with the same.
	Departing map[types.UID]bool
	// Policy is Predict if empty.
	Policy Policy
	// Budget limits the search of each alternative in search nodes, DefaultBudget if 0.
	Budget int
	// Cache keeps what can be used again by later loops; nil for one of its own.
	Cache *Cache
}

// Template is what one driver will publish on a node of an instance type: one pool,
// without anything that only the running node knows.
type Template struct {
	// Driver is the driver's name.
	Driver string
	// Pool names the pool, empty for one that will have the node's name.
	Pool string
	// Slices are the pool's, in publishing order.
	Slices []TemplateSlice
	// Bindings are attributes of which it is known that devices will share a value, but
	// not which.
	Bindings []Binding
}

// TemplateSlice is a ResourceSlice without names, generation and node.
type TemplateSlice = solver.TemplateSlice

// Binding says that devices will have the same value of an attribute.
type Binding = solver.Binding

// InstanceType is something that a node may become. It must not be changed once it was
// part of a target.
type InstanceType struct {
	// Name is unique within a target ("p5.48xlarge").
	Name string
	// Labels are the labels that its nodes will have, with the values that are possible
	// ("topology.kubernetes.io/zone": a, b); no values say that they will not have it. Of
	// a label that is not named it is not known whether and how a node will have it: it
	// may be anything that the selectors of the target allow. Only of
	// kubernetes.io/hostname it is known that it will be none that others mention.
	Labels map[string][]string
	// Templates are what its drivers will publish, in order of driver and pool.
	Templates []Template
	// Price orders instance types, in any unit; 0 if unknown, which comes last.
	Price float64
}

// Target is where a pod may be placed.
type Target struct {
	// ID names the target in this loop, the name of a node or of a node claim. A node is
	// one target, always with the same ID.
	ID string
	// Node is the node if there is one. Its labels count, and not those of instance
	// types. It must not be changed while the Allocator is in use.
	Node *corev1.Node
	// InstanceTypes are what a node claim may become. A node that is not initialized
	// has one, the templates of which stand for what it did not publish yet. A node that
	// is initialized has none.
	InstanceTypes []*InstanceType
	// Selectors must all match the labels of the node: the requirements of the node
	// claim, the pod's node affinity, the topology of its volumes. Once committed, they
	// hold for the target in all later calls.
	Selectors []*corev1.NodeSelector
}

// Result is the answer for one target and the claims of one pod. It must not be changed:
// instance types that look alike share parts of it, and Commit takes it as it came.
type Result struct {
	// Survivors are the alternatives on which all claims can be met, in the order of
	// the target's instance types, or by price with BestFit.
	Survivors []Survivor
	// Dropped are the instance types on which they cannot be met, in the target's order.
	// For a node without instance types there is one entry without a name.
	Dropped []Dropped

	commit *commit
}

// Survivor is an instance type, or the node, on which the claims can be met.
type Survivor struct {
	// InstanceType is empty for a node that is initialized.
	InstanceType string
	// Placements are not empty. There are several where it depends on the labels of the
	// node which devices it reaches.
	Placements []Placement
	// Unlike says that kube-scheduler's first fit would take other devices than BestFit
	// did. It is false with Predict.
	Unlike bool
	// Unknown says that there may be more placements: for other labels the budget did not
	// suffice to decide.
	Unknown bool
}

// Placement is what the claims get if the node has certain labels.
type Placement struct {
	// Requirements tell these labels, beyond what the target's selectors ask for; empty
	// if any will do.
	Requirements []corev1.NodeSelectorRequirement
	// Claims are the pod's claims that were not allocated before, in the pod's order.
	Claims []ClaimAllocation
}

// ClaimAllocation is what one claim gets.
type ClaimAllocation struct {
	// Claim is the claim's namespace and name.
	Claim types.NamespacedName
	// Devices are in the order of the claim's requests and, in each, of publishing.
	Devices []DeviceAllocation
}

// DeviceAllocation is one device, or a share of it, for one request.
type DeviceAllocation struct {
	// Request is the name of the request, for one alternative of a prioritized list
	// "request/subrequest".
	Request string
	// Device is the device. The pool of a template without a pool name is empty.
	Device schedulerapi.DeviceID
	// Template says that the device is one of an instance type's templates.
	Template bool
	// AdminAccess says that the device is not taken.
	AdminAccess bool
	// Consumed is what a share takes of each capacity, nil for an exclusive device.
	Consumed map[resourceapi.QualifiedName]resource.Quantity
}

// Dropped is an instance type on which the claims cannot be met.
type Dropped struct {
	InstanceType string
	// Reason is the first unmet thing in words that a user can act on.
	Reason string
	// Unknown says that the budget did not suffice to decide.
	Unknown bool
	// Err says that the input is wrong in a way for which kube-scheduler, too, gives up
	// (a selector that fails, a missing class), and not only that it does not fit.
	Err bool
}
