//go:build !race

package solver_test

const defaultCases = 200_000
