package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"apportion.dev/apportion/internal/display"
)

// Control sequences of terminals (ECMA-48).
const (
	cursorHome  = "\x1b[H"
	clearToLine = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// screen shows what a watch sees: in a terminal instead of what it showed before,
// elsewhere below it.
type screen struct {
	options       *Options
	out           io.Writer
	terminal      bool
	width, height int

	shown bool
	// last is what was shown last, without ages.
	last string
}

// show shows a view, unless it would look like what is shown already. It fails for names
// of which there is nothing when the watch begins.
func (s *screen) show(v View) error {
	// Later it may go: then nobody holds it.
	if !s.shown && len(s.options.selected(v)) == 0 {
		if err := s.options.checkNames(v); err != nil {
			return err
		}
	}
	var same bytes.Buffer
	if err := s.options.render(&same, v, time.Time{}, 0); err != nil {
		return err
	}
	identity := s.options.problem(v) + "\n" + same.String()
	if s.shown && identity == s.last {
		return nil
	}
	s.shown, s.last = true, identity
	now := s.options.Now()
	if s.terminal {
		// The window may have another size by now.
		s.width, s.height, s.terminal = s.options.Terminal(s.out)
	}
	var text bytes.Buffer
	if err := s.options.render(&text, v, now, s.width); err != nil {
		return err
	}
	if s.options.forPeople() {
		return s.showTable(v, now, text.String())
	}
	if s.options.Output == YAML {
		text.WriteString("---\n")
	}
	_, err := s.out.Write(text.Bytes())
	return err
}

// showTable shows a table with the time, and what else there is to say.
func (s *screen) showTable(v View, now time.Time, table string) error {
	if table == "" {
		table = s.options.nothing() + "\n"
	}
	heading := now.Format(time.RFC3339) + "\n"
	if problem := s.options.problem(v); problem != "" {
		heading += strings.ReplaceAll(problem, "\n", " ") + "\n"
	}
	var text strings.Builder
	if !s.terminal {
		_, err := io.WriteString(s.out, visibleLines(heading)+visibleLines(table)+"\n")
		return err
	}
	text.WriteString(cursorHome)
	for _, line := range s.fit(visibleLines(heading) + visibleLines(table)) {
		text.WriteString(line + clearToLine + "\r\n")
	}
	text.WriteString(clearBelow)
	_, err := io.WriteString(s.out, text.String())
	return err
}

// visibleLines makes each line visible.
func visibleLines(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = display.Visible(line)
	}
	return strings.Join(lines, "\n") + "\n"
}

// fit cuts off what is below the end of the terminal, and says how much that is.
func (s *screen) fit(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	// The cursor stands on the line after the last.
	room, used := s.height-1, 0
	for i, line := range lines {
		rows := 1
		if s.width > 0 {
			rows = max(1, (utf8.RuneCountInString(line)+s.width-1)/s.width)
		}
		left := len(lines) - i - 1
		if used+rows > room || used+rows == room && left > 0 {
			return append(lines[:i:i], fmt.Sprintf("... %d more lines: --gpu, --node, --namespace and --pod show less", left+1))
		}
		used += rows
	}
	return lines
}
