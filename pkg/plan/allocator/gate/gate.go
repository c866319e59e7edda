// Package gate says when a new node counts as initialized: when what its instance type
// promised is published, and so the templates need no longer stand for it.
//
// It is a pure function of objects that the caller has read. It knows node claims only
// by the one annotation of Karpenter that names drivers, and must not know how nodes
// are launched, which drivers there are, or the time: that a driver takes too long is
// for the caller to find.
package gate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// Waiting is one thing that a node is not initialized for.
type Waiting struct {
	Driver string
	// Pool is the pool's name. Where several pools of the driver stand for one that
	// should have the node's name it has all of theirs ("node-1-a, node-1-b").
	Pool string
	// Missing is what is not there yet: "nothing published", "1 of 2 slices of
	// generation 3", "6 of 8 devices".
	Missing string
}

// String names driver, pool and what is missing.
func (w Waiting) String() string {
	return fmt.Sprintf("driver %s: pool %s: %s", w.Driver, w.Pool, w.Missing)
}

// Ready says whether a node counts as initialized, and if not what it waits for, in
// order of driver and pool.
//
// templates are those of the instance type that was launched, and of no other. slices
// are the cluster's: those of other nodes do no harm, but without them a pool that
// spans nodes looks incomplete. annotations are the node claim's: with
// [RequestedDriversAnnotation] only the drivers that it names are waited for, and none
// if it is empty. Without it every promised driver is.
//
// A driver is waited for if its templates promise a device on the node. Then
//
//   - each pool of which the driver publishes slices for this node must be whole: as
//     many slices at the newest generation as they say there are (ResourcePool in
//     resource.k8s.io/v1; kube-scheduler uses no other pool), and
//   - each promised pool must have no fewer devices on the node than were promised. The
//     pool with the node's name, which a template without a pool name promises, may
//     be several, with other names: any of the driver's that is not promised by name.
//
// A slice is for the node if it has its nodeName, or no nodeName and the node as its
// owner. It is not if its owner is an earlier Node object of the same name. With
// perDeviceNodeSelection, a device is on the node if it has its nodeName.
//
// Not the node's, and so not waited for, are a promised device that itself says that
// other nodes reach it (allNodes, nodeSelector, another nodeName), and a promised pool
// that is published for no node by name, as those of devices behind a network are.
func Ready(node *corev1.Node, templates []allocator.Template, slices []*resourceapi.ResourceSlice, annotations map[string]string) (bool, []Waiting) {
	promises := promised(node.Name, templates)
	if requested, ok := RequestedDrivers(annotations); ok {
		maps.DeleteFunc(promises, func(driver string, _ map[string]int) bool { return !requested[driver] })
	}
	published := observe(node, slices)
	var waiting []Waiting
	for _, driver := range sorted(promises) {
		waiting = append(waiting, missing(node.Name, driver, promises[driver], published[driver])...)
	}
	return len(waiting) == 0, waiting
}

// promised counts the devices that templates promise on the node, by driver and pool.
// What promises none is left out: no pod can have been placed there because of it.
func promised(node string, templates []allocator.Template) map[string]map[string]int {
	result := make(map[string]map[string]int)
	for _, t := range templates {
		count := 0
		for _, s := range t.Slices {
			for _, d := range s.Devices {
				if d.AllNodes == nil && d.NodeSelector == nil && (d.NodeName == nil || *d.NodeName == node) {
					count++
				}
			}
		}
		if count == 0 {
			continue
		}
		if result[t.Driver] == nil {
			result[t.Driver] = make(map[string]int)
		}
		result[t.Driver][cmp.Or(t.Pool, node)] += count
	}
	return result
}

// missing is what one driver has not published on the node.
func missing(node, driver string, promises map[string]int, pools map[string]*pool) []Waiting {
	result := make(map[string]Waiting)
	for name, p := range pools {
		if p.local && !p.complete() {
			result[name] = Waiting{Driver: driver, Pool: name, Missing: p.slicesMissing()}
		}
	}
	for name, want := range promises {
		counted := []string{name}
		if name == node {
			counted = append(counted, unnamed(pools, promises)...)
		}
		counted = slices.DeleteFunc(counted, func(name string) bool { return pools[name] == nil || !pools[name].local })
		if len(counted) == 0 {
			if p := pools[name]; p == nil || !p.shared {
				result[name] = Waiting{Driver: driver, Pool: name, Missing: "nothing published"}
			}
			continue
		}
		have, whole := 0, true
		for _, name := range counted {
			have += pools[name].devices
			whole = whole && pools[name].complete()
		}
		if whole && have < want {
			label := strings.Join(counted, ", ")
			result[label] = Waiting{Driver: driver, Pool: label, Missing: fmt.Sprintf("%d of %d devices", have, want)}
		}
	}
	var waiting []Waiting
	for _, pool := range sorted(result) {
		waiting = append(waiting, result[pool])
	}
	return waiting
}

// unnamed are the names of published pools that no template names, sorted.
func unnamed(pools map[string]*pool, promises map[string]int) []string {
	return slices.DeleteFunc(sorted(pools), func(name string) bool {
		_, named := promises[name]
		return named
	})
}

func sorted[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
