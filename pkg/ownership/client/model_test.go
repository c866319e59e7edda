package client

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/server"
)

// at is a generation of a process.
type at struct {
	instance   string
	generation uint64
}

// model is what was set, as JSON, by who counts generations on its own.
type model struct {
	mu    sync.Mutex
	moved *sync.Cond
	sets  map[at]string
	// latest is the last set, seen what each watcher was told last.
	latest at
	seen   []at
}

func newModel(watchers int) *model {
	m := &model{sets: map[at]string{}, seen: make([]at, watchers)}
	m.moved = sync.NewCond(&m.mu)
	return m
}

// set takes note of owners, which are in order, before they are published.
func (m *model) set(t *testing.T, instance string, owners []ownership.Owner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data := asJSON(t, owners)
	next := at{instance, 1}
	if m.latest.instance == instance {
		if m.sets[m.latest] == data {
			return
		}
		next.generation = m.latest.generation + 1
	}
	m.sets[next], m.latest = data, next
}

// told checks what a watcher was told.
func (m *model) told(t *testing.T, watcher int, s ownership.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := at{s.Instance, s.Generation}
	if got, want := asJSON(t, s.Owners), m.sets[now]; got != want {
		t.Errorf("watcher %d: generation %d is\n%s\nwant\n%s", watcher, s.Generation, got, want)
	}
	if before := m.seen[watcher]; before.instance == now.instance && before.generation >= now.generation {
		t.Errorf("watcher %d: generation %d follows %d", watcher, now.generation, before.generation)
	}
	m.seen[watcher] = now
	m.moved.Broadcast()
}

// wait until all watchers were told the latest set.
func (m *model) wait() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for slices.ContainsFunc(m.seen, func(seen at) bool { return seen != m.latest }) {
		m.moved.Wait()
	}
}

func asJSON(t *testing.T, owners []ownership.Owner) string {
	if owners == nil {
		owners = []ownership.Owner{}
	}
	data, err := json.Marshal(owners)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

// randomOwners of 8 GPUs, in order: each is free, or one of 3 claims holds it for one
// of 2 pods.
func randomOwners(random *rand.Rand, before []ownership.Owner) []ownership.Owner {
	var result []ownership.Owner
	for i := range 8 {
		device := fmt.Sprint("gpu-", i)
		if random.IntN(4) > 0 {
			// As before.
			if at := slices.IndexFunc(before, func(o ownership.Owner) bool { return o.Device.Name == device }); at >= 0 {
				result = append(result, before[at])
			}
			continue
		}
		if random.IntN(3) > 0 {
			result = append(result, owner(device, fmt.Sprint(i, random.IntN(3)), fmt.Sprint("pod-", random.IntN(2))))
		}
	}
	return result
}

// Watchers of all kinds see exactly what was set, in order, through restarts of the
// server.
func TestManyWatchersSeeWhatIsSet(t *testing.T) {
	const (
		watchers = 12
		servers  = 3
		sets     = 150
	)
	socket := socketPath(t)
	m := newModel(watchers)
	ctx, cancel := context.WithCancel(t.Context())
	// The slow ones take nothing while the first server changes.
	slow := make(chan struct{})
	release := sync.OnceFunc(func() { close(slow) })
	var running sync.WaitGroup
	for i := range watchers {
		running.Go(func() {
			c := New(socket)
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for ctx.Err() == nil {
				// Of every three watchers one is slow, and one stops now and then
				// and goes on with what it knows.
				ctx, stop := context.WithCancel(ctx)
				c.Run(ctx, func(s ownership.Snapshot) {
					m.told(t, i, s)
					switch {
					case i%3 == 1:
						<-slow
					case i%3 == 2 && random.IntN(20) == 0:
						stop()
					}
				})
				stop()
			}
		})
	}

	random := rand.New(rand.NewPCG(2, 3))
	var now []ownership.Owner
	for range servers {
		s := server.New()
		stop := serve(t, s, socket)
		instance := s.Snapshot().Instance
		for range sets {
			now = randomOwners(random, now)
			m.set(t, instance, now)
			shuffled := slices.Clone(now)
			random.Shuffle(len(shuffled), func(a, b int) { shuffled[a], shuffled[b] = shuffled[b], shuffled[a] })
			s.Set(shuffled, "", noon)
		}
		if len(m.sets) < sets/2 {
			t.Fatalf("%d generations", len(m.sets))
		}
		release()
		m.wait()
		stop()
	}
	cancel()
	running.Wait()
}
