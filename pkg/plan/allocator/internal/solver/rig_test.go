package solver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
	"k8s.io/utils/ptr"
)

const (
	testDriver = "gpu.example.com"
	testNode   = "node-a"
)

// deviceOption changes a device.
type deviceOption func(*resourceapi.Device)

func device(name string, options ...deviceOption) resourceapi.Device {
	d := resourceapi.Device{Name: name}
	for _, option := range options {
		option(&d)
	}
	return d
}

// devices are n devices, named by a pattern with a number.
func devices(n int, pattern string, options ...deviceOption) []resourceapi.Device {
	result := make([]resourceapi.Device, n)
	for i := range result {
		result[i] = device(fmt.Sprintf(pattern, i), options...)
	}
	return result
}

func attribute(name string, v any) deviceOption {
	return func(d *resourceapi.Device) {
		if d.Attributes == nil {
			d.Attributes = make(map[resourceapi.QualifiedName]resourceapi.DeviceAttribute)
		}
		a := resourceapi.DeviceAttribute{}
		switch v := v.(type) {
		case string:
			a.StringValue = &v
		case int:
			a.IntValue = ptr.To(int64(v))
		case bool:
			a.BoolValue = &v
		case []string:
			a.StringValues = v
		}
		d.Attributes[resourceapi.QualifiedName(name)] = a
	}
}

func capacityOf(name, value string, policies ...*resourceapi.CapacityRequestPolicy) deviceOption {
	return func(d *resourceapi.Device) {
		if d.Capacity == nil {
			d.Capacity = make(map[resourceapi.QualifiedName]resourceapi.DeviceCapacity)
		}
		c := resourceapi.DeviceCapacity{Value: resource.MustParse(value)}
		for _, p := range policies {
			c.RequestPolicy = p
		}
		d.Capacity[resourceapi.QualifiedName(name)] = c
	}
}

func shared(d *resourceapi.Device) { d.AllowMultipleAllocations = ptr.To(true) }

// consumes takes amounts of the counters of a set, given as "name=amount".
func consumes(set string, counters ...string) deviceOption {
	return func(d *resourceapi.Device) {
		d.ConsumesCounters = append(d.ConsumesCounters, resourceapi.DeviceCounterConsumption{CounterSet: set, Counters: countersOf(counters)})
	}
}

func countersOf(counters []string) map[string]resourceapi.Counter {
	result := make(map[string]resourceapi.Counter, len(counters))
	for _, c := range counters {
		name, value, _ := strings.Cut(c, "=")
		result[name] = resourceapi.Counter{Value: resource.MustParse(value)}
	}
	return result
}

func counterSet(name string, counters ...string) resourceapi.CounterSet {
	return resourceapi.CounterSet{Name: name, Counters: countersOf(counters)}
}

func taint(key string, effect resourceapi.DeviceTaintEffect) deviceOption {
	return func(d *resourceapi.Device) {
		d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: key, Value: "yes", Effect: effect})
	}
}

// slicesOf are the slices of a pool of the test node: one of counter sets if there are
// any, and one of devices.
func slicesOf(pool string, devices []resourceapi.Device, counters ...resourceapi.CounterSet) []*resourceapi.ResourceSlice {
	contents := []resourceapi.ResourceSliceSpec{{Devices: devices}}
	if len(counters) > 0 {
		contents = []resourceapi.ResourceSliceSpec{{SharedCounters: counters}, {Devices: devices}}
	}
	result := make([]*resourceapi.ResourceSlice, len(contents))
	for i, spec := range contents {
		spec.Driver = testDriver
		spec.NodeName = ptr.To(testNode)
		spec.Pool = resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(contents))}
		result[i] = &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%d-%s", i, pool)}, Spec: spec}
	}
	return result
}

// requestOption changes a request.
type requestOption func(*resourceapi.ExactDeviceRequest)

func exactly(name string, count int, options ...requestOption) resourceapi.DeviceRequest {
	r := resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "any", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(count),
	}}
	for _, option := range options {
		option(r.Exactly)
	}
	return r
}

func firstOf(name string, alternatives ...resourceapi.DeviceRequest) resourceapi.DeviceRequest {
	r := resourceapi.DeviceRequest{Name: name}
	for _, a := range alternatives {
		r.FirstAvailable = append(r.FirstAvailable, resourceapi.DeviceSubRequest{
			Name: a.Name, DeviceClassName: a.Exactly.DeviceClassName, Selectors: a.Exactly.Selectors,
			AllocationMode: a.Exactly.AllocationMode, Count: a.Exactly.Count,
			Tolerations: a.Exactly.Tolerations, Capacity: a.Exactly.Capacity,
		})
	}
	return r
}

func selecting(expression string) requestOption {
	return func(r *resourceapi.ExactDeviceRequest) { r.Selectors = append(r.Selectors, celSelector(expression)) }
}

func celSelector(expression string) resourceapi.DeviceSelector {
	return resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}
}

func ofClass(name string) requestOption {
	return func(r *resourceapi.ExactDeviceRequest) { r.DeviceClassName = name }
}

func all(r *resourceapi.ExactDeviceRequest) {
	r.AllocationMode, r.Count = resourceapi.DeviceAllocationModeAll, 0
}

func admin(r *resourceapi.ExactDeviceRequest) { r.AdminAccess = ptr.To(true) }

// asking asks for capacities, given as "name=amount".
func asking(capacities ...string) requestOption {
	return func(r *resourceapi.ExactDeviceRequest) {
		r.Capacity = &resourceapi.CapacityRequirements{Requests: make(map[resourceapi.QualifiedName]resource.Quantity)}
		for _, c := range capacities {
			name, value, _ := strings.Cut(c, "=")
			r.Capacity.Requests[resourceapi.QualifiedName(name)] = resource.MustParse(value)
		}
	}
}

func tolerating(key string) requestOption {
	return func(r *resourceapi.ExactDeviceRequest) {
		r.Tolerations = append(r.Tolerations, resourceapi.DeviceToleration{Key: key, Operator: resourceapi.DeviceTolerationOpExists})
	}
}

// claimOf is a claim with requests and constraints.
func claimOf(name string, parts ...any) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for _, part := range parts {
		switch part := part.(type) {
		case resourceapi.DeviceRequest:
			c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, part)
		case resourceapi.DeviceConstraint:
			c.Spec.Devices.Constraints = append(c.Spec.Devices.Constraints, part)
		}
	}
	return c
}

func matchAll(attribute string, requests ...string) resourceapi.DeviceConstraint {
	return resourceapi.DeviceConstraint{Requests: requests, MatchAttribute: ptr.To(resourceapi.FullyQualifiedName(attribute))}
}

func distinct(attribute string, requests ...string) resourceapi.DeviceConstraint {
	return resourceapi.DeviceConstraint{Requests: requests, DistinctAttribute: ptr.To(resourceapi.FullyQualifiedName(attribute))}
}

// rig is a problem in the making.
type rig struct {
	slices    []*resourceapi.ResourceSlice
	templates []*Template
	cache     *Cache
	classes   map[string]*resourceapi.DeviceClass
	allocated schedulerapi.AllocatedState
	usage     *Usage
	claims    []*resourceapi.ResourceClaim
	labels    map[string]string
	bestFit   bool
	budget    int
}

func newRig(claims ...*resourceapi.ResourceClaim) *rig {
	r := &rig{
		cache:   NewCache(),
		classes: make(map[string]*resourceapi.DeviceClass),
		allocated: schedulerapi.AllocatedState{
			AllocatedDevices:         sets.New[schedulerapi.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[schedulerapi.SharedDeviceID](),
			AggregatedCapacity:       schedulerapi.NewConsumedCapacityCollection(),
		},
		claims: claims,
	}
	return r.class("any")
}

func (r *rig) class(name string, expressions ...string) *rig {
	c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, e := range expressions {
		c.Spec.Selectors = append(c.Spec.Selectors, celSelector(e))
	}
	r.classes[name] = c
	return r
}

func (r *rig) pool(name string, devices []resourceapi.Device, counters ...resourceapi.CounterSet) *rig {
	r.slices = append(r.slices, slicesOf(name, devices, counters...)...)
	return r
}

func (r *rig) template(t *testing.T, pool string, slices []TemplateSlice, bindings ...Binding) *rig {
	t.Helper()
	template, err := NewTemplate(r.cache, testDriver, pool, slices, bindings)
	if err != nil {
		t.Fatal(err)
	}
	r.templates = append(r.templates, template)
	return r
}

// inUse takes devices, given as "pool/device".
func (r *rig) inUse(devices ...string) *rig {
	for _, d := range devices {
		r.allocated.AllocatedDevices.Insert(deviceID(d))
	}
	return r
}

// share takes a share of a device, given as "pool/device".
func (r *rig) share(device, id string, capacities ...string) *rig {
	r.allocated.AllocatedSharedDeviceIDs.Insert(schedulerapi.MakeSharedDeviceID(deviceID(device), ptr.To(types.UID(id))))
	consumed := make(map[resourceapi.QualifiedName]resource.Quantity)
	for _, c := range capacities {
		name, value, _ := strings.Cut(c, "=")
		consumed[resourceapi.QualifiedName(name)] = resource.MustParse(value)
	}
	if len(consumed) > 0 {
		r.allocated.AggregatedCapacity.Insert(schedulerapi.NewDeviceConsumedCapacity(deviceID(device), consumed))
	}
	return r
}

func deviceID(name string) schedulerapi.DeviceID {
	pool, device, _ := strings.Cut(name, "/")
	return schedulerapi.MakeDeviceID(testDriver, pool, device)
}

func (r *rig) node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: testNode, Labels: r.labels}}
}

// problem prepares everything.
func (r *rig) problem() (Problem, error) {
	claims, err := Compile(r.cache, r.claims, r.classes)
	if err != nil {
		return Problem{}, err
	}
	pools, err := NewSnapshot(r.cache, r.slices).Pools(r.node())
	if err != nil {
		return Problem{}, err
	}
	usage := r.usage
	if usage == nil {
		usage = NewUsage(r.allocated)
	}
	return Problem{
		Pools: pools.WithTemplates(r.templates...), Node: r.node(), Usage: usage, Claims: claims,
		BestFit: r.bestFit, Budget: r.budget,
	}, nil
}

func (r *rig) solve() (Solution, error) {
	p, err := r.problem()
	if err != nil {
		return Solution{}, err
	}
	return Solve(context.Background(), p)
}

// check compares what was found with "request=pool/device" of each claim, a share with
// what it takes as in "request=pool/device memory=10Gi". No claims mean that nothing is
// found.
func (r *rig) check(t *testing.T, claims ...[]string) Solution {
	t.Helper()
	solution, err := r.solve()
	if err != nil {
		t.Fatalf("error: %v", err)
	}
	if solution.Found != (len(claims) > 0) {
		t.Fatalf("found: %v, want %v (%s)", solution.Found, len(claims) > 0, solution.Reason)
	}
	if got := describeChoices(solution.Choices); !slices.EqualFunc(got, claims, slices.Equal) {
		t.Fatalf("got\n  %v\nwant\n  %v", got, claims)
	}
	return solution
}

func describeChoices(choices [][]Choice) [][]string {
	var result [][]string
	for _, claim := range choices {
		texts := []string{}
		for _, c := range claim {
			text := fmt.Sprintf("%s=%s/%s", c.RequestName, c.Device.ID.Pool, c.Device.ID.Device)
			if c.AdminAccess {
				text += " admin"
			}
			names := make([]string, 0, len(c.Consumed))
			for name := range c.Consumed {
				names = append(names, string(name))
			}
			slices.Sort(names)
			for _, name := range names {
				q := c.Consumed[resourceapi.QualifiedName(name)]
				text += fmt.Sprintf(" %s=%s", name, q.String())
			}
			texts = append(texts, text)
		}
		result = append(result, texts)
	}
	return result
}

// checkError wants an error with all of the texts.
func (r *rig) checkError(t *testing.T, texts ...string) {
	t.Helper()
	solution, err := r.solve()
	if err == nil {
		t.Fatalf("no error, found: %v %v (%s)", solution.Found, describeChoices(solution.Choices), solution.Reason)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}
