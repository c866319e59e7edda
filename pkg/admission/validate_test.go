package admission

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const driver = "gpu.apportion.dev"

// Parameters that tests use. What each says is in its name.
const (
	good          = `{"apiVersion":"resource.apportion.dev/v1alpha1","kind":"GPUConfig","memory":{"enforcement":"Required"}}`
	goodMIG       = `{"apiVersion":"resource.apportion.dev/v1alpha1","kind":"MIGConfig","memory":{"enforcement":"None"}}`
	unlimited     = `{"apiVersion":"resource.apportion.dev/v1alpha1","kind":"GPUConfig","memory":{"enforcement":"None"}}`
	negativeLimit = `{"apiVersion":"resource.apportion.dev/v1alpha1","kind":"GPUConfig","memory":{"softLimit":"-1"}}`
	twoWrong      = `{"apiVersion":"resource.apportion.dev/v1alpha1","kind":"GPUConfig","memory":{"enforcement":"Always"},"sharing":{"mps":{"activeThreadPercentage":101}}}`
	typo          = `{"apiVersion":"resource.apportion.dev/v1alpha1","kind":"GPUConfig","memory":{"softLimt":"1Gi"},"sharing":{"mps":{"limit":1}}}`
	noKind        = `{"memory":{}}`
	nvidiaGood    = `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig"}`
)

// entry is one element of a list of config.
func entry(driver, parameters string, requests ...string) string {
	text := `{"opaque":{"driver":"` + driver + `","parameters":` + parameters + `}`
	if len(requests) > 0 {
		text += `,"requests":["` + strings.Join(requests, `","`) + `"]`
	}
	return text + "}"
}

// claim is a ResourceClaim in v1 with the config entries.
func claim(config ...string) string {
	return `{"metadata":{"name":"c"},"spec":{"devices":{
		"requests":[{"name":"one","exactly":{"deviceClassName":"x"}},{"name":"two","firstAvailable":[{"name":"big","deviceClassName":"x"},{"name":"small","deviceClassName":"x"}]}],
		"config":[` + strings.Join(config, ",") + `]}}}`
}

func template(config ...string) string { return `{"spec":{"metadata":{},` + claim(config...)[1:] + `}` }

func class(config ...string) string {
	return `{"metadata":{"name":"c"},"spec":{"config":[` + strings.Join(config, ",") + `]}}`
}

func TestValidate(t *testing.T) {
	long := `{"x":"` + strings.Repeat("x", 10<<10) + `"}`
	for _, test := range []struct {
		name, resource, object string
		driver                 string // gpu.apportion.dev by default
		want                   []string
	}{
		{name: "no config", resource: resourceClaims, object: claim()},
		{name: "empty object", resource: resourceClaims, object: `{}`},
		{name: "good", resource: resourceClaims, object: claim(entry(driver, good), entry(driver, goodMIG, "two"))},
		{name: "another driver's", resource: resourceClaims, object: claim(entry("gpu.example.com", `{"any":"thing"}`))},
		{name: "not opaque", resource: resourceClaims, object: claim(`{"requests":["one"]}`)},
		{name: "a value", resource: resourceClaims, object: claim(entry(driver, good), entry(driver, negativeLimit)),
			want: []string{`spec.devices.config[1].opaque.parameters.memory.softLimit: Invalid value: "-1"`}},
		{name: "the same in a template", resource: resourceTemplates, object: template(entry(driver, good), entry(driver, negativeLimit)),
			want: []string{`spec.spec.devices.config[1].opaque.parameters.memory.softLimit: Invalid value: "-1"`}},
		{name: "the same in a class", resource: deviceClasses, object: class(entry(driver, negativeLimit)),
			want: []string{`spec.config[0].opaque.parameters.memory.softLimit: Invalid value: "-1"`}},
		{name: "no limit in a claim", resource: resourceClaims, object: claim(entry(driver, good), entry(driver, unlimited, "two")),
			want: []string{`spec.devices.config[1].opaque.parameters.memory.enforcement: Forbidden: None would let the share take its neighbours' memory, so only a DeviceClass can set it`}},
		{name: "no limit in a template", resource: resourceTemplates, object: template(entry(driver, unlimited)),
			want: []string{`spec.spec.devices.config[0].opaque.parameters.memory.enforcement: Forbidden`}},
		{name: "no limit in a class", resource: deviceClasses, object: class(entry(driver, unlimited))},
		{name: "no limit in a claim, of another driver", resource: resourceClaims, object: claim(entry("gpu.example.com", unlimited))},
		{name: "all at once", resource: resourceClaims,
			object: claim(entry(driver, twoWrong), entry("gpu.example.com", noKind), entry(driver, noKind), entry(driver, `"x"`), entry(driver, typo)),
			want: []string{
				`spec.devices.config[0].opaque.parameters.sharing.mps.activeThreadPercentage: Invalid value: 101`,
				`spec.devices.config[0].opaque.parameters.memory.enforcement: Unsupported value: "Always"`,
				`spec.devices.config[2].opaque.parameters: Invalid value: config must have apiVersion and kind`,
				`spec.devices.config[3].opaque.parameters: Invalid value: config must be a JSON object, not string`,
				`spec.devices.config[4].opaque.parameters: Invalid value: GPUConfig: unknown field "memory.softLimt"; unknown field "sharing.mps.limit"`,
			}},
		{name: "too long", resource: resourceClaims, object: claim(entry(driver, long)),
			want: []string{`spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes`}},
		{name: "no parameters", resource: resourceClaims, object: claim(`{"opaque":{"driver":"` + driver + `"}}`),
			want: []string{`spec.devices.config[0].opaque.parameters: Invalid value: malformed JSON: unexpected end of JSON input`}},
		{name: "null parameters", resource: resourceClaims, object: claim(entry(driver, "null")),
			want: []string{`spec.devices.config[0].opaque.parameters: Invalid value: `}},
		{name: "NVIDIA's kinds", resource: resourceClaims, object: claim(entry("gpu.nvidia.com", nvidiaGood)), driver: "gpu.nvidia.com"},
		{name: "NVIDIA's kinds under our name", resource: resourceClaims, object: claim(entry(driver, nvidiaGood)),
			want: []string{`spec.devices.config[0].opaque.parameters: Invalid value: unknown config: apiVersion "resource.nvidia.com/v1beta1"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := readSubject(test.resource, []byte(test.object))
			if err != nil {
				t.Fatal(err)
			}
			if test.driver == "" {
				test.driver = driver
			}
			var got []string
			for _, e := range s.validate(test.driver) {
				got = append(got, e.Error())
			}
			if len(got) != len(test.want) {
				t.Fatalf("errors %q, want %q", got, test.want)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("error %d is %q, want one that begins with %q", i, got[i], want)
				}
			}
		})
	}
}

// TestAllVersionsOfTheAPIAreRead: v1beta1 has the fields of a request one level
// higher than v1, and the rest is the same.
func TestAllVersionsOfTheAPIAreRead(t *testing.T) {
	const config = `"config":[{"requests":["a"],"opaque":{"driver":"d","parameters":{}}}]`
	for version, object := range map[string]string{
		"v1":      `{"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"c"}},{"name":"b","firstAvailable":[{"name":"x"},{"name":"y"}]}],` + config + `}}}`,
		"v1beta2": `{"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"c"}},{"name":"b","firstAvailable":[{"name":"x"},{"name":"y"}]}],` + config + `}}}`,
		"v1beta1": `{"spec":{"devices":{"requests":[{"name":"a","deviceClassName":"c"},{"name":"b","firstAvailable":[{"name":"x"},{"name":"y"}]}],` + config + `}}}`,
	} {
		s, err := readSubject(resourceClaims, []byte(object))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "b/x", "b/y"}, s.requests); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", version, diff)
		}
		if len(s.config) != 1 || s.config[0].Opaque == nil || s.config[0].Opaque.Driver != "d" || len(s.config[0].Requests) != 1 {
			t.Errorf("%s: config %+v", version, s.config)
		}
	}
}

func TestOtherResourcesAreRefused(t *testing.T) {
	if _, err := readSubject("resourceslices", []byte(`{}`)); err == nil || !strings.Contains(err.Error(), `"resourceslices"`) {
		t.Errorf("error %v", err)
	}
}
