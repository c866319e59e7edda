package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// visible replaces what would not show as itself in a terminal, such as control
// characters, by how Go writes it: text that users of a namespace chose must not move
// the cursor, nor look like other text.
func visible(text string) string {
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

// printHarmless prints a value as JSON or YAML that a terminal can show. Where YAML
// would have what it cannot, it is written in the manner of JSON, which is YAML too.
func printHarmless(out io.Writer, format string, value any) error {
	var text strings.Builder
	if err := printObject(&text, "json", value); err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	astral := astralJSON
	if format == "yaml" {
		astral = astralYAML
	}
	harmless := visibleJSON(text.String(), astral)
	if format == "yaml" && harmless == text.String() {
		return printObject(out, "yaml", value)
	}
	_, err := io.WriteString(out, harmless)
	return err
}

// harmlessError is an error whose text can be shown in a terminal.
type harmlessError struct{ error }

func (e harmlessError) Error() string {
	return visible(strings.ReplaceAll(strings.TrimSpace(e.error.Error()), "\n", "; "))
}
func (e harmlessError) Unwrap() error { return e.error }

// harmless makes an error one that can be shown: servers put into theirs what users
// wrote.
func harmless(err error) error {
	if err == nil {
		return nil
	}
	return harmlessError{err}
}

// age is for how long something is, "-" if that is not known.
func age(since, now time.Time) string {
	if since.IsZero() || now.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(since)))
}

// parts writes a number of GPUs.
func parts(gpus float64) string {
	return strconv.FormatFloat(math.Round(gpus*1e3)/1e3, 'f', -1, 64)
}

// rounded takes away what adding up fractions leaves behind.
func rounded(gpus float64) float64 { return math.Round(gpus*1e9) / 1e9 }

// percent writes a share of a whole.
func percent(share float64) string { return strconv.FormatFloat(share*100, 'f', 1, 64) + "%" }
