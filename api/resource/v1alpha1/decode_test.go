package v1alpha1

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// gpu and mig are configs with the fields.
func gpu(fields string) string { return config(KindGPUConfig, fields) }
func mig(fields string) string { return config(KindMIGConfig, fields) }

func config(kind, fields string) string {
	text := `{"apiVersion":"resource.apportion.dev/v1alpha1","kind":"` + kind + `"`
	if fields != "" {
		text += "," + fields
	}
	return text + "}"
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "resource.apportion.dev/v1alpha1", Kind: kind}
}

func quantity(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }

func TestDecode(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		want Config
	}{
		"nothing set": {gpu(""), &GPUConfig{TypeMeta: typeMeta("GPUConfig")}},
		"partition":   {mig(""), &MIGConfig{TypeMeta: typeMeta("MIGConfig")}},
		"empty objects stay empty": {
			gpu(`"sharing":{"timeSlicing":{},"mps":{}},"memory":{}`),
			&GPUConfig{TypeMeta: typeMeta("GPUConfig"), Sharing: &Sharing{TimeSlicing: &TimeSlicing{}, MPS: &MPS{}}, Memory: &Memory{}},
		},
		"null is unset": {
			gpu(`"sharing":{"timeSlicing":null,"mps":{"enforcement":null,"activeThreadPercentage":null,"pinnedDeviceMemoryLimit":null}},"memory":null`),
			&GPUConfig{TypeMeta: typeMeta("GPUConfig"), Sharing: &Sharing{MPS: &MPS{}}},
		},
		"all set": {
			mig(`"sharing":{"timeSlicing":{"interval":"Default"},"mps":{"enforcement":"None","activeThreadPercentage":50,"pinnedDeviceMemoryLimit":"1Gi"}},
				"memory":{"enforcement":"Required","softLimit":"512Mi"}`),
			&MIGConfig{
				TypeMeta: typeMeta("MIGConfig"),
				Sharing: &Sharing{
					TimeSlicing: &TimeSlicing{Interval: TimeSliceDefault},
					MPS:         &MPS{Enforcement: EnforcementNone, ActiveThreadPercentage: ptr.To[int32](50), PinnedDeviceMemoryLimit: quantity("1Gi")},
				},
				Memory: &Memory{Enforcement: EnforcementRequired, SoftLimit: quantity("512Mi")},
			},
		},
		"a quantity may be a number": {
			gpu(`"memory":{"softLimit":1048576}`),
			&GPUConfig{TypeMeta: typeMeta("GPUConfig"), Memory: &Memory{SoftLimit: quantity("1048576")}},
		},
		"as large as the API server allows": {
			gpu(strings.Repeat(" ", 10240-len(gpu(""))-1) + `"memory":null`)[:10240-1-len(`"memory":null`)] + `"memory":null}`,
			&GPUConfig{TypeMeta: typeMeta("GPUConfig")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(test.in))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %#v\nwant %#v", got, test.want)
			}
			if errs := got.Validate(); len(errs) > 0 {
				t.Errorf("not valid: %v", errs)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	const known = "known are the kinds GPUConfig and MIGConfig of resource.apportion.dev/v1alpha1"
	long := strings.Repeat("x", 9000)
	for name, test := range map[string]struct{ in, want string }{
		"nothing":                   {``, "malformed JSON: unexpected end of JSON input"},
		"cut off":                   {`{"apiVersion":`, "malformed JSON: unexpected end of JSON input"},
		"two objects":               {gpu("") + gpu(""), "malformed JSON: invalid character '{' after top-level value"},
		"YAML":                      {"kind: GPUConfig", "malformed JSON: invalid character 'k' looking for beginning of value"},
		"null":                      {`null`, "config must have apiVersion and kind"},
		"a string":                  {`"GPUConfig"`, "config must be a JSON object, not string"},
		"a list":                    {`[` + gpu("") + `]`, "config must be a JSON object, not array"},
		"an empty object":           {`{}`, "config must have apiVersion and kind"},
		"no kind":                   {`{"apiVersion":"resource.apportion.dev/v1alpha1"}`, "config must have apiVersion and kind"},
		"kind is null":              {`{"apiVersion":"resource.apportion.dev/v1alpha1","kind":null}`, "config must have apiVersion and kind"},
		"kind is a number":          {`{"apiVersion":"resource.apportion.dev/v1alpha1","kind":1}`, "kind: does not take number"},
		"kind in wrong case":        {config("GpuConfig", ""), `unknown config: apiVersion "resource.apportion.dev/v1alpha1", kind "GpuConfig"; ` + known},
		"future version":            {`{"apiVersion":"resource.apportion.dev/v2","kind":"GPUConfig"}`, `unknown config: apiVersion "resource.apportion.dev/v2", kind "GPUConfig"; ` + known},
		"another API":               {`{"apiVersion":"v1","kind":"Pod"}`, `unknown config: apiVersion "v1", kind "Pod"; ` + known},
		"a long kind":               {config(long, ""), `unknown config: apiVersion "resource.apportion.dev/v1alpha1", kind "` + long[:500] + `..."; ` + known},
		"unknown field":             {gpu(`"colour":"red"`), `GPUConfig: unknown field "colour"`},
		"unknown field below":       {mig(`"sharing":{"mps":{"limit":1}}`), `MIGConfig: unknown field "sharing.mps.limit"`},
		"field in wrong case":       {gpu(`"sharing":{"timeslicing":{}}`), `GPUConfig: unknown field "sharing.timeslicing"`},
		"several unknown fields":    {gpu(`"a":1,"memory":{"b":2}`), "GPUConfig: unknown field \"a\"; unknown field \"memory.b\""},
		"a long unknown field":      {gpu(`"` + long + `":1`), `GPUConfig: unknown field "` + long[:500-len(`unknown field "`)] + `...`},
		"kind twice":                {config("MIGConfig", `"kind":"GPUConfig"`), `GPUConfig: duplicate field "kind"`},
		"field twice":               {gpu(`"memory":{"softLimit":"1Gi","softLimit":"2Gi"}`), `GPUConfig: duplicate field "memory.softLimit"`},
		"object for a string":       {gpu(`"memory":{"enforcement":{"x":[]}}`), "GPUConfig: memory.enforcement: does not take object"},
		"string for an object":      {gpu(`"sharing":"MPS"`), "GPUConfig: sharing: does not take string"},
		"list for an object":        {gpu(`"memory":[]`), "GPUConfig: memory: does not take array"},
		"string for a number":       {gpu(`"sharing":{"mps":{"activeThreadPercentage":"50"}}`), "GPUConfig: sharing.mps.activeThreadPercentage: does not take string"},
		"fraction for an integer":   {gpu(`"sharing":{"mps":{"activeThreadPercentage":0.5}}`), "GPUConfig: sharing.mps.activeThreadPercentage: does not take number 0.5"},
		"integer too large":         {gpu(`"sharing":{"mps":{"activeThreadPercentage":4294967346}}`), "GPUConfig: sharing.mps.activeThreadPercentage: does not take number 4294967346"},
		"unit that is none":         {gpu(`"memory":{"softLimit":"10GB"}`), `GPUConfig: memory.softLimit: "10GB" is not a quantity; write it like 512Mi or 10Gi`},
		"empty quantity":            {mig(`"sharing":{"mps":{"pinnedDeviceMemoryLimit":""}}`), `MIGConfig: sharing.mps.pinnedDeviceMemoryLimit: "" is not a quantity; write it like 512Mi or 10Gi`},
		"true for a quantity":       {gpu(`"memory":{"softLimit":true}`), `GPUConfig: memory.softLimit: "true" is not a quantity; write it like 512Mi or 10Gi`},
		"object for a quantity":     {gpu(`"memory":{"softLimit":{}}`), `GPUConfig: memory.softLimit: "{" is not a quantity; write it like 512Mi or 10Gi`},
		"list for a quantity":       {gpu(`"memory":{"softLimit":["1Gi"]}`), `GPUConfig: memory.softLimit: "[" is not a quantity; write it like 512Mi or 10Gi`},
		"a byte too long":           {gpu(strings.Repeat(" ", 10241-len(gpu("x"))) + "x"), "config is 10241 bytes long; at most 10240 are allowed"},
		"unknown and deeply nested": {gpu(`"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000)), `GPUConfig: unknown field "x"`},
		"deeper than the parser":    {strings.Repeat("[", 10240), "malformed JSON: invalid character '[' exceeded max depth"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(test.in))
			if err == nil {
				t.Fatalf("no error, but %#v", got)
			}
			if err.Error() != test.want {
				t.Errorf("got  %s\nwant %s", err, test.want)
			}
		})
	}
}

// Kubernetes' parser of quantities would take minutes and gigabytes for each of these.
func TestDriverHangsOnQuantityWithHugeExponent(t *testing.T) {
	for name, in := range map[string]string{
		"string":              gpu(`"memory":{"softLimit":"1e-2000000000"}`),
		"number":              gpu(`"memory":{"softLimit":1e-2000000000}`),
		"large":               gpu(`"memory":{"softLimit":"9999999999999999999e2000000000"}`),
		"for MPS":             mig(`"sharing":{"mps":{"pinnedDeviceMemoryLimit":"1e-2000000000"}}`),
		"first of two":        gpu(`"memory":{"softLimit":"1e-2000000000","softLimit":"1Gi"}`),
		"in the first of two": gpu(`"memory":{"softLimit":"1e-2000000000"},"memory":{}`),
		"escaped":             gpu(`"memory":{"softLimit":"1\u0065-2000000000"}`),
		"escaped name":        gpu(`"memory":{"soft\u004cimit":"1e-2000000000"}`),
		"blanks around":       gpu(`"memory":{"softLimit":" 1e-2000000000 "}`),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Decode([]byte(in)); err == nil || !strings.Contains(err.Error(), "is not a quantity") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", gpu(""), mig(""),
		gpu(`"sharing":{"timeSlicing":{"interval":"Long"},"mps":{"enforcement":"Required","activeThreadPercentage":50,"pinnedDeviceMemoryLimit":"1.5Gi"}}`),
		mig(`"memory":{"enforcement":"None","softLimit":1e9}`),
		gpu(`"memory":{"softLimit":"1e-2000000000"}`), gpu(`"memory":{"softLimit":"-1"}`), gpu(`"memory":{"softLimit":"9e99"}`),
		gpu(`"sharing":{"sharing":null,"sharing":[]}`),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Decode(data)
		if err != nil {
			if len(err.Error()) > 4000 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
			return
		}
		if !reflect.DeepEqual(config, config.DeepCopyObject()) {
			t.Errorf("copy of %#v differs", config)
		}
		invalid := config.Validate().ToAggregate()
		settings, err := Resolve(config)
		if (err == nil) != (invalid == nil) {
			t.Errorf("Validate says %v, Resolve %v", invalid, err)
		}
		if err == nil && settings.Memory.Enforcement == "" {
			t.Error("no default")
		}
	})
}
