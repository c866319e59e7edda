package solver

import (
	"encoding/binary"
	"math/big"
	"math/bits"

	"k8s.io/apimachinery/pkg/api/resource"
)

// amount is a quantity as a whole number of nanos (10^-9), the finest unit that a
// [resource.Quantity] of the API can have. Sums and comparisons are exact. Numbers
// below 2^120 nanos, which is 10^27 units, are kept in two words; there is no practical
// quantity that is not. Amounts are immutable.
type amount struct {
	hi int64
	lo uint64
	// huge is set for numbers beyond that, and then hi and lo are 0.
	huge *big.Int
}

const (
	nanos = 1_000_000_000
	// smallHi bounds hi so that the sum of two amounts cannot overflow.
	smallHi = 1 << 56
	// maxExponent caps powers of ten: 1e2000000000 parses as a quantity.
	maxExponent = 4096
)

// newAmount converts a quantity. What is finer than a nano, which no parsed quantity
// is, is rounded away from zero.
func newAmount(q resource.Quantity) amount {
	if v, ok := q.AsInt64(); ok {
		return amountOf(v)
	}
	q = q.DeepCopy()
	dec := q.AsDec()
	// The number is unscaled * 10^-scale.
	if dec.Scale() > 9 {
		q.RoundUp(resource.Nano)
		dec = q.AsDec()
	}
	exponent := min(9-int64(dec.Scale()), maxExponent)
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(exponent), nil)
	return normalize(power.Mul(power, dec.UnscaledBig()))
}

// amountOf is the amount of a whole number of units.
func amountOf(v int64) amount {
	if v < 0 {
		hi, lo := bits.Mul64(uint64(-v), nanos)
		return amount{hi: int64(hi), lo: lo}.negated()
	}
	hi, lo := bits.Mul64(uint64(v), nanos)
	return amount{hi: int64(hi), lo: lo}
}

func (a amount) negated() amount {
	if a.huge != nil {
		return normalize(new(big.Int).Neg(a.huge))
	}
	lo, borrow := bits.Sub64(0, a.lo, 0)
	return amount{hi: -a.hi - int64(borrow), lo: lo}
}

func (a amount) plus(b amount) amount {
	if a.huge == nil && b.huge == nil {
		lo, carry := bits.Add64(a.lo, b.lo, 0)
		sum := amount{hi: a.hi + b.hi + int64(carry), lo: lo}
		if sum.hi < smallHi && sum.hi >= -smallHi {
			return sum
		}
		return amount{huge: sum.bigInt()}
	}
	return normalize(new(big.Int).Add(a.bigInt(), b.bigInt()))
}

func (a amount) minus(b amount) amount { return a.plus(b.negated()) }

// cmp is -1, 0 or 1 if a is less than, equal to or more than b.
func (a amount) cmp(b amount) int {
	switch {
	case a.huge != nil || b.huge != nil:
		return a.bigInt().Cmp(b.bigInt())
	case a.hi < b.hi:
		return -1
	case a.hi > b.hi:
		return 1
	case a.lo < b.lo:
		return -1
	case a.lo > b.lo:
		return 1
	}
	return 0
}

func (a amount) less(b amount) bool { return a.cmp(b) < 0 }

func (a amount) positive() bool { return a.cmp(amount{}) > 0 }

// times is how often step fits, at most limit. A step that is not positive fits as
// often as one likes.
func (a amount) times(step amount, limit int) int {
	if !step.positive() {
		return limit
	}
	n := 0
	for sum := step; n < limit && !a.less(sum); n++ {
		sum = sum.plus(step)
	}
	return n
}

// float is the amount in units, approximately.
func (a amount) float() float64 {
	f, _ := new(big.Float).SetInt(a.bigInt()).Float64()
	return f / nanos
}

// appendTo appends an encoding that differs for amounts that differ.
func (a amount) appendTo(key []byte) []byte {
	if a.huge != nil {
		text := a.huge.Append(nil, 62)
		key = append(key, 1)
		key = binary.AppendUvarint(key, uint64(len(text)))
		return append(key, text...)
	}
	key = append(key, 0)
	key = binary.AppendVarint(key, a.hi)
	return binary.AppendUvarint(key, a.lo)
}

func (a amount) bigInt() *big.Int {
	if a.huge != nil {
		return a.huge
	}
	n := big.NewInt(a.hi)
	n.Lsh(n, 64)
	return n.Add(n, new(big.Int).SetUint64(a.lo))
}

// normalize takes over n.
func normalize(n *big.Int) amount {
	if n.BitLen() > 120 {
		return amount{huge: n}
	}
	lo := new(big.Int).And(n, new(big.Int).SetUint64(^uint64(0)))
	return amount{hi: new(big.Int).Rsh(n, 64).Int64(), lo: lo.Uint64()}
}
