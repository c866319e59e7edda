// Package display writes what a terminal can show: text, tables, JSON and YAML.
package display

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Visible replaces what would not show as itself in a terminal, such as control
// characters, by how Go writes it: text that users of a namespace chose must not move
// the cursor, nor look like other text.
func Visible(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// visibleJSON does the same to JSON, in which it does not change what strings say: there,
// characters other than ASCII stand in strings alone. astral writes a character beyond
// 16 bits, for which JSON and YAML have different forms.
func visibleJSON(text string, astral func(rune) string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || strconv.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			b.WriteString(astral(r))
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func astralJSON(r rune) string {
	high, low := utf16.EncodeRune(r)
	return fmt.Sprintf(`\u%04x\u%04x`, high, low)
}

func astralYAML(r rune) string { return fmt.Sprintf(`\U%08x`, r) }

// PrintHarmless prints a value as JSON or YAML that a terminal can show. Where YAML
// would have what it cannot, it is written in the manner of JSON, which is YAML too.
func PrintHarmless(out io.Writer, format string, value any) error {
	var text strings.Builder
	if err := PrintObject(&text, "json", value); err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	astral := astralJSON
	if format == "yaml" {
		astral = astralYAML
	}
	harmless := visibleJSON(text.String(), astral)
	if format == "yaml" && harmless == text.String() {
		return PrintObject(out, "yaml", value)
	}
	_, err := io.WriteString(out, harmless)
	return err
}

// harmlessError is an error whose text can be shown in a terminal.
type harmlessError struct{ error }

func (e harmlessError) Error() string {
	return Visible(strings.ReplaceAll(strings.TrimSpace(e.error.Error()), "\n", "; "))
}
func (e harmlessError) Unwrap() error { return e.error }

// Harmless makes an error one that can be shown: servers put into theirs what users
// wrote.
func Harmless(err error) error {
	if err == nil {
		return nil
	}
	return harmlessError{err}
}

// PrintObject prints a value as JSON or YAML.
func PrintObject(out io.Writer, format string, value any) error {
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

// PrintTable prints rows in columns; the first row is the heading.
func PrintTable(out io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// OrDash stands in for nothing in a table.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
