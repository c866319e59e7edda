package fakegpu

import "slices"

// placement is a place among a GPU's memory slices, or among a GPU instance's
// compute slices.
type placement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

func (p placement) overlaps(q placement) bool {
	return p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
}

// allows says whether an instance of the profile may lie at place on an empty GPU.
func allows(p *Profile, place placement) bool {
	return place.Size == p.Placements.Size && slices.Contains(p.Placements.Starts, place.Start)
}

func combined(e, f Engines) Engines {
	return Engines{
		Copy: e.Copy + f.Copy, Decoder: e.Decoder + f.Decoder, Encoder: e.Encoder + f.Encoder,
		JPEG: e.JPEG + f.JPEG, OFA: e.OFA + f.OFA,
	}
}

func within(e, f Engines) bool {
	return e.Copy <= f.Copy && e.Decoder <= f.Decoder && e.Encoder <= f.Encoder &&
		e.JPEG <= f.JPEG && e.OFA <= f.OFA
}

// allEngines are those of the whole GPU: the most that any profile has of each.
func allEngines(m *MIG) Engines {
	var all Engines
	for _, p := range m.Profiles {
		all = Engines{
			Copy: max(all.Copy, p.Engines.Copy), Decoder: max(all.Decoder, p.Engines.Decoder),
			Encoder: max(all.Encoder, p.Engines.Encoder), JPEG: max(all.JPEG, p.Engines.JPEG),
			OFA: max(all.OFA, p.Engines.OFA),
		}
	}
	return all
}

// fits reports whether an instance of the profile can be made at place beside
// those that exist: memory slices are not shared, and the engines must suffice
// (which is why there is one "+me" instance).
func fits(p *Product, existing []gpuInstance, profile *Profile, place placement) bool {
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

// freePlacements are the places where an instance of the profile fits, by start.
func freePlacements(p *Product, existing []gpuInstance, profile *Profile) []placement {
	var free []placement
	for _, start := range profile.Placements.Starts {
		place := placement{Start: start, Size: profile.Placements.Size}
		if fits(p, existing, profile, place) {
			free = append(free, place)
		}
	}
	return free
}

// remaining is how many further instances of the profile fit.
func remaining(p *Product, existing []gpuInstance, profile *Profile) int {
	existing = slices.Clone(existing)
	n := 0
	for {
		free := freePlacements(p, existing, profile)
		if len(free) == 0 {
			return n
		}
		existing = append(existing, gpuInstance{Profile: profile.ID, Placement: free[0]})
		n++
	}
}

// instanceID is the id that the driver gives a GPU instance: places are numbered
// from the largest size down, so that on an A100 the whole is 0, the halves are 1
// and 2, the quarters 3 to 6 and the eighths 7 to 14.
func instanceID(m *MIG, place placement) int {
	return m.MemorySlices/place.Size - 1 + place.Start/place.Size
}

// computeProfile is a compute instance profile of a GPU instance with a number of
// compute slices. The rules are the same on all products.
type computeProfile struct {
	// ID is both the NVML_COMPUTE_INSTANCE_PROFILE_* constant and the id.
	ID              int
	Slices          int
	Multiprocessors int
	// Starts are the allowed placements, in compute slices.
	Starts []int
}

// computeSizes are the sizes of compute instances by their profile constants.
var computeSizes = []struct{ id, slices int }{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 7}}

// computeProfiles are the compute instance profiles of the profile.
func computeProfiles(p *Profile) []computeProfile {
	var profiles []computeProfile
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
		profiles = append(profiles, computeProfile{ID: size.id, Slices: size.slices, Multiprocessors: sms, Starts: starts})
	}
	return profiles
}

func findComputeProfile(p *Profile, id int) (computeProfile, bool) {
	for _, c := range computeProfiles(p) {
		if c.ID == id {
			return c, true
		}
	}
	return computeProfile{}, false
}

// freeComputePlacements are the places in the GPU instance where a compute
// instance of the profile fits, by start.
func (c computeProfile) freeComputePlacements(existing []computeInstance) []placement {
	var free []placement
	for _, start := range c.Starts {
		place := placement{Start: start, Size: c.Slices}
		taken := slices.ContainsFunc(existing, func(ci computeInstance) bool { return ci.Placement.overlaps(place) })
		if !taken {
			free = append(free, place)
		}
	}
	return free
}
