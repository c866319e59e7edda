package kubescheduler

import (
	"testing"

	"apportion.dev/apportion/pkg/allocator/internal/scenario"
)

// TestCasesAreOfAllKinds looks at what the generator makes: each verdict, and searches
// that must take back a choice, have a fair share.
func TestCasesAreOfAllKinds(t *testing.T) {
	const cases = 5000
	s := New()
	count := map[string]int{}
	for seed := range uint64(cases) {
		c := scenario.Generate(scenario.Seeded(seed))
		answer := s.Allocate(c, c.Node)
		count[string(answer.Verdict)]++
		if answer.Verdict == scenario.Allocates {
			if answer.Steps > straight(c, answer) {
				count["allocates after a choice was taken back"]++
			}
		}
		for _, feature := range features(c, answer) {
			count[string(answer.Verdict)+" with "+feature]++
		}
	}
	for _, line := range sortedLines(count, cases) {
		t.Log(line)
	}
	for _, kind := range []string{"allocates", "cannot", "errors", "allocates after a choice was taken back"} {
		least := cases / 10
		if kind == "allocates after a choice was taken back" {
			least = cases / 50
		}
		if count[kind] < least {
			t.Errorf("only %d of %d cases are of the kind %q, want at least %d", count[kind], cases, kind, least)
		}
	}
	if count["cut"] > cases/1000 {
		t.Errorf("%d of %d cases are too large for the reference", count["cut"], cases)
	}
}
