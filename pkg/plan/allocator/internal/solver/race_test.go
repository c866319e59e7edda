//go:build race

package solver_test

// The race detector makes a case ten times as long. All cases run without it, by
// "make test-scheduler".
const defaultCases = 4_000
