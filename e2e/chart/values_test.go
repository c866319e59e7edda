package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// value is one line of the chart's table of values.
type value struct {
	name, text, fallback string
}

// documented reads the values of values.yaml with the comments above them.
// Values that the schema has parts for are listed part by part.
func documented(t *testing.T, node *yaml.Node, prefix string, schema map[string]any) []value {
	t.Helper()
	var list []value
	for i := 0; i < len(node.Content); i += 2 {
		key, content := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		property := field(schema, "properties", key.Value)
		if property == nil {
			t.Errorf("the schema does not know %s", name)
			continue
		}
		text := strings.TrimPrefix(strings.ReplaceAll(key.HeadComment, "\n# ", " "), "# ")
		// The first comment of the file is about the file.
		if _, last, ok := strings.Cut(text, "\n\n# "); ok {
			text = last
		}
		if text == "" || text != property["description"] {
			t.Errorf("%s is %q in values.yaml, and %q in the schema", name, text, property["description"])
		}
		if field(property, "properties") != nil {
			list = append(list, documented(t, content, name+".", property)...)
			continue
		}
		list = append(list, value{name: name, text: text, fallback: fallback(t, content)})
	}
	return list
}

// fallback writes a default as one line of JSON.
func fallback(t *testing.T, node *yaml.Node) string {
	t.Helper()
	var decoded any
	if err := node.Decode(&decoded); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func field(schema map[string]any, path ...string) map[string]any {
	for _, name := range path {
		schema, _ = schema[name].(map[string]any)
	}
	return schema
}

// TestEveryValueIsDocumented compares the three places that describe the
// values: values.yaml, the schema and the table in the chart's README.
func TestEveryValueIsDocumented(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(chartDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var schema map[string]any
	if err := json.Unmarshal(read("values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	var values yaml.Node
	if err := yaml.Unmarshal(read("values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	list := documented(t, values.Content[0], "", schema)

	var table strings.Builder
	table.WriteString("| value | meaning | default |\n|---|---|---|\n")
	for _, v := range list {
		fmt.Fprintf(&table, "| `%s` | %s | `%s` |\n", v.name, v.text, v.fallback)
	}
	const begin, end = "<!-- values -->\n", "<!-- end of values -->\n"
	readme := string(read("README.md"))
	before, rest, hasBegin := strings.Cut(readme, begin)
	_, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("README.md of the chart has no %q and %q around its table", begin, end)
	}
	want := before + begin + table.String() + end + after
	if *update {
		if err := os.WriteFile(filepath.Join(chartDir, "README.md"), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		readme = want
	}
	if diff := cmp.Diff(want, readme); diff != "" {
		t.Errorf("the table in the chart's README.md (-want +got), rewrite it with -update:\n%s", diff)
	}
}

// TestSchemaIsStrict: each object of the schema with parts refuses others, and
// each part says what it is.
func TestSchemaIsStrict(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	var visit func(path string, schema map[string]any)
	visit = func(path string, schema map[string]any) {
		properties := field(schema, "properties")
		if properties == nil {
			return
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%q allows values that it does not know", path)
		}
		for name := range properties {
			property := field(properties, name)
			if property["description"] == nil {
				t.Errorf("%s.%s has no description", path, name)
			}
			visit(path+"."+name, property)
		}
	}
	visit("", schema)
}
