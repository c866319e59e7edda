package solver_test

import (
	"testing"
)

// TestKubeSchedulerKeepsTheRules shows that the rules are not too strict: nothing that
// kube-scheduler allocates breaks one.
func TestKubeSchedulerKeepsTheRules(t *testing.T) {
	scheduler, checker := newScheduler(), newChecker()
	for seed := range uint64(5000) {
		c := Generate(Seeded(seed))
		answer := scheduler.Allocate(c, c.Node)
		if answer.Verdict != Allocates {
			continue
		}
		if broken := checker.Check(c, c.Node, answer); len(broken) > 0 {
			c = Shrink(c, func(c Case) bool {
				answer = scheduler.Allocate(c, c.Node)
				broken = checker.Check(c, c.Node, answer)
				return answer.Verdict == Allocates && len(broken) > 0
			})
			answer = scheduler.Allocate(c, c.Node)
			t.Fatalf("seed %d: %v\n%s\n%s", seed, checker.Check(c, c.Node, answer), answer, c.YAML())
		}
	}
}
