package natural_test

import (
	"testing"

	"apportion.dev/apportion/internal/natural"
)

func TestNumbersCountByTheirValue(t *testing.T) {
	// Each name is before the next one.
	names := []string{"", "a", "a1", "a2", "a10", "a10-b9", "a10-b11", "b", "g5.2xlarge", "g5.12xlarge", "g6.xlarge", "x1", "x01"}
	for i, a := range names {
		for j, b := range names {
			got := natural.Compare(a, b)
			if i < j && got != -1 || i == j && got != 0 || i > j && got != 1 {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
}
