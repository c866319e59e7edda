package solver_test

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
)

// A Checker checks an allocation against the rules that the documentation of the
// resource.k8s.io API gives, one by one, without searching. It knows no allocator.
//
// It is less strict than kube-scheduler where that goes beyond the documentation: it
// does not mind that a device is taken, with its counters, after admin access to it was
// given to the same pod.

// Checker keeps compiled selectors.
type Checker struct {
	cel *cel.Cache
}

// newChecker returns a Checker. It may be used by many goroutines.
func newChecker() *Checker {
	return &Checker{cel: cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})}
}

// ruleCheck is one check of one answer.
type ruleCheck struct {
	*Checker
	c          Case
	pools      []*rulePool
	devices    map[schedulerapi.DeviceID]*publishedDevice
	held       schedulerapi.AllocatedState
	violations []string
}

func (k *ruleCheck) report(format string, args ...any) {
	k.violations = append(k.violations, fmt.Sprintf(format, args...))
}

// Check returns what rules an answer that allocates breaks, in words.
func (checker *Checker) Check(c Case, node *corev1.Node, answer Answer) []string {
	k := &ruleCheck{Checker: checker, c: c, held: c.Allocated()}
	k.gather(node)
	if len(answer.Claims) != len(c.Claims) {
		k.report("%d claims are answered, want %d", len(answer.Claims), len(c.Claims))
		return k.violations
	}
	for i, claim := range c.Claims {
		k.claim(claim, answer.Claims[i])
	}
	k.usedOnce(answer)
	k.capacities(answer)
	k.counters(answer)
	return k.violations
}

// need is a request, or the chosen one of its alternatives.
type need struct {
	name        string // of the result
	parent      string
	class       string
	mode        resourceapi.DeviceAllocationMode
	count       int64
	admin       bool
	selectors   []resourceapi.DeviceSelector
	tolerations []resourceapi.DeviceToleration
	capacity    *resourceapi.CapacityRequirements
}

func needs(request resourceapi.DeviceRequest) []need {
	if e := request.Exactly; e != nil {
		return []need{{request.Name, request.Name, e.DeviceClassName, e.AllocationMode, e.Count,
			e.AdminAccess != nil && *e.AdminAccess, e.Selectors, e.Tolerations, e.Capacity}}
	}
	var alternatives []need
	for _, s := range request.FirstAvailable {
		alternatives = append(alternatives, need{request.Name + "/" + s.Name, request.Name, s.DeviceClassName,
			s.AllocationMode, s.Count, false, s.Selectors, s.Tolerations, s.Capacity})
	}
	return alternatives
}

func (k *ruleCheck) claim(claim *resourceapi.ResourceClaim, picked []Picked) {
	if len(picked) > resourceapi.AllocationResultsMaxSize {
		k.report("claim %s gets %d devices, more than %d", claim.Name, len(picked), resourceapi.AllocationResultsMaxSize)
	}
	left := picked
	for _, request := range claim.Spec.Devices.Requests {
		n := 0
		for n < len(left) && (left[n].Request == request.Name || strings.HasPrefix(left[n].Request, request.Name+"/")) {
			n++
		}
		k.request(claim, request, left[:n])
		left = left[n:]
	}
	if len(left) > 0 {
		k.report("claim %s gets %s, which is of no request or not in the order of requests", claim.Name, left[0])
	}
	for _, constraint := range claim.Spec.Devices.Constraints {
		k.constraint(claim, constraint, picked)
	}
}

func (k *ruleCheck) request(claim *resourceapi.ResourceClaim, request resourceapi.DeviceRequest, picked []Picked) {
	where := "claim " + claim.Name + ", request " + request.Name
	if len(picked) == 0 {
		k.report("%s gets no device", where)
		return
	}
	for _, n := range needs(request) {
		if n.name != picked[0].Request {
			continue
		}
		k.need(where, n, picked)
		return
	}
	k.report("%s: there is no alternative %q", where, picked[0].Request)
}

func (k *ruleCheck) need(where string, n need, picked []Picked) {
	seen := map[schedulerapi.DeviceID]bool{}
	for _, p := range picked {
		d := k.devices[p.Device]
		switch {
		case p.Request != n.name:
			k.report("%s mixes alternatives %s and %s", where, n.name, p.Request)
		case seen[p.Device]:
			k.report("%s gets %s twice", where, p.Device)
		case p.Admin != n.admin:
			k.report("%s: admin access to %s is %v, want %v", where, p.Device, p.Admin, n.admin)
		case d == nil:
			k.report("%s gets %s, which the node does not reach or the pool of which is not whole", where, p.Device)
		default:
			k.fits(where, n, d, p)
		}
		seen[p.Device] = true
	}
	if n.mode != resourceapi.DeviceAllocationModeAll {
		if int64(len(picked)) != n.count {
			k.report("%s gets %d devices, want %d", where, len(picked), n.count)
		}
		return
	}
	for _, pool := range k.pools {
		if !pool.usable {
			k.report("%s gets all devices, but pool %s is not whole", where, pool.name)
		}
		for _, d := range pool.devices {
			if seen[d.id] {
				continue
			}
			if matches, err := k.selected(n, d); err != nil || (matches && couldConsume(d, n.capacity)) {
				k.report("%s gets all devices but not %s (%v)", where, d.id, err)
			}
		}
	}
}

// fits checks what can be said of a request and a device alone.
func (k *ruleCheck) fits(where string, n need, d *publishedDevice, p Picked) {
	if matches, err := k.selected(n, d); err != nil || !matches {
		k.report("%s: selectors do not match %s (%v)", where, d.id, err)
	}
	for _, taint := range d.Taints {
		if taint.Effect != resourceapi.DeviceTaintEffectNone && !tolerated(taint, n.tolerations) {
			k.report("%s does not tolerate taint %s=%s:%s of %s", where, taint.Key, taint.Value, taint.Effect, d.id)
		}
	}
	if !couldConsume(d, n.capacity) {
		k.report("%s asks for capacity that %s never has", where, d.id)
	}
	if !d.shared() {
		if p.Consumed != nil {
			k.report("%s: %s cannot be shared, but capacity is consumed", where, d.id)
		}
		return
	}
	if len(p.Consumed) != len(d.Capacity) {
		k.report("%s consumes %d capacities of %s, want all %d", where, len(p.Consumed), d.id, len(d.Capacity))
	}
	for name, capacity := range d.Capacity {
		want, _ := consumed(capacity, requested(n.capacity, name))
		if got, found := p.Consumed[name]; !found || want == nil || exact(got).Cmp(want) != 0 {
			k.report("%s consumes %s of %s of %s, want %v", where, got.String(), name, d.id, want)
		}
	}
}

func (k *ruleCheck) selected(n need, d *publishedDevice) (bool, error) {
	class, found := k.c.ClassMap()[n.class]
	if !found {
		return false, fmt.Errorf("no device class %s", n.class)
	}
	for _, selectors := range [][]resourceapi.DeviceSelector{class.Spec.Selectors, n.selectors} {
		for _, selector := range selectors {
			compiled := k.cel.GetOrCompile(selector.CEL.Expression)
			if compiled.Error != nil {
				return false, compiled.Error
			}
			matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{Driver: d.driver,
				AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity})
			if err != nil || !matches {
				return false, err
			}
		}
	}
	return true, nil
}

func tolerated(taint resourceapi.DeviceTaint, tolerations []resourceapi.DeviceToleration) bool {
	for _, t := range tolerations {
		effect := t.Effect == "" || t.Effect == taint.Effect
		key := t.Key == "" || t.Key == taint.Key
		value := t.Operator == resourceapi.DeviceTolerationOpExists || t.Value == taint.Value
		if effect && key && value {
			return true
		}
	}
	return false
}
