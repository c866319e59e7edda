package solver

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func parsed(text string) amount { return newAmount(resource.MustParse(text)) }

func TestAmountsCompareExactly(t *testing.T) {
	// Each is more than the one before.
	ascending := []string{
		"-1e40", "-9223372036854775808", "-1", "-1n", "0", "1n", "1m", "999m", "1", "1.5",
		"1k", "1Ki", "1Gi", "1.5Gi", "9223372036854775807n", "9223372036854775807", "1e19", "1e27", "2e27", "1e40", "2e40", "1e5000",
	}
	for i, low := range ascending {
		for k, high := range ascending {
			want := 0
			if i < k {
				want = -1
			} else if i > k {
				want = 1
			}
			if got := parsed(low).cmp(parsed(high)); got != want {
				t.Errorf("%s against %s: %d, want %d", low, high, got, want)
			}
		}
	}
}

func TestAmountsAddUpExactly(t *testing.T) {
	for _, test := range []struct{ a, b, sum string }{
		{"1", "2", "3"},
		{"1", "-1", "0"},
		{"1.5Gi", "512Mi", "2Gi"},
		{"999999999n", "1n", "1"},
		{"9223372036854775807", "9223372036854775807", "18446744073709551614"},
		{"-9223372036854775808", "-1n", "-9223372036854775808.000000001"},
		{"1e27", "1e27", "2e27"}, // from two words to more
		{"1e40", "-1e40", "0"},
		{"1e40", "1n", "10000000000000000000000000000000000000000.000000001"},
	} {
		a, b, sum := parsed(test.a), parsed(test.b), parsed(test.sum)
		if got := a.plus(b); got.cmp(sum) != 0 || got.huge == nil && sum.huge == nil && got != sum {
			t.Errorf("%s + %s: %v, want %v", test.a, test.b, got, sum)
		}
		if got := sum.minus(b); got.cmp(a) != 0 {
			t.Errorf("%s - %s: %v, want %v", test.sum, test.b, got, a)
		}
		if string(sum.appendTo(nil)) != string(a.plus(b).appendTo(nil)) {
			t.Errorf("%s has two encodings", test.sum)
		}
	}
}

func TestAmountsFitSoManyTimes(t *testing.T) {
	for _, test := range []struct {
		whole, step string
		limit, want int
	}{
		{"10", "3", 9, 3},
		{"9", "3", 9, 3},
		{"9", "3", 2, 2},
		{"2", "3", 9, 0},
		{"-1", "3", 9, 0},
		{"2", "0", 9, 9},
		{"1e40", "4e39", 9, 2},
	} {
		if got := parsed(test.whole).times(parsed(test.step), test.limit); got != test.want {
			t.Errorf("%s in %s at most %d times: %d, want %d", test.step, test.whole, test.limit, got, test.want)
		}
	}
}

func TestReadingAnAmountLeavesTheQuantityAlone(t *testing.T) {
	q := resource.MustParse("1.5Gi")
	copied := q
	newAmount(q)
	if q != copied {
		t.Errorf("changed to %#v", q)
	}
}
