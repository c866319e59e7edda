// Package migrules are the NVIDIA driver's rules for MIG: where on a GPU its instances may
// lie, and how many fit beside each other.
package migrules

import (
	"slices"

	"apportion.dev/apportion/pkg/gpu/products"
)

// Placement is a place among a GPU's memory slices, or among a GPU instance's
// compute slices.
type Placement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

func (p Placement) overlaps(q Placement) bool {
	return p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
}

// Instance is a MIG GPU instance.
type Instance struct {
	ID int `json:"id"`
	// Profile is the profile's ID.
	Profile   int               `json:"profile"`
	Placement Placement         `json:"placement"`
	Compute   []ComputeInstance `json:"compute,omitempty"`
}

// ComputeInstance is a MIG compute instance.
type ComputeInstance struct {
	ID        int       `json:"id"`
	Profile   int       `json:"profile"`
	Placement Placement `json:"placement"`
}

// ComputeInstance finds a compute instance by id.
func (gi *Instance) ComputeInstance(id int) (*ComputeInstance, bool) {
	for i := range gi.Compute {
		if gi.Compute[i].ID == id {
			return &gi.Compute[i], true
		}
	}
	return nil, false
}

// Allows says whether an instance of the profile may lie at place on an empty GPU.
func Allows(p *products.Profile, place Placement) bool {
	return place.Size == p.Placements.Size && slices.Contains(p.Placements.Starts, place.Start)
}

func combined(e, f products.Engines) products.Engines {
	return products.Engines{
		Copy: e.Copy + f.Copy, Decoder: e.Decoder + f.Decoder, Encoder: e.Encoder + f.Encoder,
		JPEG: e.JPEG + f.JPEG, OFA: e.OFA + f.OFA,
	}
}

func within(e, f products.Engines) bool {
	return e.Copy <= f.Copy && e.Decoder <= f.Decoder && e.Encoder <= f.Encoder &&
		e.JPEG <= f.JPEG && e.OFA <= f.OFA
}

// allEngines are those of the whole GPU: the most that any profile has of each.
func allEngines(m *products.MIG) products.Engines {
	var all products.Engines
	for _, p := range m.Profiles {
		all = products.Engines{
			Copy: max(all.Copy, p.Engines.Copy), Decoder: max(all.Decoder, p.Engines.Decoder),
			Encoder: max(all.Encoder, p.Engines.Encoder), JPEG: max(all.JPEG, p.Engines.JPEG),
			OFA: max(all.OFA, p.Engines.OFA),
		}
	}
	return all
}

// Fits reports whether an instance of the profile can be made at place beside
// those that exist: memory slices are not shared, and the engines must suffice
// (which is why there is one "+me" instance).
func Fits(p *products.Product, existing []Instance, profile *products.Profile, place Placement) bool {
	engines := profile.Engines
	same := 0
	for _, gi := range existing {
		if gi.Placement.overlaps(place) {
			return false
		}
		other, ok := p.ProfileByID(gi.Profile)
		if !ok {
			continue
		}
		engines = combined(engines, other.Engines)
		if other.ID == profile.ID {
			same++
		}
	}
	return same < profile.MaxInstances && within(engines, allEngines(p.MIG))
}

// FreePlacements are the places where an instance of the profile fits, by start.
func FreePlacements(p *products.Product, existing []Instance, profile *products.Profile) []Placement {
	var free []Placement
	for _, start := range profile.Placements.Starts {
		place := Placement{Start: start, Size: profile.Placements.Size}
		if Fits(p, existing, profile, place) {
			free = append(free, place)
		}
	}
	return free
}

// Remaining is how many further instances of the profile fit.
func Remaining(p *products.Product, existing []Instance, profile *products.Profile) int {
	existing = slices.Clone(existing)
	n := 0
	for {
		free := FreePlacements(p, existing, profile)
		if len(free) == 0 {
			return n
		}
		existing = append(existing, Instance{Profile: profile.ID, Placement: free[0]})
		n++
	}
}

// InstanceID is the id that the driver gives a GPU instance: places are numbered
// from the largest size down, so that on an A100 the whole is 0, the halves are 1
// and 2, the quarters 3 to 6 and the eighths 7 to 14.
func InstanceID(m *products.MIG, place Placement) int {
	return m.MemorySlices/place.Size - 1 + place.Start/place.Size
}

// ComputeProfile is a compute instance profile of a GPU instance with a number of
// compute slices. The rules are the same on all products.
type ComputeProfile struct {
	// ID is both the NVML_COMPUTE_INSTANCE_PROFILE_* constant and the id.
	ID              int
	Slices          int
	Multiprocessors int
	// Starts are the allowed placements, in compute slices.
	Starts []int
}

// computeSizes are the sizes of compute instances by their profile constants.
var computeSizes = []struct{ id, slices int }{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 7}}

// ComputeProfiles are the compute instance profiles of the profile.
func ComputeProfiles(p *products.Profile) []ComputeProfile {
	var profiles []ComputeProfile
	for _, size := range computeSizes {
		if size.slices > p.Slices {
			continue
		}
		// A part larger than half of the instance exists only as 4 of 7 and as
		// 2 of 3; 3 of 4 does not.
		if p.Slices == 4 && size.slices == 3 {
			continue
		}
		sms := p.Multiprocessors
		if size.slices < p.Slices {
			sms = p.Multiprocessors / p.Slices * size.slices
		}
		// Starts are multiples of the size; a 3 counts as a 4.
		step := size.slices
		if step == 3 {
			step = 4
		}
		var starts []int
		for start := 0; start+size.slices <= p.Slices; start += step {
			starts = append(starts, start)
		}
		profiles = append(profiles, ComputeProfile{ID: size.id, Slices: size.slices, Multiprocessors: sms, Starts: starts})
	}
	return profiles
}

func FindComputeProfile(p *products.Profile, id int) (ComputeProfile, bool) {
	for _, c := range ComputeProfiles(p) {
		if c.ID == id {
			return c, true
		}
	}
	return ComputeProfile{}, false
}

// FreePlacements are the places in the GPU instance where a compute
// instance of the profile fits, by start.
func (c ComputeProfile) FreePlacements(existing []ComputeInstance) []Placement {
	var free []Placement
	for _, start := range c.Starts {
		place := Placement{Start: start, Size: c.Slices}
		taken := slices.ContainsFunc(existing, func(ci ComputeInstance) bool { return ci.Placement.overlaps(place) })
		if !taken {
			free = append(free, place)
		}
	}
	return free
}
