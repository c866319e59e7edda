package gpumetrics

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ParseCSV reads a list of fields as dcgm-exporter has them: lines of the form "name,
// type, help", with comments from # on. It returns the names of known fields and of
// others, both in the order of the file and once each. The type and the help are the
// file's own and not used: known fields have theirs. A line with fewer than three
// entries is an error that names it.
func ParseCSV(from io.Reader) (known, unknown []string, err error) {
	file, err := io.ReadAll(from)
	if err != nil {
		return nil, nil, fmt.Errorf("read the list of fields: %w", err)
	}
	number := 0
	for line := range strings.Lines(string(file)) {
		number++
		entries, err := parseLine(line)
		if errors.Is(err, io.EOF) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the list of fields: line %d: %w", number, err)
		}
		name := strings.TrimSpace(entries[0])
		switch {
		case strings.HasPrefix(name, "#") || name == "" && len(entries) == 1:
			continue
		case name == "" || len(entries) < 3:
			return nil, nil, fmt.Errorf("read the list of fields: line %d is not of the form \"name, type, help\"", number)
		}
		list := &unknown
		if _, ok := lookup(name); ok {
			list = &known
		}
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	return known, unknown, nil
}

// parseLine gives the entries of a line, io.EOF for one without any. A line is read by
// itself: a quote that opens in its help text and does not close would take the lines
// that follow into the help.
func parseLine(line string) ([]string, error) {
	entries := csv.NewReader(strings.NewReader(line))
	entries.Comment = '#'
	// A help text may have commas and quotes of its own.
	entries.LazyQuotes = true
	entries.TrimLeadingSpace = true
	return entries.Read()
}
