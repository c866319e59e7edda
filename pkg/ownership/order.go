package ownership

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/types"
)

// Key tells the owners of a snapshot apart.
type Key struct {
	Driver   string    `json:"driver"`
	Pool     string    `json:"pool"`
	Device   string    `json:"device"`
	ShareID  types.UID `json:"shareID,omitempty"`
	ClaimUID types.UID `json:"claimUID"`
	Request  string    `json:"request"`
}

// Key is what tells the owner from all others.
func (o *Owner) Key() Key {
	return Key{
		Driver: o.Device.Driver, Pool: o.Device.Pool, Device: o.Device.Name, ShareID: o.Device.ShareID,
		ClaimUID: o.Claim.UID, Request: o.Request,
	}
}

// Sort puts owners into the order of a snapshot, and their consumers by namespace,
// name and UID. The consumers' containers keep the pod's order.
func Sort(owners []Owner) {
	for i := range owners {
		if consumers := owners[i].Consumers; !slices.IsSortedFunc(consumers, compareConsumers) {
			// Others may have the slice, so it stays as it is.
			owners[i].Consumers = slices.SortedStableFunc(slices.Values(consumers), compareConsumers)
		}
	}
	// Owners are large: only pointers are moved while sorting.
	unsorted, order := slices.Clone(owners), make([]*Owner, len(owners))
	for i := range unsorted {
		order[i] = &unsorted[i]
	}
	slices.SortFunc(order, compareOwners)
	for i, o := range order {
		owners[i] = *o
	}
}

// inOrder takes their consumers from owners, and puts them into the order of a snapshot, the
// first of each key. The result is never nil.
func inOrder(owners []Owner) []Owner {
	if owners == nil {
		return []Owner{}
	}
	for i := range owners {
		o := &owners[i]
		o.Consumers = nil
		o.Since = o.Since.UTC().Round(0)
	}
	Sort(owners)
	return compact(owners)
}

// compareOwners is a total order: only equal owners compare as equal.
func compareOwners(a, b *Owner) int {
	if c := compareNames(a, b); c != 0 {
		return c
	}
	if a.EqualTo(b) {
		return 0
	}
	return compareContent(a, b)
}

// compareNames orders owners by what tells those of an allocation apart.
func compareNames(a, b *Owner) int {
	return cmp.Or(
		cmp.Compare(a.Device.Driver, b.Device.Driver), cmp.Compare(a.Device.Pool, b.Device.Pool),
		cmp.Compare(a.Device.Name, b.Device.Name), cmp.Compare(a.Device.ShareID, b.Device.ShareID),
		cmp.Compare(a.Claim.Namespace, b.Claim.Namespace), cmp.Compare(a.Claim.Name, b.Claim.Name),
		cmp.Compare(a.Claim.UID, b.Claim.UID), cmp.Compare(a.Request, b.Request))
}

// compareContent orders different owners of one key, which no allocation has. Such
// input gets an answer that does not depend on its order, too.
func compareContent(a, b *Owner) int {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	if errX != nil || errY != nil {
		// A time or number that JSON does not have.
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Device.Fraction, b.Device.Fraction))
	}
	return bytes.Compare(x, y)
}

func compareConsumers(a, b Consumer) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// compact leaves the first owner of each key of sorted owners.
func compact(owners []Owner) []Owner {
	return slices.CompactFunc(owners, func(a, b Owner) bool { return a.Key() == b.Key() })
}

// same compares what is the same in JSON: lists and maps that are nil or empty, and times
// in any zone.
var same = conversion.EqualitiesOrDie(time.Time.Equal)

// Equal says whether two lists of owners say the same in the same order, so that
// they are the same in JSON.
func Equal(a, b []Owner) bool { return same.DeepEqual(a, b) }

// EqualTo says whether two owners say the same.
func (o *Owner) EqualTo(other *Owner) bool { return same.DeepEqual(o, other) }

// Diff is what leads from one list of owners to another: those of the second that are
// new or differ, in its order, and the keys of those that are gone, in the order of
// the first.
func Diff(before, after []Owner) (changed []Owner, removed []Key) {
	old := make(map[Key]*Owner, len(before))
	for i := range before {
		old[before[i].Key()] = &before[i]
	}
	kept := make(map[Key]bool, len(after))
	for i := range after {
		key := after[i].Key()
		kept[key] = true
		if o, ok := old[key]; !ok || !o.EqualTo(&after[i]) {
			changed = append(changed, after[i])
		}
	}
	for i := range before {
		if key := before[i].Key(); !kept[key] {
			removed = append(removed, key)
		}
	}
	return changed, removed
}

// Apply does to a list of owners what Diff found out. The result is sorted and never
// nil; before stays as it is. An owner that is both removed and changed is there.
func Apply(before, changed []Owner, removed []Key) []Owner {
	replaced := make(map[Key]bool, len(changed)+len(removed))
	for _, key := range removed {
		replaced[key] = true
	}
	for i := range changed {
		replaced[changed[i].Key()] = true
	}
	result := make([]Owner, 0, len(before)+len(changed))
	for i := range before {
		if !replaced[before[i].Key()] {
			result = append(result, before[i])
		}
	}
	result = append(result, changed...)
	Sort(result)
	return compact(result)
}
