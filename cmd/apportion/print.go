package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"apportion.dev/apportion/internal/display"
)

// outputFlag is the value of -o.
type outputFlag struct {
	value   string
	allowed []string
}

func newOutputFlag(allowed ...string) *outputFlag {
	return &outputFlag{value: allowed[0], allowed: allowed}
}

func (f *outputFlag) String() string { return f.value }
func (f *outputFlag) Type() string   { return strings.Join(f.allowed, "|") }

func (f *outputFlag) Set(value string) error {
	if !slices.Contains(f.allowed, value) {
		return fmt.Errorf("known are: %s", strings.Join(f.allowed, ", "))
	}
	f.value = value
	return nil
}

// printDocuments prints values as documents of YAML.
func printDocuments[T any](out io.Writer, values []T) error {
	for i, value := range values {
		if i > 0 {
			if _, err := fmt.Fprintln(out, "---"); err != nil {
				return err
			}
		}
		if err := printObject(out, "yaml", value); err != nil {
			return err
		}
	}
	return nil
}

// mib writes bytes as MiB, the unit in which GPUs are known.
func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// Short names for what most files of this package print with.
var (
	visible       = display.Visible
	orDash        = display.OrDash
	printTable    = display.PrintTable
	printObject   = display.PrintObject
	printHarmless = display.PrintHarmless
	harmless      = display.Harmless
)
