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
	lines := csv.NewReader(from)
	lines.Comment = '#'
	// A help text may have commas and quotes of its own.
	lines.FieldsPerRecord = -1
	lines.LazyQuotes = true
	lines.TrimLeadingSpace = true
	for {
		entries, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return known, unknown, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the list of fields: %w", err)
		}
		name := strings.TrimSpace(entries[0])
		switch {
		case strings.HasPrefix(name, "#") || name == "" && len(entries) == 1:
			continue
		case name == "" || len(entries) < 3:
			line, _ := lines.FieldPos(0)
			return nil, nil, fmt.Errorf("read the list of fields: line %d is not of the form \"name, type, help\"", line)
		}
		list := &unknown
		if _, ok := lookup(name); ok {
			list = &known
		}
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
}
