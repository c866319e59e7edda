package v1alpha1

import (
	"encoding/json"
	"os"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// The schema says of the examples what Decode and Validate say, but for the amounts
// that text stands for, and for "null" and "" as other words for unset.
func TestSchemaAgrees(t *testing.T) {
	text, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema spec.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, config string, want bool) {
		t.Helper()
		var value any
		if err := json.Unmarshal([]byte(config), &value); err != nil {
			t.Fatal(err)
		}
		if err := validate.AgainstSchema(&schema, value, strfmt.Default); (err == nil) != want {
			t.Errorf("valid by the schema, want %v: %v\n%s", want, err, config)
		}
	}
	for name, test := range validationTests {
		t.Run(name, func(t *testing.T) { check(t, test.in, test.want == "" || test.looser) })
	}
	for name, config := range map[string]string{
		"empty":                   `{}`,
		"list":                    `[]`,
		"no kind":                 `{"apiVersion":"resource.apportion.dev/v1alpha1"}`,
		"no version":              `{"kind":"GPUConfig"}`,
		"future version":          `{"apiVersion":"resource.apportion.dev/v2","kind":"GPUConfig"}`,
		"unknown kind":            config("GpuConfig", ""),
		"unknown field":           gpu(`"colour":"red"`),
		"unknown field below":     mig(`"sharing":{"mps":{"limit":1}}`),
		"field in wrong case":     gpu(`"sharing":{"timeslicing":{}}`),
		"object for a string":     gpu(`"memory":{"enforcement":{}}`),
		"string for an object":    gpu(`"sharing":"MPS"`),
		"list for an object":      gpu(`"memory":[]`),
		"string for a number":     gpu(`"sharing":{"mps":{"activeThreadPercentage":"50"}}`),
		"fraction for an integer": gpu(`"sharing":{"mps":{"activeThreadPercentage":0.5}}`),
		"unit that is none":       gpu(`"memory":{"softLimit":"10GB"}`),
		"true for a quantity":     gpu(`"memory":{"softLimit":true}`),
		"object for a quantity":   gpu(`"memory":{"softLimit":{}}`),
		"huge exponent":           gpu(`"memory":{"softLimit":"1e-2000000000"}`),
	} {
		t.Run("not decoded/"+name, func(t *testing.T) {
			if _, err := Decode([]byte(config)); err == nil {
				t.Error("decoded")
			}
			check(t, config, false)
		})
	}
}
