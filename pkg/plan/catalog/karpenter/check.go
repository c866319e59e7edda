package karpenter

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
)

type poolID struct{ driver, name string }

func (id poolID) String() string {
	if id.name == "" {
		return fmt.Sprintf("driver %s: pool of the node", id.driver)
	}
	return fmt.Sprintf("driver %s: pool %s", id.driver, id.name)
}

// pool is what is in one pool, of whichever templates. Karpenter does not check the pools
// of templates as it does those of a cluster. It would only never use what is wrong.
type pool struct {
	devices     map[string]bool
	counterSets map[string]resourceapi.CounterSet
}

func newPool() *pool {
	return &pool{devices: make(map[string]bool), counterSets: make(map[string]resourceapi.CounterSet)}
}

func (p *pool) add(t allocator.Template) error {
	for _, s := range t.Slices {
		for _, set := range s.SharedCounters {
			if _, ok := p.counterSets[set.Name]; ok {
				return fmt.Errorf("counter set %s is there twice", set.Name)
			}
			p.counterSets[set.Name] = set
		}
		for i := range s.Devices {
			d := &s.Devices[i]
			if p.devices[d.Name] {
				return fmt.Errorf("device %s is there twice", d.Name)
			}
			p.devices[d.Name] = true
			if err := checkDevice(d); err != nil {
				return fmt.Errorf("device %s: Karpenter cannot express %w", d.Name, err)
			}
		}
	}
	return nil
}

// checkDevice finds what makes kube-scheduler refuse a device that Karpenter would take.
func checkDevice(d *resourceapi.Device) error {
	for _, taint := range d.Taints {
		if taint.Effect != resourceapi.DeviceTaintEffectNone {
			return fmt.Errorf("its taint %s:%s: leave the device out, or the taint if claims tolerate it", taint.Key, taint.Effect)
		}
	}
	if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
		return fmt.Errorf("which nodes reach it: templates are for the node's own devices, leave it out")
	}
	if len(d.NodeAllocatableResources) > 0 {
		return fmt.Errorf("the resources of the node that it takes")
	}
	for _, consumption := range d.ConsumesCounters {
		if len(consumption.CompatibilityGroups) > 0 {
			return fmt.Errorf("its compatibility groups")
		}
	}
	return nil
}

func (p *pool) checkCounters(t allocator.Template) error {
	for _, s := range t.Slices {
		for i := range s.Devices {
			for _, consumption := range s.Devices[i].ConsumesCounters {
				set, ok := p.counterSets[consumption.CounterSet]
				if !ok {
					return fmt.Errorf("device %s consumes of counter set %s, which is not there", s.Devices[i].Name, consumption.CounterSet)
				}
				for _, name := range slices.Sorted(maps.Keys(consumption.Counters)) {
					if _, ok := set.Counters[name]; !ok {
						return fmt.Errorf("device %s consumes counter %s, which counter set %s does not have", s.Devices[i].Name, name, consumption.CounterSet)
					}
				}
			}
		}
	}
	return nil
}
