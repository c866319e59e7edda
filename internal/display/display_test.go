package display

import "testing"

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"train-0":                  "train-0",
		"größer 大きい ✓":             "größer 大きい ✓",
		"\x1b[2Jgone":              `\x1b[2Jgone`,
		"a\tb\nc\rd":               `a\tb\nc\rd`,
		"bell\a, delete\x7f":       `bell\a, delete\x7f`,
		"C1 \u009b31m":             `C1 \u009b31m`,
		"right \u202eto left":      `right \u202eto left`,
		"no width\u200b":           `no width\u200b`,
		"hard space\u00a0":         `hard space\u00a0`,
		"not UTF-8 \xff\x9b":       `not UTF-8 \xff\x9b`,
		"replacement \ufffd":       "replacement \ufffd",
		"tag \U000e0041":           `tag \U000e0041`,
		`a backslash \x1b of text`: `a backslash \x1b of text`,
	} {
		if got := Visible(text); got != want {
			t.Errorf("%q is shown as %s, want %s", text, got, want)
		}
		if again := Visible(want); again != want {
			t.Errorf("%s becomes %s", want, again)
		}
	}
}
