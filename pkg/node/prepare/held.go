package prepare

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/mig"
)

// HeldPartition is a partition that was made for claims, as their records say.
type HeldPartition struct {
	inventory.Partition
	// Instance is nil while the partition is being made or removed.
	Instance *mig.Instance
}

// Held lists the partitions made on demand, including those that are being made or
// removed, by GPU and placement.
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
			if _, undoing := p.undoing.Load(r.Claim.UID); r.State == Prepared && !undoing {
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

// releases notes the partitions of claims whose records are removed while somebody
// wants to know.
type releases struct {
	mu     sync.Mutex
	noting bool
	noted  []HeldPartition
}

// NoteReleased begins to note the partitions whose claims are unprepared. The function
// ends it and returns them, without instances. Between two calls of Held a partition
// may be made for a claim and removed again: neither has it, and it was a claim's all
// the same. One caller at a time.
func (p *Preparer) NoteReleased() (released func() []HeldPartition) {
	r := &p.releases
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noting, r.noted = true, nil
	return func() []HeldPartition {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.noting = false
		return r.noted
	}
}

// note is called before a record is removed.
func (r *releases) note(record *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.noting {
		return
	}
	for _, d := range record.Devices {
		if d.onDemand() {
			r.noted = append(r.noted, HeldPartition{Partition: d.partition()})
		}
	}
}
