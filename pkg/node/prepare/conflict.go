package prepare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// othersOf returns the records of all claims but one.
func othersOf(records []*Record, uid types.UID) []*Record {
	return slices.DeleteFunc(slices.Clone(records), func(r *Record) bool { return r.Claim.UID == uid })
}

// excludes says whether two different devices of one GPU cannot be held at once.
func (d Device) excludes(e Device) bool {
	switch {
	case d.GPU != e.GPU || d.Device == e.Device:
		return false
	case d.Placement == nil || e.Placement == nil:
		return true
	}
	return d.Placement.overlaps(*e.Placement)
}

// conflict is the last line of defence against double use: it fails if what the
// claim uid wants is held by another claim or given to it twice, or if the shares
// of a device would add up to more than the device has. Devices with admin access
// hold nothing. A whole GPU and a partition of it exclude each other, as do
// partitions that share a memory slice.
func conflict(others []*Record, uid types.UID, devices []Device) error {
	type holding struct {
		Device
		claim ClaimRef
	}
	held := map[string][]holding{}
	onGPU := map[string][]holding{}
	hold := func(d Device, claim ClaimRef) {
		held[d.Device] = append(held[d.Device], holding{d, claim})
		onGPU[d.GPU] = append(onGPU[d.GPU], holding{d, claim})
	}
	for _, r := range others {
		for _, d := range r.Devices {
			if !d.AdminAccess {
				hold(d, r.Claim)
			}
		}
	}
	for _, d := range devices {
		if d.AdminAccess {
			continue
		}
		for _, h := range onGPU[d.GPU] {
			if h.Device.excludes(d) {
				return fmt.Errorf("device %s overlaps %s, which claim %s (uid %s) has; it is free once that claim's last pod has ended", d.Device, h.Device.Device, h.claim, h.claim.UID)
			}
		}
		used := map[string]resource.Quantity{}
		var holders []string
		for _, h := range held[d.Device] {
			whole := h.ShareID == nil || d.ShareID == nil || *h.ShareID == *d.ShareID
			if whole && h.claim.UID == uid {
				return fmt.Errorf("the claim was allocated device %s twice; delete the pod so that it is scheduled anew", d.Device)
			}
			if whole {
				return fmt.Errorf("device %s is in use by claim %s (uid %s); it is free once that claim's last pod has ended", d.Device, h.claim, h.claim.UID)
			}
			if err := add(used, h.Consumed); err != nil {
				return fmt.Errorf("claim %s: %w", h.claim, err)
			}
			if h.claim.UID != uid {
				holders = append(holders, h.claim.String())
			}
		}
		if err := add(used, d.Consumed); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(used)) {
			total, known := d.planned.target.Capacity[name]
			if sum := used[name]; known && sum.Cmp(total) > 0 {
				return fmt.Errorf("device %s has %s of %s, but with this claim %s would be in use; other claims that hold it: %s", d.Device, total.String(), name, sum.String(), cmp.Or(strings.Join(holders, ", "), "none"))
			}
		}
		// A device that the claim has twice counts twice.
		hold(d, ClaimRef{UID: uid})
	}
	return nil
}

func add(sum map[string]resource.Quantity, consumed map[string]string) error {
	for name, value := range consumed {
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("consumed %s %q: %w", name, value, err)
		}
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
	return nil
}

// incompatible fails if another claim asks the GPU for another setting, of which
// there is one per GPU.
func incompatible(others []*Record, devices []Device) error {
	for _, d := range devices {
		if d.TimeSlice == "" {
			continue
		}
		for _, r := range others {
			for _, o := range r.Devices {
				if o.GPU == d.GPU && o.TimeSlice != "" && o.TimeSlice != d.TimeSlice {
					return fmt.Errorf("request %s asks GPU %s for the time slice %s, but claim %s, which is on the same GPU, for %s; ask for the same, or for a GPU of your own", d.Request, d.GPU, d.TimeSlice, r.Claim, o.TimeSlice)
				}
			}
		}
	}
	for i, d := range devices {
		for _, e := range devices[:i] {
			if d.GPU == e.GPU && d.TimeSlice != "" && e.TimeSlice != "" && d.TimeSlice != e.TimeSlice {
				return fmt.Errorf("requests %s and %s ask the same GPU %s for the time slices %s and %s; ask for the same", e.Request, d.Request, d.GPU, e.TimeSlice, d.TimeSlice)
			}
		}
	}
	return nil
}
