package truth

import (
	"slices"
	"time"

	"apportion.dev/apportion/e2e/promtest"
)

// mebibyte is the unit of DCGM's memory fields.
const mebibyte = 1 << 20

// Memory looks at apportion_share_memory_used_bytes and DCGM_FI_DEV_FB_USED: each use
// has what its container has, and those of a device add up to what the device has.
func (t *Target) Memory(used, device []promtest.Series) Result {
	var r Result
	parts, sums := map[string]map[int64]float64{}, map[Device]map[int64]float64{}
	for _, s := range used {
		signature, d := sign(s.Labels, nil), deviceOf(s.Labels)
		if parts[signature] == nil {
			parts[signature] = map[int64]float64{}
		}
		if sums[d] == nil {
			sums[d] = map[int64]float64{}
		}
		for _, sample := range s.Samples {
			if !t.canUse(s.Labels, sample.Time) {
				r.problem(sample.Time, "there is memory of %s, which cannot be", describe(s.Labels))
			}
			parts[signature][sample.Time.UnixMilli()] = sample.Value
			sums[d][sample.Time.UnixMilli()] += sample.Value
		}
	}
	for i := range t.Uses {
		u := &t.Uses[i]
		for _, at := range t.Scrapes {
			if !u.Used.surely(t.window(at)) {
				continue
			}
			r.Sure++
			if bytes, there := parts[sign(u.Labels, nil)][at.UnixMilli()]; !there || bytes != float64(u.Bytes) {
				r.problem(at, "memory of %s is %.0f bytes, want %d", describe(u.Labels), bytes, u.Bytes)
			}
		}
	}
	for _, s := range device {
		d := deviceOf(s.Labels)
		uses := t.on(d)
		for _, sample := range s.Samples {
			sure, possible := t.users(uses, sample.Time)
			if len(sure) == 0 || len(sure) != len(possible) {
				continue
			}
			r.Sure++
			if sum, want := sums[d][sample.Time.UnixMilli()], sample.Value*mebibyte; sum != want {
				r.problem(sample.Time, "the users of %v have %.0f bytes of memory, the device %.0f", d, sum, want)
			}
		}
	}
	slices.Sort(r.Problems)
	return r
}

func (t *Target) canUse(labels map[string]string, at time.Time) bool {
	from, to := t.window(at)
	return slices.ContainsFunc(t.Uses, func(u Use) bool {
		return sign(u.Labels, nil) == sign(labels, nil) && u.Used.possibly(from, to)
	})
}

// Growth is by how much the counters of each GPU, by UUID, grew from the first scrape
// on. One that was not there at first began at 0, and one that is not there any more
// keeps its last value. One that went down is a problem.
func (t *Target) Growth(series []promtest.Series) (grew map[string]float64, r Result) {
	grew = map[string]float64{}
	for _, s := range series {
		before := 0.0
		for i, sample := range s.Samples {
			if i == 0 && len(t.Scrapes) > 0 && sample.Time.Equal(t.Scrapes[0]) {
				before = sample.Value
			}
			if sample.Value < before {
				r.problem(sample.Time, "%s of %s went down", s.Labels["__name__"], describe(s.Labels))
			}
			grew[s.Labels["UUID"]] += sample.Value - before
			before = sample.Value
		}
	}
	slices.Sort(r.Problems)
	return grew, r
}
