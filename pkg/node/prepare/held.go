package prepare

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/node/mig"
)

// HeldPartition is a partition that claims made, as their records say.
type HeldPartition struct {
	// Device is its name, GPU the UUID of the physical GPU it lies on.
	Device, GPU string
	Placement   Placement
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
	byDevice := map[string]HeldPartition{}
	for _, r := range records {
		for _, d := range r.Devices {
			if !d.onDemand() || byDevice[d.Device].Instance != nil {
				continue
			}
			held := HeldPartition{Device: d.Device, GPU: d.GPU, Placement: *d.Placement}
			if r.State == Prepared && !p.undoing.has(r.Claim.UID) {
				held.Instance = d.MIG
			}
			byDevice[d.Device] = held
		}
	}
	var out []HeldPartition
	for _, held := range byDevice {
		out = append(out, held)
	}
	slices.SortFunc(out, func(a, b HeldPartition) int {
		return cmp.Or(strings.Compare(a.GPU, b.GPU), cmp.Compare(a.Placement.Start, b.Placement.Start), strings.Compare(a.Device, b.Device))
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
