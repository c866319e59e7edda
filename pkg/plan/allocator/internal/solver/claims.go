package solver

import (
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// Claims are a pod's claims, prepared for any number of calls of [Solve], also at once.
type Claims struct {
	claims []*claim
	// requests are those of all claims, in order.
	requests []*request
	// attributes are the distinct names that constraints use.
	attributes []resourceapi.FullyQualifiedName
	// constraints are those of all claims, in order.
	constraints []constraint
	// admin says that there is a request for admin access.
	admin bool
}

// claim is one claim. Its requests and constraints are ranges of those of [Claims].
type claim struct {
	name             string // namespace/name
	short            string
	firstRequest     int
	firstConstraint  int
	endOfConstraints int
}

// request is one request, with one alternative, or several of a prioritized list.
type request struct {
	claim, index int // of the claim, and in the claim
	name         string
	first        bool // of its claim
	alternatives []*alternative
	prioritized  bool
	// twin is an earlier request that asks exactly the same, -1 if there is none.
	twin int
}

// alternative is what may be allocated for a request: the request itself or one of its
// subrequests.
type alternative struct {
	request *request
	// position is that of the request in Claims.requests, subrequest -1 or that in the
	// prioritized list, and number that among all alternatives.
	position, subrequest, number int
	name                         string // "request" or "request/subrequest"
	class                        string
	filter                       *filter
	all                          bool
	count                        int // unless all
	admin                        bool
	// constraints are positions in Claims.constraints of those that apply.
	constraints []int
}

// constraint is one constraint of a claim.
type constraint struct {
	name      resourceapi.FullyQualifiedName
	attribute int // in Claims.attributes
	distinct  bool
}

// Compile prepares claims. It fails for what kube-scheduler's allocator rejects before
// it looks at any device: a class that does not exist, more devices than a claim can
// hold, what 1.37 does not support. What it only notices at a device, like a selector
// that does not compile, is found by [Solve].
func Compile(cache *Cache, claims []*resourceapi.ResourceClaim, classes map[string]*resourceapi.DeviceClass) (*Claims, error) {
	c := &compiler{cache: cache, classes: classes, claims: &Claims{}}
	for _, spec := range claims {
		if err := c.add(spec); err != nil {
			return nil, err
		}
	}
	c.claims.findTwins()
	return c.claims, nil
}

type compiler struct {
	cache   *Cache
	classes map[string]*resourceapi.DeviceClass
	claims  *Claims
	numbers int
}

func (c *compiler) add(spec *resourceapi.ResourceClaim) error {
	result := &claim{
		name: spec.Namespace + "/" + spec.Name, short: spec.Name,
		firstRequest: len(c.claims.requests), firstConstraint: len(c.claims.constraints),
	}
	c.claims.claims = append(c.claims.claims, result)
	least := 0
	for i := range spec.Spec.Devices.Requests {
		r, err := c.request(result, spec, i)
		if err != nil {
			return err
		}
		c.claims.requests = append(c.claims.requests, r)
		if least, err = addCount(least, leastCount(r, nil), result, r); err != nil {
			return err
		}
	}
	for i, constraint := range spec.Spec.Devices.Constraints {
		if err := c.constraint(constraint); err != nil {
			return fmt.Errorf("claim %s, constraint #%d: %w", result.name, i, err)
		}
	}
	result.endOfConstraints = len(c.claims.constraints)
	return nil
}

// addCount adds what one more request needs at least to what a claim needs.
func addCount(sum, count int, c *claim, r *request) (int, error) {
	if count > resourceapi.AllocationResultsMaxSize-sum {
		return 0, fmt.Errorf("claim %s, request %s: %d devices and %d of the requests before it are more than the %d that a claim can hold",
			c.name, r.name, count, sum, resourceapi.AllocationResultsMaxSize)
	}
	return sum + count, nil
}

// leastCount is how many devices a request needs at least. The number that a request
// for all devices needs is not known without pools.
func leastCount(r *request, all func(*alternative) int) int {
	least := -1
	for _, a := range r.alternatives {
		count := a.count
		switch {
		case a.all && all != nil:
			count = all(a)
		case a.all:
			count = 0
		}
		if least < 0 || count < least {
			least = count
		}
	}
	return max(least, 0)
}

func (c *compiler) request(of *claim, spec *resourceapi.ResourceClaim, index int) (*request, error) {
	api := &spec.Spec.Devices.Requests[index]
	r := &request{
		claim: len(c.claims.claims) - 1, index: index, name: api.Name,
		first: len(c.claims.requests) == of.firstRequest, prioritized: len(api.FirstAvailable) > 0, twin: -1,
	}
	wrap := func(name string, err error) error {
		return fmt.Errorf("claim %s, request %s: %w", of.name, name, err)
	}
	if !r.prioritized {
		if api.Exactly == nil {
			return nil, wrap(api.Name, errors.New("neither exactly nor firstAvailable is set"))
		}
		e := api.Exactly
		err := c.alternative(r, spec, &alternative{name: api.Name, subrequest: -1, admin: ptr.Deref(e.AdminAccess, false)}, &resourceapi.DeviceSubRequest{
			DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, AllocationMode: e.AllocationMode,
			Count: e.Count, Tolerations: e.Tolerations, Capacity: e.Capacity, DerivedAttributes: e.DerivedAttributes,
		})
		if err != nil {
			return nil, wrap(api.Name, err)
		}
		return r, nil
	}
	for i := range api.FirstAvailable {
		name := api.Name + "/" + api.FirstAvailable[i].Name
		if err := c.alternative(r, spec, &alternative{name: name, subrequest: i}, &api.FirstAvailable[i]); err != nil {
			return nil, wrap(name, err)
		}
	}
	return r, nil
}

func (c *compiler) alternative(r *request, spec *resourceapi.ResourceClaim, a *alternative, api *resourceapi.DeviceSubRequest) error {
	if len(api.DerivedAttributes) > 0 {
		return errors.New("derived attributes are not supported")
	}
	for i, s := range api.Selectors {
		if s.CEL == nil {
			return fmt.Errorf("selector #%d has no CEL expression", i)
		}
	}
	if api.DeviceClassName == "" {
		return errors.New("no device class is named")
	}
	class := c.classes[api.DeviceClassName]
	if class == nil {
		return fmt.Errorf("device class %s does not exist", api.DeviceClassName)
	}
	for i, s := range class.Spec.Selectors {
		if s.CEL == nil {
			return fmt.Errorf("selector #%d of device class %s has no CEL expression", i, class.Name)
		}
	}
	switch api.AllocationMode {
	case resourceapi.DeviceAllocationModeExactCount:
		a.count = int(max(api.Count, 0))
	case resourceapi.DeviceAllocationModeAll:
		a.all = true
	default:
		return fmt.Errorf("allocation mode %q is not supported", api.AllocationMode)
	}
	a.request, a.position, a.number = r, len(c.claims.requests), c.numbers
	c.numbers++
	a.class = api.DeviceClassName
	a.filter = c.cache.filter(class.Spec.Selectors, api.Selectors, api.Capacity, api.Tolerations)
	c.claims.admin = c.claims.admin || a.admin
	first := c.claims.claims[r.claim].firstConstraint
	for i, constraint := range spec.Spec.Devices.Constraints {
		names := constraint.Requests
		if len(names) == 0 || slices.Contains(names, r.name) || slices.Contains(names, a.name) {
			a.constraints = append(a.constraints, first+i)
		}
	}
	r.alternatives = append(r.alternatives, a)
	return nil
}

func (c *compiler) constraint(api resourceapi.DeviceConstraint) error {
	result := constraint{}
	switch {
	case api.MatchAttribute != nil:
		result.name = *api.MatchAttribute
	case api.DistinctAttribute != nil:
		result.name, result.distinct = *api.DistinctAttribute, true
	default:
		return errors.New("neither matchAttribute nor distinctAttribute is set")
	}
	result.attribute = slices.Index(c.claims.attributes, result.name)
	if result.attribute < 0 {
		result.attribute = len(c.claims.attributes)
		c.claims.attributes = append(c.claims.attributes, result.name)
	}
	c.claims.constraints = append(c.claims.constraints, result)
	return nil
}

// findTwins finds requests of which it does not matter which one gets which devices.
// With admin access it can matter: a device that is watched cannot be taken by a later
// request, but the other way round it can.
func (c *Claims) findTwins() {
	if c.admin {
		return
	}
	for i, r := range c.requests {
		for k := i - 1; k >= 0; k-- {
			if r.isTwin(c.requests[k]) {
				r.twin = k
				break
			}
		}
	}
}

func (r *request) isTwin(other *request) bool {
	if r.prioritized || other.prioritized {
		return false
	}
	a, b := r.alternatives[0], other.alternatives[0]
	return a.filter == b.filter && !a.all && !b.all && a.count == b.count && slices.Equal(a.constraints, b.constraints)
}

// describe names the alternative for a user.
func (c *Claims) describe(a *alternative) string {
	return fmt.Sprintf("request %s of claim %s", a.name, c.claims[a.request.claim].short)
}
