package main

import (
	"bytes"
	"encoding/json"

	"apportion.dev/apportion/api/internal/strict"
	"apportion.dev/apportion/api/resource/v1alpha1"
)

// schema is the JSON schema of the two kinds.
func schema(gpu, mig field) ([]byte, error) {
	// What GPUConfig and MIGConfig differ in, Go's types do not say.
	migSchema := kindSchema(v1alpha1.KindMIGConfig, mig)
	interval := migSchema
	for _, name := range []string{"sharing", "timeSlicing", "interval"} {
		interval = interval["properties"].(map[string]any)[name].(map[string]any)
	}
	interval["enum"] = []string{string(v1alpha1.TimeSliceDefault)}

	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "Opaque device configs of " + v1alpha1.APIVersion,
		"oneOf":   []any{kindSchema(v1alpha1.KindGPUConfig, gpu), migSchema},
	})
	return out.Bytes(), err
}

func kindSchema(kind string, f field) map[string]any {
	s := fieldSchema(f)
	properties := s["properties"].(map[string]any)
	properties["apiVersion"] = map[string]any{"type": "string", "enum": []string{v1alpha1.APIVersion}}
	properties["kind"] = map[string]any{"type": "string", "enum": []string{kind}}
	s["required"] = []string{"apiVersion", "kind"}
	s["title"] = kind
	return s
}

func fieldSchema(f field) map[string]any {
	s := map[string]any{"description": f.Doc}
	switch f.Type {
	case "object":
		properties := map[string]any{}
		for _, child := range f.Fields {
			properties[child.Name] = fieldSchema(child)
		}
		s["type"], s["properties"], s["additionalProperties"] = "object", properties, false
	case "quantity":
		// A schema cannot compare the amounts that strings stand for.
		s["anyOf"] = []any{
			map[string]any{"type": "number", "minimum": f.Min, "maximum": f.Max},
			map[string]any{"type": "string", "pattern": strict.QuantityPattern},
		}
	case "integer":
		s["type"], s["minimum"], s["maximum"] = "integer", f.Min, f.Max
	default:
		s["type"] = f.Type
	}
	if f.Enum != nil {
		s["enum"] = f.Enum.Values
	}
	if f.Default != "" {
		s["default"] = f.Default
	}
	return s
}
