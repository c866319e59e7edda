package allocator

import (
	"encoding/json"
	"fmt"
	"sync"

	"apportion.dev/apportion/pkg/plan/allocator/internal/cells"
	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

// Cache keeps what later loops can use again: compiled selectors and their results, and
// what instance types look like. It is safe for concurrent use, also by several
// Allocators. Instance types that two Allocators in a row did not see are forgotten.
type Cache struct {
	solver *solver.Cache
	labels *cells.Interner

	mutex sync.Mutex
	types generations[*InstanceType, *instanceType]
	sets  generations[string, *templateSet]
	// names numbers the names of instance types.
	names map[string]int
}

// NewCache returns an empty one.
func NewCache() *Cache {
	c := &Cache{solver: solver.NewCache(), labels: cells.NewInterner(), names: make(map[string]int)}
	c.next()
	return c
}

// generations is a map that forgets what was not asked for between two calls of next.
type generations[K comparable, V any] struct {
	current, previous map[K]V
}

func (g *generations[K, V]) next() {
	g.previous, g.current = g.current, make(map[K]V)
}

func (g *generations[K, V]) get(key K, make func() V) V {
	if v, ok := g.current[key]; ok {
		return v
	}
	v, ok := g.previous[key]
	if !ok {
		v = make()
	}
	g.current[key] = v
	return v
}

// instanceType is an InstanceType in a form that is quick to search.
type instanceType struct {
	name   string
	number int // of the name
	labels *cells.Labels
	set    *templateSet
}

// templateSet is the templates of all instance types that have the same, with the same
// names.
type templateSet struct {
	templates []Template
	compiled  []*solver.Template
	// err says what is wrong with the templates.
	err error
}

// next starts a loop.
func (c *Cache) next() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.types.next()
	c.sets.next()
}

// instanceTypes looks up all at once. If two have the same name, it is returned.
func (c *Cache) instanceTypes(types []*InstanceType) (found []*instanceType, twice string) {
	found = make([]*instanceType, len(types))
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var seen []uint64
	for i, t := range types {
		found[i] = c.types.get(t, func() *instanceType { return c.instanceType(t) })
		word, bit := found[i].number/64, uint64(1)<<(found[i].number%64)
		if word >= len(seen) {
			seen = append(seen, make([]uint64, len(c.names)/64+1-len(seen))...)
		}
		if seen[word]&bit != 0 {
			return nil, t.Name
		}
		seen[word] |= bit
	}
	return found, ""
}

func (c *Cache) instanceType(t *InstanceType) *instanceType {
	number, ok := c.names[t.Name]
	if !ok {
		number = len(c.names)
		c.names[t.Name] = number
	}
	return &instanceType{name: t.Name, number: number, labels: c.labels.Labels(t.Labels), set: c.templateSet(t.Templates)}
}

func (c *Cache) templateSet(templates []Template) *templateSet {
	content, err := json.Marshal(templates)
	if err != nil {
		return &templateSet{err: fmt.Errorf("reading the templates: %w", err)}
	}
	return c.sets.get(string(content), func() *templateSet {
		set := &templateSet{templates: templates}
		for _, t := range templates {
			compiled, err := solver.NewTemplate(c.solver, t.Driver, t.Pool, t.Slices, t.Bindings)
			if err != nil {
				set.err = err
				return set
			}
			set.compiled = append(set.compiled, compiled)
		}
		return set
	})
}
