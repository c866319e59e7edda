package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/plan/allocator/internal/cells"
	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

// Allocator places the claims of one scheduling loop. The package's documentation says
// who may call what at the same time.
type Allocator struct {
	options   Options
	classes   map[string]*resourceapi.DeviceClass
	snapshot  *solver.Snapshot
	selectors *cells.Interner
	// split are the selectors that say which devices a new node reaches.
	split []*cells.Selector
	// local are the pools that only one node can reach, with its name.
	local   map[poolKey]string
	cluster *solver.Usage
	// reaches, compiled and holdings are what several calls need.
	reaches  table[reachKey, *reach]
	compiled table[claimsKey, *compiledClaims]
	holdings holdings

	mutex sync.RWMutex
	// generation counts what changed since New; a result of another one is stale.
	generation uint64
	targets    map[string]*target
	// placed has the target of each claim that was placed in this loop.
	placed map[types.NamespacedName]*target
	// takers are the targets that may take what others reach, in the order of their IDs,
	// and usage is that and what the cluster's claims hold.
	takers []*target
	usage  *solver.Usage
}

type poolKey struct {
	driver, pool string
}

// New reads what is known at the start of a loop. It fails for options that make no
// sense; slices and classes are taken as kube-scheduler takes them.
func New(options Options) (*Allocator, error) {
	switch options.Policy {
	case "":
		options.Policy = Predict
	case Predict, BestFit:
	default:
		return nil, fmt.Errorf("unknown policy %q: use %s or %s", options.Policy, Predict, BestFit)
	}
	if options.Budget < 0 {
		return nil, fmt.Errorf("budget %d is negative", options.Budget)
	}
	if options.Budget == 0 {
		options.Budget = DefaultBudget
	}
	if options.Cache == nil {
		options.Cache = NewCache()
	}
	options.Cache.next()
	a := &Allocator{
		options:   options,
		classes:   make(map[string]*resourceapi.DeviceClass, len(options.Classes)),
		snapshot:  solver.NewSnapshot(options.Cache.solver, options.Slices),
		selectors: cells.NewInterner(),
		local:     localPools(options.Slices),
		cluster:   solver.NewUsage(options.Allocated),
		targets:   make(map[string]*target),
		placed:    make(map[types.NamespacedName]*target),
	}
	a.usage = a.cluster
	for _, class := range options.Classes {
		a.classes[class.Name] = class
	}
	for _, selector := range a.snapshot.Selectors() {
		// With one that cannot be parsed no pools can be told for any node, so it does
		// not matter which cells there are.
		if s, err := a.selectors.Selector(selector); err == nil && !slices.Contains(a.split, s) {
			a.split = append(a.split, s)
		}
	}
	return a, nil
}

// localPools are the pools of which all slices are for one and the same node.
func localPools(resourceSlices []*resourceapi.ResourceSlice) map[poolKey]string {
	local := make(map[poolKey]string)
	for _, slice := range resourceSlices {
		key := poolKey{driver: slice.Spec.Driver, pool: slice.Spec.Pool.Name}
		var node string
		if slice.Spec.NodeName != nil {
			node = *slice.Spec.NodeName
		}
		if before, ok := local[key]; ok && before != node {
			node = ""
		}
		local[key] = node
	}
	return local
}

// Allocate answers on which of a target's instance types, or whether on its node, all the
// claims of a pod can be met, and with which devices. It changes nothing; Commit does,
// and until then the devices are not reserved. Claims may be allocated already, in the
// cluster or earlier in this loop: they restrict where the pod can go and get nothing
// new. Claims must not be changed while the Allocator is in use.
//
// Errors are those of the call: a target without node and instance types, a selector that
// cannot be parsed, the end of the context. What is wrong with claims, classes, slices or
// templates is told in the result (see [Dropped]).
func (a *Allocator) Allocate(ctx context.Context, on Target, claims []*resourceapi.ResourceClaim) (*Result, error) {
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("allocating on %s: %w", on.ID, err)
	}
	if err := check(&on); err != nil {
		return nil, fmt.Errorf("target %q: %w", on.ID, err)
	}
	s, err := a.newSearch(ctx, &on, claims)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", on.ID, err)
	}
	result, err := s.run()
	if err != nil {
		return nil, fmt.Errorf("allocating on %s: %w", on.ID, err)
	}
	return result, nil
}

func check(on *Target) error {
	switch {
	case on.ID == "":
		return errors.New("it has no ID")
	case on.Node == nil && len(on.InstanceTypes) == 0:
		return errors.New("it has neither a node nor instance types")
	case on.Node != nil && len(on.InstanceTypes) > 1:
		return fmt.Errorf("a node is of one instance type, not of %d", len(on.InstanceTypes))
	}
	for i, t := range on.InstanceTypes {
		if t == nil || t.Name == "" {
			return fmt.Errorf("instance type %d has no name", i)
		}
	}
	return nil
}

// reach is what one node reaches: devices of the cluster and those of templates.
type reach struct {
	pools solver.Pools
	shape solver.Shape
	// held are devices of templates that claims in the cluster hold already; nil if none.
	held *solver.Usage
	// err is why kube-scheduler would not look for devices on such a node at all.
	err error
}

// reachKey tells apart nodes that reach different devices: by the node itself, or for
// a new one by the region of labels, and by templates.
type reachKey struct {
	node      *corev1.Node
	signature string
	set       *templateSet
}

// reach finds what a node reaches, once for all that are alike.
func (a *Allocator) reach(key reachKey, node *corev1.Node) *reach {
	return a.reaches.get(key, func() *reach {
		r := &reach{}
		if key.set == nil {
			r.pools, r.err = a.snapshot.Pools(node)
		} else {
			plain := key
			plain.set = nil
			base := a.reach(plain, node)
			r.pools, r.err = base.pools, base.err
			if r.err == nil {
				r.err = key.set.err
			}
			if r.err == nil {
				r.pools = r.pools.WithTemplates(key.set.compiled...)
				r.held = a.held(key.node, key.set)
			}
		}
		if r.err == nil {
			r.shape = r.pools.Shape()
		}
		return r
	})
}

// table remembers what was made. It may be used by several goroutines.
type table[K comparable, V any] struct {
	mutex   sync.RWMutex
	entries map[K]V
}

// get returns the entry of a key. Of several that are made at the same time the first
// counts.
func (t *table[K, V]) get(key K, make func() V) V {
	t.mutex.RLock()
	v, ok := t.entries[key]
	t.mutex.RUnlock()
	if ok {
		return v
	}
	v = make()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if first, ok := t.entries[key]; ok {
		return first
	}
	if t.entries == nil {
		t.entries = map[K]V{}
	}
	t.entries[key] = v
	return v
}
