package solver_test

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// Shrink takes away from a case what is not needed for interesting to be true: claims,
// requests, slices, devices and whatever these have, one thing at a time, until nothing
// more can go. The case itself is not changed.
func Shrink(c Case, interesting func(Case) bool) Case {
	for {
		smaller, ok := shrinkOnce(c, interesting)
		if !ok {
			return c
		}
		c = smaller
	}
}

// shrinkOnce goes once through all that could be taken away.
func shrinkOnce(c Case, interesting func(Case) bool) (Case, bool) {
	any := false
	for i := 0; ; {
		smaller := c.DeepCopy()
		s := &shrinker{skip: i}
		s.reduce(&smaller)
		if !s.done {
			return c, any
		}
		if interesting(smaller) {
			c, any = smaller, true
			continue // what is number i now was number i+1 before
		}
		i++
	}
}

// shrinker does one of the reductions that are possible, in the order in which they are
// offered to it.
type shrinker struct {
	skip int
	done bool
}

// offer says whether the reduction that comes next is the one to do.
func (s *shrinker) offer() bool {
	if s.done {
		return false
	}
	if s.skip > 0 {
		s.skip--
		return false
	}
	s.done = true
	return true
}

func remove[T any](s *shrinker, list *[]T) {
	for i := range *list {
		if s.offer() {
			*list = slices.Delete(*list, i, i+1)
			if len(*list) == 0 {
				*list = nil
			}
			return
		}
	}
}

func removeKeys[K ~string, V any](s *shrinker, m *map[K]V) {
	for _, key := range slices.Sorted(maps.Keys(*m)) {
		if s.offer() {
			delete(*m, key)
			if len(*m) == 0 {
				*m = nil
			}
			return
		}
	}
}

func unset[T any](s *shrinker, pointer **T) {
	if *pointer != nil && s.offer() {
		*pointer = nil
	}
}

func (s *shrinker) reduce(c *Case) {
	remove(s, &c.Claims)
	s.slices(c)
	remove(s, &c.AllocatedClaims)
	for _, claim := range c.Claims {
		s.claim(&claim.Spec.Devices)
	}
	for _, slice := range c.Slices {
		s.slice(&slice.Spec)
	}
	for _, claim := range c.AllocatedClaims {
		if claim.Status.Allocation != nil {
			s.allocation(claim.Status.Allocation)
		}
	}
	remove(s, &c.Classes)
	for _, class := range c.Classes {
		remove(s, &class.Spec.Selectors)
	}
	remove(s, &c.OtherNodes)
	removeKeys(s, &c.Node.Labels)
}

// slices removes a slice so that its pool is still complete, or so that it is not.
func (s *shrinker) slices(c *Case) {
	for i, gone := range c.Slices {
		if s.offer() {
			c.Slices = slices.Delete(c.Slices, i, i+1)
			for _, slice := range c.Slices {
				spec := &slice.Spec
				if spec.Driver == gone.Spec.Driver && spec.Pool.Name == gone.Spec.Pool.Name && spec.Pool.Generation == gone.Spec.Pool.Generation {
					spec.Pool.ResourceSliceCount--
				}
			}
			return
		}
	}
	remove(s, &c.Slices)
}

func (s *shrinker) claim(devices *resourceapi.DeviceClaim) {
	remove(s, &devices.Requests)
	remove(s, &devices.Constraints)
	for i := range devices.Constraints {
		remove(s, &devices.Constraints[i].Requests)
	}
	for i := range devices.Requests {
		request := &devices.Requests[i]
		if len(request.FirstAvailable) > 1 {
			remove(s, &request.FirstAvailable)
		}
		for j := range request.FirstAvailable {
			sub := &request.FirstAvailable[j]
			s.request(&sub.Count, &sub.Selectors, &sub.Tolerations, &sub.Capacity)
		}
		if exactly := request.Exactly; exactly != nil {
			s.request(&exactly.Count, &exactly.Selectors, &exactly.Tolerations, &exactly.Capacity)
			unset(s, &exactly.AdminAccess)
		}
	}
}

func (s *shrinker) request(count *int64, selectors *[]resourceapi.DeviceSelector, tolerations *[]resourceapi.DeviceToleration, capacity **resourceapi.CapacityRequirements) {
	if *count > 1 && s.offer() {
		*count--
	}
	remove(s, selectors)
	remove(s, tolerations)
	unset(s, capacity)
	if *capacity != nil {
		removeKeys(s, &(*capacity).Requests)
	}
}

func (s *shrinker) slice(spec *resourceapi.ResourceSliceSpec) {
	remove(s, &spec.Devices)
	remove(s, &spec.SharedCounters)
	for i := range spec.SharedCounters {
		removeKeys(s, &spec.SharedCounters[i].Counters)
	}
	for i := range spec.Devices {
		s.device(&spec.Devices[i])
	}
	if spec.AllNodes == nil && spec.NodeName == nil && s.offer() {
		all := true
		spec.NodeSelector, spec.PerDeviceNodeSelection, spec.AllNodes = nil, nil, &all
	}
	if spec.NodeSelector != nil {
		s.nodeSelector(spec.NodeSelector)
	}
}

func (s *shrinker) nodeSelector(selector *corev1.NodeSelector) {
	for i := range selector.NodeSelectorTerms {
		term := &selector.NodeSelectorTerms[i]
		if len(term.MatchExpressions) > 1 {
			remove(s, &term.MatchExpressions)
		}
	}
}

func (s *shrinker) device(device *resourceapi.Device) {
	removeKeys(s, &device.Attributes)
	removeKeys(s, &device.Capacity)
	for _, name := range slices.Sorted(maps.Keys(device.Capacity)) {
		if capacity := device.Capacity[name]; capacity.RequestPolicy != nil && s.offer() {
			capacity.RequestPolicy = nil
			device.Capacity[name] = capacity
		}
	}
	remove(s, &device.ConsumesCounters)
	for i := range device.ConsumesCounters {
		removeKeys(s, &device.ConsumesCounters[i].Counters)
	}
	unset(s, &device.AllowMultipleAllocations)
	remove(s, &device.Taints)
	if len(device.BindingConditions) > 0 && s.offer() {
		device.BindsToNode, device.BindingConditions, device.BindingFailureConditions = nil, nil, nil
	}
}

func (s *shrinker) allocation(allocation *resourceapi.AllocationResult) {
	for i := range allocation.Devices.Results {
		result := &allocation.Devices.Results[i]
		unset(s, &result.AdminAccess)
		unset(s, &result.ShareID)
		removeKeys(s, &result.ConsumedCapacity)
	}
}
