//go:build race

package solver_test

// The race detector makes a case ten times as long. All cases run without it, by
// "make differential".
const defaultCases = 20_000
