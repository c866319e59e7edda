package solver

import (
	"encoding/binary"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/utils/ptr"
)

// Snapshot is the ResourceSlices of a cluster at one time. It is immutable, may be used
// by many goroutines at once, and reads a pool's devices when a node that reaches the
// pool is first asked for.
type Snapshot struct {
	cache *Cache
	// ofNode are the slices for one node, by the node's name, and wide the pools that
	// have others.
	ofNode map[string][]nodeSlices
	wide   []*poolSlices
	// selectors are the distinct node selectors of slices and devices.
	selectors []*nodeSelector
}

// nodeSelector is a node selector, parsed.
type nodeSelector struct {
	spec   *corev1.NodeSelector
	parsed *nodeaffinity.NodeSelector
	err    error
}

// poolSlices are all slices of one pool.
type poolSlices struct {
	id     poolID
	slices []slice
	// wide are positions of those that are not for one node by name.
	wide []int
	// newest is the newest generation, and count how many slices it has, without
	// ignored ones.
	newest, count int64

	mu    sync.Mutex
	views map[string]*pool
}

// nodeSlices are positions of a pool's slices for one node.
type nodeSlices struct {
	pool   *poolSlices
	slices []int
}

// slice is one ResourceSlice.
type slice struct {
	*resourceapi.ResourceSlice
	// ignored slices have devices with compatibility groups, which kube-scheduler
	// handles only with an alpha feature.
	ignored bool
	// selector and selectors are positions in Snapshot.selectors, -1 for none; the
	// latter are of the devices, if these are reached each on its own.
	selector  int
	selectors []int
}

// NewSnapshot indexes slices. They must not be changed as long as the snapshot is used.
func NewSnapshot(cache *Cache, slices []*resourceapi.ResourceSlice) *Snapshot {
	s := &Snapshot{cache: cache, ofNode: make(map[string][]nodeSlices)}
	pools := make(map[poolID]*poolSlices)
	selectors := make(map[string]int)
	for _, spec := range slices {
		id := poolID{driver: draapi.MakeUniqueString(spec.Spec.Driver), name: draapi.MakeUniqueString(spec.Spec.Pool.Name)}
		p := pools[id]
		if p == nil {
			p = &poolSlices{id: id}
			pools[id] = p
		}
		p.add(s.newSlice(spec, selectors))
		n := len(p.slices) - 1
		if name := ptr.Deref(spec.Spec.NodeName, ""); name != "" {
			s.addOfNode(name, p, n)
			continue
		}
		if len(p.wide) == 0 {
			s.wide = append(s.wide, p)
		}
		p.wide = append(p.wide, n)
	}
	return s
}

func (s *Snapshot) addOfNode(name string, p *poolSlices, n int) {
	of := s.ofNode[name]
	i := slices.IndexFunc(of, func(known nodeSlices) bool { return known.pool == p })
	if i < 0 {
		s.ofNode[name] = append(of, nodeSlices{pool: p, slices: []int{n}})
		return
	}
	of[i].slices = append(of[i].slices, n)
}

func (p *poolSlices) add(s slice) {
	generation := s.Spec.Pool.Generation
	if len(p.slices) == 0 || generation > p.newest {
		p.newest, p.count = generation, 0
	}
	if generation == p.newest && !s.ignored {
		p.count++
	}
	p.slices = append(p.slices, s)
}

func (s *Snapshot) newSlice(spec *resourceapi.ResourceSlice, known map[string]int) slice {
	result := slice{ResourceSlice: spec, ignored: usesCompatibilityGroups(spec.Spec.Devices), selector: -1}
	if result.ignored {
		return result
	}
	if spec.Spec.NodeSelector != nil && !result.reachedByAll() && ptr.Deref(spec.Spec.NodeName, "") == "" {
		result.selector = s.selectorIndex(spec.Spec.NodeSelector, known)
	}
	if ptr.Deref(spec.Spec.PerDeviceNodeSelection, false) {
		result.selectors = make([]int, len(spec.Spec.Devices))
		for i := range spec.Spec.Devices {
			d := &spec.Spec.Devices[i]
			result.selectors[i] = -1
			if d.NodeSelector != nil && ptr.Deref(d.NodeName, "") == "" && !ptr.Deref(d.AllNodes, false) {
				result.selectors[i] = s.selectorIndex(d.NodeSelector, known)
			}
		}
	}
	return result
}

func (s *slice) reachedByAll() bool { return ptr.Deref(s.Spec.AllNodes, false) }

func (s *Snapshot) selectorIndex(spec *corev1.NodeSelector, known map[string]int) int {
	key := make([]byte, 0, 256)
	for _, term := range spec.NodeSelectorTerms {
		key = appendRequirements(append(key, 't'), term.MatchExpressions)
		key = appendRequirements(key, term.MatchFields)
	}
	if i, ok := known[string(key)]; ok {
		return i
	}
	parsed, err := nodeaffinity.NewNodeSelector(spec)
	s.selectors = append(s.selectors, &nodeSelector{spec: spec, parsed: parsed, err: err})
	known[string(key)] = len(s.selectors) - 1
	return known[string(key)]
}

func appendRequirements(key []byte, requirements []corev1.NodeSelectorRequirement) []byte {
	key = binary.AppendUvarint(key, uint64(len(requirements)))
	for _, r := range requirements {
		key = appendText(key, r.Key)
		key = appendText(key, string(r.Operator))
		key = appendTexts(key, r.Values)
	}
	return key
}

func usesCompatibilityGroups(devices []resourceapi.Device) bool {
	for i := range devices {
		for _, consumption := range devices[i].ConsumesCounters {
			if len(consumption.CompatibilityGroups) > 0 {
				return true
			}
		}
	}
	return false
}

// Selectors are the distinct node selectors of slices and devices: what, beside a
// node's name, decides which devices a node reaches.
func (s *Snapshot) Selectors() []*corev1.NodeSelector {
	if s == nil {
		return nil
	}
	result := make([]*corev1.NodeSelector, 0, len(s.selectors))
	for _, selector := range s.selectors {
		result = append(result, selector.spec)
	}
	return result
}
