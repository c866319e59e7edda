package arrows

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheWalksNameFilesThatExist holds docs/architecture.md to the tree.
func TestTheWalksNameFilesThatExist(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, walks, found := strings.Cut(string(text), "## Three walks")
	if !found {
		t.Fatal("docs/architecture.md has no walks")
	}
	sections := strings.Split(walks, "\n### ")[1:]
	if len(sections) != 3 {
		t.Errorf("docs/architecture.md has %d walks, want 3", len(sections))
	}
	files := regexp.MustCompile("`((?:pkg|cmd|api|internal)/[a-zA-Z0-9_./-]+\\.go)`")
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		named := files.FindAllStringSubmatch(section, -1)
		if len(named) < 5 {
			t.Errorf("the walk %q names %d files, want its steps' files", title, len(named))
		}
		for _, match := range named {
			if _, err := os.Stat(filepath.Join(root, match[1])); err != nil {
				t.Errorf("the walk %q: %v", title, err)
			}
		}
	}
}
