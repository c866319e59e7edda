package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
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

// printObject prints a value as JSON or YAML.
func printObject(out io.Writer, format string, value any) error {
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	data, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("print as YAML: %w", err)
	}
	_, err = out.Write(data)
	return err
}

// printTable prints rows in columns; the first row is the heading.
func printTable(out io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// mib writes bytes as MiB, the unit in which GPUs are known.
func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// orDash stands in for nothing in a table.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
