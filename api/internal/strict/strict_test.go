package strict

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// What the pattern lets through, the parser takes, and quickly; see the rows of
// TestQuantities that it must not let through.
func TestQuantities(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "1": true, "-1": true, "+1Gi": true, "1.5Gi": true, "1.": true, ".5": true, "10G": true,
		"1e9": true, "1E9": true, "1e-99": true, "1.5e+99": true, "1E": true, "100m": true, "1n": true, "1u": true,
		"99999999999999999999999999999999e99": true, "-99999999999999999999999999999999e-99": true,

		"": false, "G": false, "1GB": false, "1gi": false, "1 Gi": false, " 1Gi": false, "1Gi\n": false, "1ki": false,
		"1e": false, ".": false, "0x10": false, "NaN": false, "Inf": false, "--1": false, "1,5Gi": false, "true": false,
		"1e100": false, "1e2000000000": false, "1e-2000000000": false, "9999999999999999999e2000000000": false,
	} {
		t.Run(text, func(t *testing.T) {
			if got := quantity.MatchString(text); got != want {
				t.Fatalf("matches: %v, want %v", got, want)
			}
			if !want {
				return
			}
			if _, err := resource.ParseQuantity(text); err != nil {
				t.Errorf("Kubernetes does not parse it: %v", err)
			}
		})
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{strings.Repeat("a", 500), strings.Repeat("a", 500)},
		{strings.Repeat("a", 501), strings.Repeat("a", 500) + "..."},
		{"a" + strings.Repeat("é", 400), "a" + strings.Repeat("é", 249) + "..."}, // é is two bytes
	} {
		if got := Clip(test.in); got != test.want {
			t.Errorf("Clip(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}
