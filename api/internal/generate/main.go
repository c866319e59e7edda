// Generate writes what is made from the comments and types of the opaque config
// API: its JSON schema and its reference page. Its argument is the repository's root.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"apportion.dev/apportion/api/resource/v1alpha1"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate <root of the repository>")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate makes the files, by their path below the root.
func generate(root string) (map[string][]byte, error) {
	types, err := load(filepath.Join(root, "api/resource/v1alpha1/types.go"))
	if err != nil {
		return nil, err
	}
	gpu, err := types.kind(v1alpha1.KindGPUConfig)
	if err != nil {
		return nil, err
	}
	mig, err := types.kind(v1alpha1.KindMIGConfig)
	if err != nil {
		return nil, err
	}
	schema, err := schema(gpu, mig)
	if err != nil {
		return nil, err
	}
	page, err := page(gpu, mig)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"api/resource/v1alpha1/schema.json": schema,
		"docs/config.md":                    page,
	}, nil
}

//go:embed config.md.tmpl
var pageText string

// page is the reference page.
func page(gpu, mig field) ([]byte, error) {
	t, err := template.New("config.md").Parse(pageText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{
		"GPU":   gpu,
		"MIG":   mig,
		"Rows":  rows("", gpu),
		"Enums": enums(gpu),
	})
	return out.Bytes(), err
}

// row is a line of the table of fields.
type row struct{ Path, Type, Default, Doc string }

// rows are the lines for all that is below a field, which is at the path.
func rows(path string, f field) []row {
	var all []row
	for _, child := range f.Fields {
		at := strings.TrimPrefix(path+"."+child.Name, ".")
		typ := child.Type
		if child.Enum != nil {
			typ = child.Enum.Name
		}
		all = append(all, row{at, typ, child.Default, child.Doc})
		all = append(all, rows(at, child)...)
	}
	return all
}

// enums are the types with known values that fields below have, each once.
func enums(f field) []enum {
	var all []enum
	for _, child := range f.Fields {
		found := enums(child)
		if child.Enum != nil {
			found = append(found, *child.Enum)
		}
		for _, e := range found {
			if !slices.ContainsFunc(all, func(known enum) bool { return known.Name == e.Name }) {
				all = append(all, e)
			}
		}
	}
	return all
}
