package solver_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
)

// Verdict is what an allocator says of a case.
type Verdict string

const (
	// Allocates: all claims get devices.
	Allocates Verdict = "allocates"
	// Cannot: nothing is wrong, but they do not fit.
	Cannot Verdict = "cannot"
	// Errors: something is wrong with the input.
	Errors Verdict = "errors"
	// Cut: the search was given up.
	Cut Verdict = "cut"
)

// Answer is what an allocator says of a case, in a form in which answers of different
// allocators can be compared.
type Answer struct {
	Verdict Verdict
	// Err is set with Errors.
	Err error
	// Claims are the devices of each claim, with Allocates.
	Claims [][]Picked
	// Steps is how much searching it took, in the allocator's own unit.
	Steps int64
}

// Picked is one device, or share of one, that a claim gets.
type Picked struct {
	// Request is its name, or "request/subrequest".
	Request string
	Device  schedulerapi.DeviceID
	Admin   bool
	// Consumed is nil unless the device allows multiple allocations.
	Consumed map[resourceapi.QualifiedName]resource.Quantity
}

// Difference says in words where two answers differ, empty if nowhere. Steps and the
// texts of errors do not count.
func Difference(want, got Answer) string {
	if want.Verdict != got.Verdict {
		return fmt.Sprintf("verdict %q, want %q", got.Verdict, want.Verdict)
	}
	if len(want.Claims) != len(got.Claims) {
		return fmt.Sprintf("%d claims, want %d", len(got.Claims), len(want.Claims))
	}
	for i := range want.Claims {
		if len(want.Claims[i]) != len(got.Claims[i]) {
			return fmt.Sprintf("claim %d gets %d devices, want %d", i, len(got.Claims[i]), len(want.Claims[i]))
		}
		for j := range want.Claims[i] {
			if !want.Claims[i][j].equal(got.Claims[i][j]) {
				return fmt.Sprintf("claim %d gets as number %d %s, want %s", i, j, got.Claims[i][j], want.Claims[i][j])
			}
		}
	}
	return ""
}

func (p Picked) equal(other Picked) bool {
	return p.Request == other.Request && p.Device == other.Device && p.Admin == other.Admin &&
		maps.EqualFunc(p.Consumed, other.Consumed, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}

// String prints the answer for a reader.
func (a Answer) String() string {
	var b strings.Builder
	b.WriteString(string(a.Verdict))
	if a.Err != nil {
		fmt.Fprintf(&b, ": %v", a.Err)
	}
	for i, claim := range a.Claims {
		fmt.Fprintf(&b, "\n  claim %d:", i)
		for _, picked := range claim {
			fmt.Fprintf(&b, " [%s]", picked)
		}
	}
	return b.String()
}

func (p Picked) String() string {
	text := p.Request + " " + p.Device.String()
	if p.Admin {
		text += " admin"
	}
	for _, name := range slices.Sorted(maps.Keys(p.Consumed)) {
		quantity := p.Consumed[name]
		text += fmt.Sprintf(" %s=%s", name, quantity.String())
	}
	return text
}
