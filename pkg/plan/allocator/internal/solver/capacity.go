package solver

import (
	"errors"
	"fmt"
	"math"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The rules of KEP-5075 (consumable capacity) and KEP-5942 (fractional ranges), as
// kube-scheduler 1.37 applies them. Quantities are copied before they are compared:
// comparing can change how one is stored.

var (
	errNotRepresentable = errors.New("the request cannot be represented in the range's arithmetic")
	errNegative         = errors.New("the capacity is negative")
	errBadRange         = errors.New("the request policy has a step that is 0 or has no minimum")
)

// consumption is what a request takes of one capacity of a device.
type consumption struct {
	amount
	quantity resource.Quantity
}

// request looks for a capacity in what a request asks for, nil if it is not there.
func (f *filter) request(name resourceapi.QualifiedName) *resource.Quantity {
	if q, ok := f.capacity[name]; ok {
		return &q
	}
	return nil
}

// consume tells what a request for a device takes of its capacities, in their order,
// and whether an empty device can give that. The error is for what makes the whole
// allocation fail.
func (f *filter) consume(capacities []capacity) (consumed []consumption, fits bool, err error) {
	for name := range f.capacity {
		if !hasCapacity(capacities, name) {
			return nil, false, nil
		}
	}
	consumed = make([]consumption, len(capacities))
	for i := range capacities {
		q, err := roundedRequest(f.request(capacities[i].name), capacities[i].spec)
		if err == nil && q.Sign() < 0 {
			err = errNegative
		}
		if err != nil {
			return nil, false, fmt.Errorf("capacity %q: %w", capacities[i].name, err)
		}
		consumed[i] = consumption{amount: newAmount(q), quantity: q}
	}
	for i := range capacities {
		allowed, err := policyAllows(consumed[i].quantity, capacities[i].spec.RequestPolicy)
		if err != nil {
			return nil, false, fmt.Errorf("capacity %q: %w", capacities[i].name, err)
		}
		if !allowed || capacities[i].value.less(consumed[i].amount) {
			return nil, false, nil
		}
	}
	return consumed, true, nil
}

func hasCapacity(capacities []capacity, name resourceapi.QualifiedName) bool {
	for i := range capacities {
		if capacities[i].name == name {
			return true
		}
	}
	return false
}

// roundedRequest is what is taken of a capacity if so much is asked for, or nothing.
func roundedRequest(requested *resource.Quantity, c resourceapi.DeviceCapacity) (resource.Quantity, error) {
	policy := c.RequestPolicy
	switch {
	case requested == nil && policy != nil && policy.Default != nil:
		return policy.Default.DeepCopy(), nil
	case requested == nil:
		return c.Value.DeepCopy(), nil
	case policy == nil:
		return requested.DeepCopy(), nil
	case policy.ValidRange != nil && policy.ValidRange.Min != nil:
		return roundedToStep(requested.DeepCopy(), policy.ValidRange)
	}
	for _, valid := range policy.ValidValues {
		if copied := valid.DeepCopy(); copied.Cmp(requested.DeepCopy()) >= 0 {
			return valid.DeepCopy(), nil
		}
	}
	return requested.DeepCopy(), nil
}

// roundedToStep is the least of min, min+step, min+2*step ... that is not below the
// request; the request itself if there is no step.
func roundedToStep(requested resource.Quantity, r *resourceapi.CapacityRequestPolicyRange) (resource.Quantity, error) {
	least := r.Min.DeepCopy()
	if least.Cmp(requested.DeepCopy()) > 0 {
		return least, nil
	}
	if r.Step == nil {
		return requested, nil
	}
	if inMilli(r) {
		value, ok := exactMilli(requested)
		if !ok {
			return resource.Quantity{}, errNotRepresentable
		}
		if r.Min.Sign() < 0 {
			return resource.Quantity{}, errNotRepresentable
		}
		value, err := stepUp(value, r.Min.MilliValue(), r.Step.MilliValue())
		if err != nil {
			return resource.Quantity{}, err
		}
		if value%1000 == 0 {
			return *resource.NewQuantity(value/1000, r.Step.Format), nil
		}
		return *resource.NewMilliQuantity(value, r.Step.Format), nil
	}
	if requested.CmpInt64(math.MaxInt64) > 0 {
		return resource.Quantity{}, errNotRepresentable
	}
	value, err := stepUp(requested.Value(), r.Min.Value(), r.Step.Value())
	if err != nil {
		return resource.Quantity{}, err
	}
	return *resource.NewQuantity(value, r.Step.Format), nil
}

func stepUp(value, least, step int64) (int64, error) {
	if step == 0 {
		return 0, errBadRange
	}
	steps := (value - least) / step
	if (value-least)%step != 0 {
		steps++
	}
	if least >= 0 && steps > (math.MaxInt64-least)/step {
		return 0, errNotRepresentable
	}
	return least + step*steps, nil
}

// policyAllows says whether a policy allows so much to be taken.
func policyAllows(q resource.Quantity, policy *resourceapi.CapacityRequestPolicy) (bool, error) {
	// kube-scheduler compares with the default as structs, not as numbers. That matters
	// only for a default that its own policy forbids, which the API server rejects.
	if policy == nil || policy.Default != nil && q == *policy.Default {
		return true, nil
	}
	if policy.ValidRange != nil {
		return rangeAllows(q, policy.ValidRange)
	}
	for _, valid := range policy.ValidValues {
		if copied := valid.DeepCopy(); copied.Cmp(q.DeepCopy()) == 0 {
			return true, nil
		}
	}
	return len(policy.ValidValues) == 0, nil
}

func rangeAllows(q resource.Quantity, r *resourceapi.CapacityRequestPolicyRange) (bool, error) {
	if r.Max != nil {
		if most := r.Max.DeepCopy(); most.Cmp(q.DeepCopy()) < 0 {
			return false, nil
		}
	}
	if r.Step == nil {
		return true, nil
	}
	if r.Min == nil {
		return false, errBadRange
	}
	value, least, step := q.Value(), r.Min.Value(), r.Step.Value()
	if inMilli(r) {
		milli, ok := exactMilli(q)
		if !ok {
			return false, nil
		}
		value, least, step = milli, r.Min.MilliValue(), r.Step.MilliValue()
	}
	if step == 0 {
		return false, errBadRange
	}
	return (value-least)%step == 0, nil
}

// inMilli says whether a range is computed in thousandths: if all of its numbers are
// whole thousandths and the step is at least one. Otherwise whole units are used.
func inMilli(r *resourceapi.CapacityRequestPolicyRange) bool {
	for _, q := range []*resource.Quantity{r.Min, r.Max, r.Step} {
		if q == nil {
			continue
		}
		if _, ok := exactMilli(*q); !ok {
			return false
		}
	}
	return r.Step == nil || r.Step.MilliValue() >= 1
}

// exactMilli is a quantity in thousandths, and whether it is so exactly.
func exactMilli(q resource.Quantity) (int64, bool) {
	milli := q.MilliValue()
	copied := q.DeepCopy()
	return milli, copied.Cmp(*resource.NewMilliQuantity(milli, q.Format)) == 0
}
