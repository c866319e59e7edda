package report

import (
	"strings"
	"unicode/utf8"

	"apportion.dev/apportion/internal/display"
	"apportion.dev/apportion/pkg/ownership"
)

// stackedLine is a line for narrow terminals: indented, in columns if it is one of a
// part.
type stackedLine struct {
	indent int
	cells  []string
}

// stacked has for narrow terminals what the table has in one line below each other: GPU,
// part, claim, pod and containers. The claim stands beside the part if all do fit.
func stacked(holds []hold, width int) string {
	beside := stackedLines(holds, true)
	if text := inColumns(beside); widest(text) <= width {
		return text
	}
	return inColumns(stackedLines(holds, false))
}

func stackedLines(holds []hold, beside bool) []stackedLine {
	lines := []stackedLine{{0, []string{"NODE  GPU"}}}
	podIndent := 6
	if beside {
		podIndent = 4
	}
	addPart := func(claim string, cells ...string) {
		if beside {
			lines = append(lines, stackedLine{2, append(cells, claim)})
			return
		}
		lines = append(lines, stackedLine{2, cells}, stackedLine{4, []string{claim}})
	}
	addPart("CLAIM", "PART", "MEMORY", "GPUS", "AGE")
	lines = append(lines, stackedLine{podIndent, []string{"POD  CONTAINERS"}})
	gpu := ""
	for _, h := range holds {
		if next := h.node + "  " + h.gpu; next != gpu {
			gpu = next
			lines = append(lines, stackedLine{0, []string{gpu}})
		}
		addPart(display.Visible(h.owner.Claim.Namespace+"/"+h.owner.Claim.Name), h.part, h.memory, h.gpus, h.age)
		for _, u := range h.uses() {
			lines = append(lines, stackedLine{podIndent, []string{u.text(len(h.owner.Consumers) > 0)}})
		}
	}
	return lines
}

// text is a use in one line; a pod that runs needs no words about that.
func (u use) text(isPod bool) string {
	if !isPod {
		return "no pod"
	}
	words := []string{u.pod}
	if u.state != string(ownership.Running) {
		words = append(words, u.state)
	}
	if u.containers != "-" {
		words = append(words, u.containers)
	}
	return strings.Join(words, "  ")
}

// inColumns aligns the lines that have several cells.
func inColumns(lines []stackedLine) string {
	var widths []int
	for _, line := range lines {
		for i, cell := range line.cells {
			if len(widths) <= i {
				widths = append(widths, 0)
			}
			if len(line.cells) > 1 {
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
	}
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(strings.Repeat(" ", line.indent))
		for i, cell := range line.cells {
			text.WriteString(cell)
			if i < len(line.cells)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}
