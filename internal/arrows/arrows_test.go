// Package arrows holds the direction in which packages import each other. It has
// tests only.
package arrows

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "apportion.dev/apportion/"

// mayImport has the rooms of pkg, and below it those that each of them may import
// beside itself. Everybody may import api and internal.
var mayImport = map[string][]string{
	"pkg/gpu":       {},
	"pkg/ownership": {"pkg/gpu"},
	"pkg/node":      {"pkg/gpu", "pkg/ownership"},
	"pkg/metrics":   {"pkg/gpu", "pkg/ownership"},
	"pkg/plan":      {"pkg/gpu"},
	"pkg/admission": {},
	"pkg/fake":      {"pkg/gpu"},
	"api":           {},
	"internal":      {},
}

// programs are the daemons and the hook: what runs on real nodes.
var programs = []string{
	"cmd/apportion-cdi-hook", "cmd/apportion-exporter", "cmd/apportion-kubelet-plugin", "cmd/apportion-mps", "cmd/apportion-webhook",
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// list are the module's own packages, outside of tests.
func list(t *testing.T) []goPackage {
	t.Helper()
	output, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var out []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		out = append(out, p)
	}
}

// room is the room of a package of this module, and its path below the module.
func room(importPath string) (name, path string, ours bool) {
	path, ours = strings.CutPrefix(importPath, module)
	parts := strings.SplitN(path, "/", 3)
	if parts[0] == "pkg" && len(parts) > 1 {
		return parts[0] + "/" + parts[1], path, ours
	}
	return parts[0], path, ours
}

// wrongArrow says why a package of this module may not import another of it; empty
// if it may.
func wrongArrow(from, to string) string {
	fromRoom, fromPath, _ := room(from)
	toRoom, toPath, ours := room(to)
	if !ours || fromRoom == toRoom && fromRoom != "cmd" {
		if ours && strings.HasPrefix(fromPath, "pkg/plan/allocator") && !strings.HasPrefix(toPath, "pkg/plan/allocator") {
			return "the allocator knows no GPU, catalog or simulation"
		}
		return ""
	}
	switch toRoom {
	case "api", "internal":
		if fromPath == "pkg/plan/allocator" || strings.HasPrefix(fromPath, "pkg/plan/allocator/") {
			return "the allocator takes everything as values"
		}
		return ""
	case "cmd":
		if fromRoom == "cmd" && strings.HasPrefix(toPath, "cmd/internal/") {
			return ""
		}
		return "nobody imports a program"
	case "pkg/fake":
		if fromPath == "cmd/apportion" {
			return ""
		}
		return "only cmd/apportion, tests and the fake library know that a GPU may be fake"
	}
	if fromRoom == "cmd" {
		return ""
	}
	allowed, known := mayImport[fromRoom]
	switch {
	case !known:
		return "the room " + fromRoom + " is not in this test's table"
	case strings.HasPrefix(fromPath, "pkg/plan/allocator"):
		return "the allocator imports no other room"
	case !slices.Contains(allowed, toRoom):
		return fromRoom + " may import " + strings.Join(append([]string{"nothing"}, allowed...)[min(1, len(allowed)):], ", ")
	}
	return ""
}

func TestArrowsGoOneWay(t *testing.T) {
	packages := list(t)
	if len(packages) < 25 {
		t.Fatalf("go list gave %d packages, want all of the module", len(packages))
	}
	for _, p := range packages {
		for _, imported := range p.Imports {
			if why := wrongArrow(p.ImportPath, imported); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, why)
			}
		}
	}
}

func TestNoProgramOfANodeHasAFakeInside(t *testing.T) {
	found := 0
	for _, p := range list(t) {
		_, path, _ := room(p.ImportPath)
		if !slices.Contains(programs, path) {
			continue
		}
		found++
		for _, dependency := range p.Deps {
			if name, _, ours := room(dependency); ours && name == "pkg/fake" {
				t.Errorf("%s links %s", path, dependency)
			}
		}
	}
	if found != len(programs) {
		t.Errorf("found %d of the programs %v", found, programs)
	}
}

func TestAnArrowThatIsTurnedIsSeen(t *testing.T) {
	for _, test := range []struct {
		from, to string
		wrong    bool
	}{
		{"pkg/node/driver", "pkg/gpu/inventory", false},
		{"pkg/gpu/inventory", "pkg/node/driver", true},
		{"pkg/node/driver", "pkg/ownership/server", false},
		{"pkg/ownership/server", "pkg/node/prepare", true},
		{"pkg/metrics/exporter", "pkg/ownership", false},
		{"pkg/ownership", "pkg/metrics/exporter", true},
		{"pkg/metrics/exporter", "pkg/node/prepare", true},
		{"pkg/plan/catalog", "pkg/plan/allocator", false},
		{"pkg/plan/catalog", "pkg/gpu/devicemodel", false},
		{"pkg/plan/allocator", "pkg/plan/catalog", true},
		{"pkg/plan/allocator/internal/solver", "pkg/gpu/inventory", true},
		{"pkg/plan/allocator", "pkg/plan/allocator/internal/solver", false},
		{"pkg/gpu/inventory", "pkg/fake/fakegpu", true},
		{"pkg/admission", "api/resource", false},
		{"pkg/admission", "pkg/node/driver", true},
		{"cmd/apportion", "pkg/fake/fakegpu", false},
		{"cmd/apportion-webhook", "pkg/fake/fakegpu", true},
		{"cmd/apportion-exporter", "cmd/internal/command", false},
		{"cmd/apportion-exporter", "cmd/apportion", true},
		{"pkg/node/driver", "cmd/internal/command", true},
		{"pkg/unknown", "pkg/gpu/inventory", true},
	} {
		if got := wrongArrow(module+test.from, module+test.to); (got != "") != test.wrong {
			t.Errorf("%s -> %s: got %q, want an objection: %v", test.from, test.to, got, test.wrong)
		}
	}
}

func TestContributingNamesEveryPackage(t *testing.T) {
	manual, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list(t) {
		if _, path, _ := room(p.ImportPath); !strings.Contains(string(manual), "`"+path+"`") {
			t.Errorf("CONTRIBUTING.md does not say what %s is for", path)
		}
	}
}
