// Command generate writes the part of the fake libnvidia-ml that follows from NVML's
// header: a C function for each prototype, which hands its arguments to Go, and a Go
// table of the functions with the types of their parameters.
//
// The header is that of the go-nvml module which this module requires.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	dir := flag.String("dir", ".", "the folder of the generated files")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	header, err := readHeader()
	if err != nil {
		return err
	}
	files, err := generate(header)
	if err != nil {
		return err
	}
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	return err
}

// readHeader reads nvml.h of the required go-nvml.
func readHeader() ([]byte, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return nil, fmt.Errorf("find go-nvml: %w", err)
	}
	return os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pkg/nvml/nvml.h"))
}

// prototype is a function of the header.
type prototype struct {
	name string
	// params are the types of the parameters.
	params []string
}

var (
	comments   = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	prototypes = regexp.MustCompile(`nvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\(([^)]*)\)`)
	// parameter is a type and a name.
	parameter = regexp.MustCompile(`^(.*?)\s*(\w+)$`)
)

// parse finds the prototypes of functions that return a code, also those which the
// header declares only for old programs.
func parse(header []byte) ([]prototype, error) {
	var found []prototype
	seen := map[string]bool{}
	for _, m := range prototypes.FindAllSubmatch(comments.ReplaceAll(header, nil), -1) {
		p := prototype{name: string(m[1])}
		if seen[p.name] {
			continue
		}
		seen[p.name] = true
		for param := range strings.SplitSeq(string(m[2]), ",") {
			param = strings.Join(strings.Fields(param), " ")
			if param == "void" {
				break
			}
			parts := parameter.FindStringSubmatch(param)
			if parts == nil {
				return nil, fmt.Errorf("%s: parameter %q is not a type and a name", p.name, param)
			}
			p.params = append(p.params, strings.ReplaceAll(parts[1], " *", "*"))
		}
		found = append(found, p)
	}
	if len(found) == 0 {
		return nil, errors.New("the header has no prototypes")
	}
	return found, nil
}

// handleTypes are pointers to what only the library knows.
var handleTypes = map[string]bool{
	"nvmlDevice_t": true, "nvmlGpuInstance_t": true, "nvmlComputeInstance_t": true,
	"nvmlEventSet_t": true, "nvmlGpmSample_t": true, "nvmlUnit_t": true,
}

// cType is how a parameter is declared, and the member of the union that takes it. All
// that is neither a pointer nor a long number has 32 bits: ints and enums.
func cType(param string) (declared, member string) {
	switch {
	case strings.HasSuffix(param, "*") || handleTypes[param]:
		return "void *", "pointer"
	case param == "unsigned long long":
		return "unsigned long long ", "number"
	}
	return "unsigned int ", "number"
}

const notice = "// Code generated from NVML's header. DO NOT EDIT.\n\n"

// generate makes the content of the generated files, by name.
func generate(header []byte) (map[string][]byte, error) {
	found, err := parse(header)
	if err != nil {
		return nil, err
	}
	var c, table bytes.Buffer
	c.WriteString(notice + "#include \"library.h\"\n")
	table.WriteString(notice + "package main\n\n// functions are NVML's, in the order of its header.\nvar functions = []function{\n")
	for i, p := range found {
		var declared, values, types []string
		for j, param := range p.params {
			declaration, member := cType(param)
			declared = append(declared, fmt.Sprintf("%sa%d", declaration, j))
			values = append(values, fmt.Sprintf("{.%s = a%d}", member, j))
			types = append(types, fmt.Sprintf("%q", param))
		}
		if len(declared) == 0 {
			declared, values = []string{"void"}, []string{"{0}"}
		}
		fmt.Fprintf(&c, "\nEXPORTED int %s(%s)\n{\n\tunion argument a[] = {%s};\n\treturn fakeNVML(%d, a);\n}\n",
			p.name, strings.Join(declared, ", "), strings.Join(values, ", "), i)
		fmt.Fprintf(&table, "{%q, []string{%s}},\n", p.name, strings.Join(types, ", "))
	}
	table.WriteString("}\n")
	formatted, err := format.Source(table.Bytes())
	return map[string][]byte{"zz_generated.functions.c": c.Bytes(), "zz_generated.functions.go": formatted}, err
}
