package solver

import (
	"sync"
	"sync/atomic"

	dracel "k8s.io/dynamic-resource-allocation/cel"
)

const (
	// cachedExpressions is how many compiled selectors are kept at most. kube-scheduler
	// keeps 10; a cluster has a few for each device class.
	cachedExpressions = 1024
	// cachedFilters and cachedContents bound the other tables. Each entry of the larger
	// one takes about a kilobyte.
	cachedFilters  = 4096
	cachedContents = 65536
	// cachedResults is how many results all contents remember at most, of about a
	// hundred bytes each.
	cachedResults = 1 << 19
)

// Cache keeps what does not depend on the state of a cluster: device contents, compiled
// selectors, and which contents they select. Devices that differ in nothing that a
// selector or a capacity request can see have one content, and each selector looks at a
// content once. A Cache may be used by many goroutines at once, loop after loop. Its
// memory is bounded: a full table is emptied.
type Cache struct {
	cel *dracel.Cache

	mu          sync.Mutex
	contents    map[string]*content
	expressions map[string]*expression
	filters     map[string]*filter
	shapes      map[string]uint64
	serial      uint64

	results atomic.Int64
	// epoch is counted up when there are too many results: contents then forget theirs.
	epoch atomic.Int64
}

// NewCache makes an empty cache.
func NewCache() *Cache {
	return &Cache{
		cel:         dracel.NewCache(cachedExpressions, dracel.Features{EnableConsumableCapacity: true}),
		contents:    make(map[string]*content),
		expressions: make(map[string]*expression),
		filters:     make(map[string]*filter),
		shapes:      make(map[string]uint64),
	}
}

// intern returns the table's entry for key, which create makes if there is none.
func intern[T any](c *Cache, table *map[string]T, limit int, key []byte, create func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry, ok := (*table)[string(key)]; ok {
		return entry
	}
	if len(*table) >= limit {
		*table = make(map[string]T)
	}
	entry := create()
	(*table)[string(key)] = entry
	return entry
}

// nextSerial numbers what is made. The caller holds the lock.
func (c *Cache) nextSerial() uint64 {
	c.serial++
	return c.serial
}

// count counts one more result that a content remembers.
func (c *Cache) count() {
	if c.results.Add(1) > cachedResults {
		c.results.Store(0)
		c.epoch.Add(1)
	}
}

// expression is one CEL expression, compiled when it is first needed.
type expression struct {
	text     string
	once     sync.Once
	compiled dracel.CompilationResult
}

func (c *Cache) expression(text string) *expression {
	return intern(c, &c.expressions, cachedExpressions, []byte(text), func() *expression {
		return &expression{text: text}
	})
}

func (e *expression) compile(c *Cache) *dracel.CompilationResult {
	e.once.Do(func() { e.compiled = c.cel.GetOrCompile(e.text) })
	return &e.compiled
}
