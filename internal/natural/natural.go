// Package natural orders names the way that people count.
package natural

import (
	"cmp"
	"strings"
)

// Compare orders names so that numbers in them count by their value: "web-2" is before
// "web-10". It is 0 only for names that are the same.
func Compare(a, b string) int {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		m, n := digits(a[i:]), digits(b[j:])
		if m == 0 || n == 0 {
			if a[i] != b[j] {
				return cmp.Compare(a[i], b[j])
			}
			i, j = i+1, j+1
			continue
		}
		// Without leading zeros the longer number is the larger.
		x, y := strings.TrimLeft(a[i:i+m], "0"), strings.TrimLeft(b[j:j+n], "0")
		if order := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); order != 0 {
			return order
		}
		i, j = i+m, j+n
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// digits is how many digits a text begins with.
func digits(text string) int {
	return len(text) - len(strings.TrimLeft(text, "0123456789"))
}
