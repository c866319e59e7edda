package rules

import (
	"testing"

	"apportion.dev/apportion/pkg/plan/allocator/internal/scenario"
	"apportion.dev/apportion/pkg/plan/allocator/internal/scenario/kubescheduler"
)

// TestKubeSchedulerKeepsTheRules shows that the rules are not too strict: nothing that
// kube-scheduler allocates breaks one.
func TestKubeSchedulerKeepsTheRules(t *testing.T) {
	scheduler, checker := kubescheduler.New(), New()
	for seed := range uint64(5000) {
		c := scenario.Generate(scenario.Seeded(seed))
		answer := scheduler.Allocate(c, c.Node)
		if answer.Verdict != scenario.Allocates {
			continue
		}
		if broken := checker.Check(c, c.Node, answer); len(broken) > 0 {
			c = scenario.Shrink(c, func(c scenario.Case) bool {
				answer = scheduler.Allocate(c, c.Node)
				broken = checker.Check(c, c.Node, answer)
				return answer.Verdict == scenario.Allocates && len(broken) > 0
			})
			answer = scheduler.Allocate(c, c.Node)
			t.Fatalf("seed %d: %v\n%s\n%s", seed, checker.Check(c, c.Node, answer), answer, c.YAML())
		}
	}
}
