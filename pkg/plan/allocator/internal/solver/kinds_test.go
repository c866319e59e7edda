package solver_test

import (
	"testing"
)

// TestCasesAreOfAllKinds looks at what the generator makes: each verdict, and searches
// that must take back a choice, have a fair share.
func TestCasesAreOfAllKinds(t *testing.T) {
	const cases = 5000
	const takenBack = "allocates after a choice was taken back"
	s := newScheduler()
	count := map[string]int{}
	for seed := range uint64(cases) {
		c := Generate(Seeded(seed))
		answer := s.Allocate(c, c.Node)
		count[string(answer.Verdict)]++
		if answer.Verdict == Allocates && answer.Steps > straight(c, answer) {
			count[takenBack]++
		}
		for _, feature := range features(c, answer) {
			count[string(answer.Verdict)+" with "+feature]++
		}
	}
	for _, line := range sortedLines(count, cases) {
		t.Log(line)
	}
	for kind, percent := range map[string]int{"allocates": 10, "cannot": 10, "errors": 10, takenBack: 5} {
		if count[kind] < cases*percent/100 {
			t.Errorf("only %d of %d cases are of the kind %q, want %d %%", count[kind], cases, kind, percent)
		}
	}
	if count["cut"] > cases/1000 {
		t.Errorf("%d of %d cases are too large for the reference", count["cut"], cases)
	}
}
