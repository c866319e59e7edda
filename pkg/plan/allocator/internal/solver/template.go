package solver

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	draapi "k8s.io/dynamic-resource-allocation/api"
)

// Template is a pool that a driver will publish on a node that does not exist yet. It
// is immutable and may be part of many [Pools].
type Template struct {
	pool *pool
}

// NewTemplate reads a template of a pool, whose name may be empty. It fails if the
// slices break a rule of pools (device names, counter sets), or a binding names what is
// not there.
func NewTemplate(cache *Cache, driver, pool string, slices []TemplateSlice, bindings []Binding) (*Template, error) {
	p, err := newTemplatePool(cache, driver, pool, slices)
	if err == nil {
		err = p.bind(bindings)
	}
	if err != nil {
		return nil, fmt.Errorf("template of driver %s: %w", driver, err)
	}
	p.shape = p.templateShape(cache)
	return &Template{pool: p}, nil
}

func newTemplatePool(cache *Cache, driver, name string, slices []TemplateSlice) (*pool, error) {
	id := poolID{driver: draapi.MakeUniqueString(driver), name: draapi.MakeUniqueString(name)}
	src := poolSource{}
	for i, slice := range slices {
		if len(slice.Devices) > 0 && len(slice.SharedCounters) > 0 {
			return nil, fmt.Errorf("slice %d has both devices and counter sets, put them into slices of their own", i)
		}
		if usesCompatibilityGroups(slice.Devices) {
			// kube-scheduler ignores such a slice, so the pool stays incomplete for it.
			return &pool{id: id, template: true, incomplete: true}, nil
		}
		src.sets = append(src.sets, slice.SharedCounters...)
		src.slices = append(src.slices, sliceSource{devices: slice.Devices})
	}
	p := newPool(cache, id, true, src)
	if p.ready().invalid {
		return nil, errors.New(p.invalidReason)
	}
	return p, nil
}

// bind numbers groups of devices that will share a value of an attribute: those of one
// binding and, as a value is a value, of all bindings that have a device in common.
func (p *pool) bind(bindings []Binding) error {
	index := make(map[string]int, len(p.devices))
	for i := range p.devices {
		index[p.devices[i].ID.Device.String()] = i
	}
	bound := make(map[resourceapi.FullyQualifiedName][]int32)
	for n, binding := range bindings {
		if binding.Attribute == "" {
			return fmt.Errorf("binding %d names no attribute", n)
		}
		groups := bound[binding.Attribute]
		if groups == nil {
			groups = make([]int32, len(p.devices))
			bound[binding.Attribute] = groups
		}
		for _, name := range binding.Devices {
			i, ok := index[name]
			if !ok && !p.incomplete {
				return fmt.Errorf("binding of %s names device %s, which the template does not have", binding.Attribute, name)
			}
			if ok {
				join(groups, i, int32(n+1))
			}
		}
	}
	if len(bound) > 0 {
		p.bound = bound
	}
	for _, groups := range bound {
		renumber(groups)
	}
	return nil
}

// join puts device i into a group. A group that it is in already becomes part of it.
func join(groups []int32, i int, group int32) {
	former := groups[i]
	groups[i] = group
	if former == 0 {
		return
	}
	for k := range groups {
		if groups[k] == former {
			groups[k] = group
		}
	}
}

// renumber numbers groups from 1 in the order of their first devices.
func renumber(groups []int32) {
	numbers := make(map[int32]int32)
	for i, group := range groups {
		if group == 0 {
			continue
		}
		if numbers[group] == 0 {
			numbers[group] = int32(len(numbers) + 1)
		}
		groups[i] = numbers[group]
	}
}

// Pools are the pools that a node reaches, in the order in which kube-scheduler tries
// them. The zero value has none.
type Pools struct {
	pools []*pool
}

// WithTemplates adds pools of templates: by driver name, after the pools of the same
// driver in the cluster, and all pools with binding conditions last.
func (p Pools) WithTemplates(templates ...*Template) Pools {
	result := make([]*pool, 0, len(p.pools)+len(templates))
	result = append(result, p.pools...)
	for _, t := range templates {
		result = append(result, t.pool)
	}
	sortPools(result)
	return Pools{pools: result}
}

func sortPools(pools []*pool) {
	slices.SortStableFunc(pools, func(a, b *pool) int {
		return cmp.Or(
			order(a.late, b.late),
			cmp.Compare(a.id.driver.String(), b.id.driver.String()),
			order(a.template, b.template),
			cmp.Compare(a.id.name.String(), b.id.name.String()),
		)
	})
}

// order puts what is not before what is.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Shape is equal for pools that differ only in names of templates' pools, devices and
// counter sets: what is decided for one is decided for the other, device by position,
// if of these devices the same are in use.
type Shape struct {
	key string
}

// Shape tells the shape of the pools. Pools of a cluster are equal to themselves alone.
func (p Pools) Shape() Shape {
	key := make([]byte, 0, 8*len(p.pools))
	for _, pool := range p.pools {
		key = binary.BigEndian.AppendUint64(key, uint64(pool.shape))
	}
	return Shape{key: string(key)}
}
