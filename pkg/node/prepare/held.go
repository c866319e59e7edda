package prepare

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/mig"
)

// HeldPartition is a partition that claims made, as their records say.
type HeldPartition struct {
	inventory.Partition
	// Instance is nil while the partition is being made or removed.
	Instance *mig.Instance
}

// Held lists the partitions made on demand, also those that are being made or
// undone, by GPU and placement.
func (p *Preparer) Held() ([]HeldPartition, error) {
	records, err := p.store.list()
	if err != nil {
		return nil, err
	}
	made := map[inventory.Partition]*mig.Instance{}
	for _, r := range records {
		for _, d := range r.Devices {
			if !d.onDemand() || made[d.partition()] != nil {
				continue
			}
			made[d.partition()] = nil
			if r.State == Prepared && !p.undoing.has(r.Claim.UID) {
				made[d.partition()] = d.MIG
			}
		}
	}
	var out []HeldPartition
	for partition, instance := range made {
		out = append(out, HeldPartition{partition, instance})
	}
	slices.SortFunc(out, func(a, b HeldPartition) int {
		return cmp.Or(strings.Compare(a.GPU, b.GPU), cmp.Compare(a.Start, b.Start), strings.Compare(a.Profile, b.Profile))
	})
	return out, nil
}

// claimSet is a set of claims for concurrent use.
type claimSet struct {
	mu     sync.Mutex
	claims map[types.UID]bool
}

func (s *claimSet) add(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims == nil {
		s.claims = map[types.UID]bool{}
	}
	s.claims[uid] = true
}

func (s *claimSet) remove(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, uid)
}

func (s *claimSet) has(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[uid]
}
