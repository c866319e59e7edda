package prepare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/mig"
)

// fakePartitions is the MIG layout of a node whose GPUs all can be partitioned.
type fakePartitions struct {
	mu        sync.Mutex
	instances map[inventory.Partition]mig.Instance
	made      int
	// failEnsure makes the next Ensures fail after they made the partition.
	failEnsure error
}

func (f *fakePartitions) Ensure(_ context.Context, p inventory.Partition) (mig.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.instances[p]; !ok {
		f.made++
		f.instances[p] = mig.Instance{GPUInstance: 7 + p.Start, UUID: fmt.Sprintf("MIG-%d", f.made)}
	}
	return f.instances[p], f.failEnsure
}

func (f *fakePartitions) Find(_ context.Context, p inventory.Partition) (mig.Instance, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	instance, ok := f.instances[p]
	return instance, ok, nil
}

func (f *fakePartitions) Remove(_ context.Context, p inventory.Partition) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.instances, p)
	return nil
}

func (f *fakePartitions) EnsureWhole(_ context.Context, gpu string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.instances {
		if p.GPU == gpu {
			return fmt.Errorf("GPU %s has the partition %s", gpu, p.Profile)
		}
	}
	return nil
}

func (f *fakePartitions) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for p, i := range f.instances {
		out = append(out, fmt.Sprintf("%s %s@%d %s", p.GPU, p.Profile, p.Start, i.UUID))
	}
	slices.Sort(out)
	return out
}

// fakeCompute knows which claims use the MPS daemon of which GPU.
type fakeCompute struct {
	mu      sync.Mutex
	users   map[string]bool // "<gpu> <claim>"
	failure error
}

func (f *fakeCompute) Acquire(_ context.Context, gpu string, claim types.UID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure == nil {
		f.users[gpu+" "+string(claim)] = true
	}
	return f.failure
}

func (f *fakeCompute) Release(_ context.Context, gpu string, claim types.UID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.users, gpu+" "+string(claim))
	return nil
}

func (f *fakeCompute) Retain(_ context.Context, keep func(string, types.UID) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for user := range f.users {
		var gpu, claim string
		if _, err := fmt.Sscan(user, &gpu, &claim); err != nil {
			return errors.New("bad user")
		}
		if !keep(gpu, types.UID(claim)) {
			delete(f.users, user)
		}
	}
	return nil
}

func mpsEdits(gpu string, m MPS) specs.ContainerEdits {
	return specs.ContainerEdits{Env: []string{fmt.Sprintf("MPS_OF=%s", gpu), fmt.Sprintf("PERCENT=%d", m.Percent)}}
}

func (f *fakeCompute) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.users))
}

// fakeTimeSlices remembers the interval of each GPU.
type fakeTimeSlices struct {
	mu sync.Mutex
	of map[string]string
}

func (f *fakeTimeSlices) Set(_ context.Context, gpu, interval string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[gpu] = interval
	return nil
}

func limitHook(gpu string, limit MemoryLimit) *specs.Hook {
	return &specs.Hook{HookName: "createRuntime", Args: []string{"limit", gpu, fmt.Sprint(limit.Soft), fmt.Sprint(limit.Hard)}}
}
