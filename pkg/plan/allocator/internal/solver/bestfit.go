package solver

import (
	"cmp"
	"slices"
)

// BestFit tries the candidates of each request in another order than kube-scheduler:
//
//  1. Devices that are shared already, the one first that has least left after this
//     request: a device that is opened stays open, and others stay whole.
//  2. Devices whose capacities are smaller: the mean of the device's capacities, each
//     as a fraction of the largest of that name among the candidates. A request gets
//     the smallest partition that suffices.
//  3. Devices that take less of their counters: the mean fraction over the counters.
//  4. Devices whose counters are used more: partitions gather on few GPUs.
//  5. Publishing order.
//
// The order is made when the search comes to a request, so the state counts in which
// the requests before it have their devices. It leaves nothing out.

// fitness orders candidates: less is tried first.
type fitness struct {
	candidate
	// open is 0 for a device that is shared already, and 1 for others.
	open int
	// left is the fraction that is left of an open device's tightest capacity.
	left float64
	// size and charges are fractions of the largest candidate and of the counters, and
	// free is the fraction of the counters that nobody uses yet.
	size, charges, free float64
}

// ordered are the candidates of an alternative in the order in which to try them.
func (s *search) ordered(a *alternative, candidates []candidate) []candidate {
	if a.all || len(candidates) < 2 {
		return candidates
	}
	largest := s.largest(candidates)
	order := make([]fitness, len(candidates))
	for i := range candidates {
		order[i] = s.fitnessOf(&candidates[i], largest)
	}
	slices.SortStableFunc(order, func(x, y fitness) int {
		return cmp.Or(
			cmp.Compare(x.open, y.open), cmp.Compare(x.left, y.left), cmp.Compare(x.size, y.size),
			cmp.Compare(x.charges, y.charges), cmp.Compare(x.free, y.free),
		)
	})
	result := make([]candidate, len(order))
	for i := range order {
		result[i] = order[i].candidate
	}
	return result
}

// largest are the largest capacities of the candidates, in units, by name.
func (s *search) largest(candidates []candidate) map[string]float64 {
	result := make(map[string]float64)
	for i := range candidates {
		for _, c := range s.device(candidates[i].ref).capacities {
			result[string(c.name)] = max(result[string(c.name)], c.value.float())
		}
	}
	return result
}

func (s *search) fitnessOf(c *candidate, largest map[string]float64) fitness {
	d := s.device(c.ref)
	f := fitness{candidate: *c, open: 1}
	if at := s.share[c.number]; d.shared && at > 0 && (s.shares[at-1].active > 0 || s.shares[at-1].others) {
		f.open, f.left = 0, 1
		for i := range c.consumed {
			left := d.capacities[i].value.minus(s.shares[at-1].used[i]).minus(c.consumed[i].amount)
			if c.consumed[i].positive() {
				f.left = min(f.left, fraction(left.float(), d.capacities[i].value.float()))
			}
		}
	}
	for _, capacity := range d.capacities {
		f.size += fraction(capacity.value.float(), largest[string(capacity.name)])
	}
	f.size = fraction(f.size, float64(len(d.capacities)))
	left := s.poolsOf[c.pool].left
	for _, charge := range d.charges {
		whole := d.pool.counters[charge.counter].value.float()
		f.charges += fraction(charge.amount.float(), whole)
		f.free += fraction(left[charge.counter].float(), whole)
	}
	f.charges = fraction(f.charges, float64(len(d.charges)))
	f.free = fraction(f.free, float64(len(d.charges)))
	return f
}

// fraction is 0 if there is no whole.
func fraction(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}
