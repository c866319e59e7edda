package solver_test

import (
	"fmt"
	"math/big"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
)

// exact is a quantity as a fraction: nothing here may round but what a policy rounds.
func exact(q resource.Quantity) *big.Rat {
	value, ok := new(big.Rat).SetString(q.AsDec().String())
	if !ok {
		return new(big.Rat)
	}
	return value
}

func requested(capacity *resourceapi.CapacityRequirements, name resourceapi.QualifiedName) *resource.Quantity {
	if capacity == nil {
		return nil
	}
	if q, found := capacity.Requests[name]; found {
		return &q
	}
	return nil
}

// consumed is what a request takes of a capacity: false if the policy allows nothing
// that would do.
func consumed(capacity resourceapi.DeviceCapacity, request *resource.Quantity) (*big.Rat, bool) {
	policy := capacity.RequestPolicy
	if request == nil {
		if policy != nil && policy.Default != nil {
			return exact(*policy.Default), true
		}
		return exact(capacity.Value), true
	}
	want := exact(*request)
	switch {
	case policy == nil:
		return want, true
	case policy.ValidRange != nil:
		return inRange(*policy.ValidRange, want)
	case len(policy.ValidValues) > 0:
		for _, value := range policy.ValidValues {
			if exact(value).Cmp(want) >= 0 {
				return exact(value), true
			}
		}
		return nil, false
	default:
		return want, true
	}
}

// inRange rounds up to the least valid value: min, or min and a number of steps.
func inRange(valid resourceapi.CapacityRequestPolicyRange, want *big.Rat) (*big.Rat, bool) {
	low := exact(*valid.Min)
	value := want
	if want.Cmp(low) < 0 {
		value = low
	} else if valid.Step != nil {
		step := exact(*valid.Step)
		steps := new(big.Rat).Quo(new(big.Rat).Sub(want, low), step)
		whole := new(big.Int).Quo(new(big.Int).Add(steps.Num(), new(big.Int).Sub(steps.Denom(), big.NewInt(1))), steps.Denom())
		value = new(big.Rat).Add(low, new(big.Rat).Mul(new(big.Rat).SetInt(whole), step))
	}
	if valid.Max != nil && value.Cmp(exact(*valid.Max)) > 0 {
		return nil, false
	}
	return value, true
}

// couldConsume says whether a device that nobody uses has what is asked of its
// capacities.
func couldConsume(d *publishedDevice, request *resourceapi.CapacityRequirements) bool {
	if request != nil {
		for name := range request.Requests {
			if _, found := d.Capacity[name]; !found {
				return false
			}
		}
	}
	for name, capacity := range d.Capacity {
		value, ok := consumed(capacity, requested(request, name))
		if !ok || value.Cmp(exact(capacity.Value)) > 0 {
			return false
		}
	}
	return true
}

// usedOnce checks that what cannot be shared is not, and that nothing is taken that is
// held already. Admin access neither takes nor waits.
func (k *ruleCheck) usedOnce(answer Answer) {
	taken := map[schedulerapi.DeviceID]bool{}
	for i, claim := range answer.Claims {
		admin := map[schedulerapi.DeviceID]bool{}
		for _, p := range claim {
			d := k.devices[p.Device]
			if d == nil {
				continue
			}
			if p.Admin {
				if admin[p.Device] && !d.shared() {
					k.report("claim %d gets admin access to %s twice", i, p.Device)
				}
				admin[p.Device] = true
				continue
			}
			if k.held.AllocatedDevices.Has(p.Device) {
				k.report("%s is held by another claim", p.Device)
			}
			if taken[p.Device] && !d.shared() {
				k.report("%s is given away twice", p.Device)
			}
			taken[p.Device] = true
		}
	}
}

// capacities checks that shares of a device fit into it together.
func (k *ruleCheck) capacities(answer Answer) {
	type one struct {
		device schedulerapi.DeviceID
		name   resourceapi.QualifiedName
	}
	sums := map[one]*big.Rat{}
	for _, claim := range answer.Claims {
		for _, p := range claim {
			for name, q := range p.Consumed {
				key := one{p.Device, name}
				if sums[key] == nil {
					sums[key] = new(big.Rat)
					if held, found := k.held.AggregatedCapacity[p.Device][name]; found {
						sums[key] = exact(*held)
					}
				}
				sums[key].Add(sums[key], exact(q))
			}
		}
	}
	for key, sum := range sums {
		d := k.devices[key.device]
		if d != nil && sum.Cmp(exact(d.Capacity[key.name].Value)) > 0 {
			k.report("shares take %v of %s of %s", sum, key.name, key.device)
		}
	}
}

// counters checks that the devices in use, each once, do not consume more than there is.
// Only counters of which something new is taken count: they may have been overdrawn.
func (k *ruleCheck) counters(answer Answer) {
	fresh := map[*publishedDevice]bool{}
	for _, claim := range answer.Claims {
		for _, p := range claim {
			if !p.Admin && !k.inUse(p.Device) {
				fresh[k.devices[p.Device]] = true
			}
		}
	}
	for _, pool := range k.pools {
		left := map[string]*big.Rat{}
		for _, set := range pool.sets {
			for name, counter := range set.Counters {
				left[set.Name+"/"+name] = exact(counter.Value)
			}
		}
		touched := map[string]bool{}
		for _, d := range pool.all {
			if !fresh[d] && !k.inUse(d.id) {
				continue
			}
			for _, consumption := range d.ConsumesCounters {
				for name, counter := range consumption.Counters {
					key := consumption.CounterSet + "/" + name
					if left[key] == nil {
						continue
					}
					left[key].Sub(left[key], exact(counter.Value))
					touched[key] = touched[key] || fresh[d]
				}
			}
		}
		for key, yes := range touched {
			if yes && left[key].Sign() < 0 {
				k.report("counter %s of pool %s is overdrawn by %v", key, pool.name, left[key])
			}
		}
	}
}

// inUse says whether another claim holds the device, or a share of it.
func (k *ruleCheck) inUse(id schedulerapi.DeviceID) bool {
	if k.held.AllocatedDevices.Has(id) {
		return true
	}
	for share := range k.held.AllocatedSharedDeviceIDs {
		if share.GetDeviceID() == id {
			return true
		}
	}
	return false
}

func (k *ruleCheck) constraint(claim *resourceapi.ResourceClaim, constraint resourceapi.DeviceConstraint, picked []Picked) {
	name, match := constraint.MatchAttribute, true
	if name == nil {
		name, match = constraint.DistinctAttribute, false
	}
	var values []string
	for _, p := range picked {
		d := k.devices[p.Device]
		if d == nil || !concerned(constraint.Requests, p.Request) {
			continue
		}
		value := d.attribute(*name)
		if value == "" {
			k.report("claim %s: %s has no attribute %s", claim.Name, p.Device, *name)
		}
		values = append(values, value)
	}
	slices.Sort(values)
	kinds := len(slices.Compact(slices.Clone(values)))
	if match && kinds > 1 || !match && kinds < len(values) {
		k.report("claim %s: values of attribute %s are %v", claim.Name, *name, values)
	}
}

// concerned says whether a constraint is about a result: it names its request, its
// request's alternative, or nothing.
func concerned(requests []string, result string) bool {
	return len(requests) == 0 || slices.ContainsFunc(requests, func(name string) bool {
		return result == name || len(result) > len(name) && result[:len(name)+1] == name+"/"
	})
}

func describe(value resourceapi.DeviceAttribute) string {
	switch {
	case value.StringValue != nil:
		return "string " + *value.StringValue
	case value.IntValue != nil:
		return fmt.Sprintf("int %d", *value.IntValue)
	case value.BoolValue != nil:
		return fmt.Sprintf("bool %t", *value.BoolValue)
	case value.VersionValue != nil:
		return "version " + *value.VersionValue
	default:
		return ""
	}
}
