package resource

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/yaml"

	"apportion.dev/apportion/api/resource/v1alpha1"
)

const (
	ours   = `{"apiVersion":"resource.apportion.dev/v1alpha1","kind":"GPUConfig"}`
	theirs = `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"MigDeviceConfig"}`
)

func TestDecodeFor(t *testing.T) {
	const (
		knownOurs   = "known are the kinds GPUConfig and MIGConfig of resource.apportion.dev/v1alpha1"
		knownTheirs = "known are the kinds GpuConfig and MigDeviceConfig of resource.nvidia.com/v1beta1"
	)
	for name, test := range map[string]struct {
		driver, in string
		want       v1alpha1.Config
		wantErr    string
	}{
		"ours":                      {"gpu.apportion.dev", ours, &v1alpha1.GPUConfig{}, ""},
		"ours, in compatibility":    {"gpu.nvidia.com", ours, &v1alpha1.GPUConfig{}, ""},
		"NVIDIA's":                  {"gpu.nvidia.com", theirs, &v1alpha1.MIGConfig{}, ""},
		"NVIDIA's, to our own name": {"gpu.apportion.dev", theirs, nil, `unknown config: apiVersion "resource.nvidia.com/v1beta1", kind "MigDeviceConfig"; ` + knownOurs + "; those of resource.nvidia.com/v1beta1 are read where the driver's name is gpu.nvidia.com"},
		"unknown kind of NVIDIA's":  {"gpu.nvidia.com", `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"ComputeDomainChannelConfig"}`, nil, `unknown config: apiVersion "resource.nvidia.com/v1beta1", kind "ComputeDomainChannelConfig"; ` + knownTheirs},
		"other API":                 {"gpu.nvidia.com", `{"apiVersion":"v1","kind":"Pod"}`, nil, `unknown config: apiVersion "v1", kind "Pod"; ` + knownOurs + ", and GpuConfig and MigDeviceConfig of resource.nvidia.com/v1beta1"},
		"no config":                 {"gpu.nvidia.com", `{}`, nil, "config must have apiVersion and kind"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeFor(test.driver, []byte(test.in))
			if test.wantErr != "" {
				if err == nil || err.Error() != test.wantErr {
					t.Errorf("got  %v\nwant %s", err, test.wantErr)
				}
				if got != nil {
					t.Errorf("an error, and the config %#v", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if reflect.TypeOf(got) != reflect.TypeOf(test.want) {
				t.Errorf("got a %T, want a %T", got, test.want)
			}
		})
	}
}

// The manual's examples are what Kubernetes and the driver take, and say what the
// manual says they do.
func TestManualExamples(t *testing.T) {
	manual, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	var class resourceapi.DeviceClass
	var claim, alternatives resourceapi.ResourceClaimTemplate
	examples := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllSubmatch(manual, -1)
	into := []any{&class, &claim, &alternatives}
	if len(examples) != len(into) {
		t.Fatalf("%d examples, want %d", len(examples), len(into))
	}
	for i, example := range examples {
		if err := yaml.UnmarshalStrict(example[1], into[i]); err != nil {
			t.Fatalf("example %d: %v\n%s", i+1, err, example[1])
		}
	}

	var fromClass []v1alpha1.Config
	for _, c := range class.Spec.Config {
		fromClass = append(fromClass, decodeExample(t, c.DeviceConfiguration))
	}
	settings := resolve(t, append(fromClass, configs[*v1alpha1.GPUConfig](t, claim, "gpu")...))
	if m := settings.Memory; m.Enforcement != "Required" || m.SoftLimit.String() != "8Gi" {
		t.Errorf("the claim's memory: %+v", m)
	}
	if m := settings.MPS; m == nil || m.Enforcement != "Preferred" || *m.ActiveThreadPercentage != 50 {
		t.Errorf("the claim's MPS: %+v", m)
	}

	partition := resolve(t, configs[*v1alpha1.MIGConfig](t, alternatives, "gpu/partition"))
	if partition.Memory.Enforcement != "None" || partition.TimeSlice != "" {
		t.Errorf("partition: %+v", partition)
	}
	for request, interval := range map[string]v1alpha1.TimeSliceInterval{"gpu/share": "", "gpu/whole": "Long"} {
		s := resolve(t, configs[*v1alpha1.GPUConfig](t, alternatives, request))
		if s.Memory.Enforcement != "Required" || s.TimeSlice != interval {
			t.Errorf("%s: %+v", request, s)
		}
	}
}

// configs are the configs of one kind that are for the request.
func configs[Kind v1alpha1.Config](t *testing.T, template resourceapi.ResourceClaimTemplate, request string) []v1alpha1.Config {
	t.Helper()
	var all []resourceapi.DeviceAllocationConfiguration
	for _, c := range template.Spec.Spec.Devices.Config {
		all = append(all, resourceapi.DeviceAllocationConfiguration{Requests: c.Requests, DeviceConfiguration: c.DeviceConfiguration})
	}
	var applicable []v1alpha1.Config
	for _, c := range resourceclaim.ConfigForResult(all, resourceapi.DeviceRequestAllocationResult{Request: request}) {
		if config, ok := decodeExample(t, c.DeviceConfiguration).(Kind); ok {
			applicable = append(applicable, config)
		}
	}
	return applicable
}

func decodeExample(t *testing.T, c resourceapi.DeviceConfiguration) v1alpha1.Config {
	t.Helper()
	config, err := DecodeFor(c.Opaque.Driver, c.Opaque.Parameters.Raw)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func resolve(t *testing.T, configs []v1alpha1.Config) v1alpha1.Settings {
	t.Helper()
	settings, err := v1alpha1.Resolve(configs...)
	if err != nil {
		t.Fatal(err)
	}
	return settings
}
