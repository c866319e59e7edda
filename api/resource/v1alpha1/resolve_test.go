package v1alpha1

import (
	"encoding/json"
	"testing"

	"k8s.io/utils/ptr"
)

func TestResolve(t *testing.T) {
	defaults := MemorySettings{Enforcement: EnforcementPreferred}
	for name, test := range map[string]struct {
		configs []string
		want    Settings
	}{
		"no config":      {nil, Settings{Memory: defaults}},
		"empty config":   {[]string{gpu("")}, Settings{Memory: defaults}},
		"empty objects":  {[]string{gpu(`"sharing":{"timeSlicing":{}},"memory":{}`)}, Settings{Memory: defaults}},
		"MPS by mention": {[]string{gpu(`"sharing":{"mps":{}}`)}, Settings{Memory: defaults, MPS: &MPSSettings{Enforcement: EnforcementPreferred}}},
		"null is no mention": {
			[]string{gpu(`"sharing":{"mps":{"enforcement":"Required"}},"memory":{"enforcement":"Required"}`), gpu(`"sharing":{"mps":null},"memory":{"enforcement":null}`)},
			Settings{Memory: MemorySettings{Enforcement: EnforcementRequired}, MPS: &MPSSettings{Enforcement: EnforcementRequired}},
		},
		"the claim's default does not undo what the class says": {
			[]string{gpu(`"memory":{"enforcement":"Required"}`), gpu(`"memory":{"softLimit":"1Gi"}`)},
			Settings{Memory: MemorySettings{Enforcement: EnforcementRequired, SoftLimit: quantity("1Gi")}},
		},
		"later wins, field by field": {
			[]string{
				gpu(`"sharing":{"timeSlicing":{"interval":"Long"},"mps":{"enforcement":"Required","activeThreadPercentage":50}},"memory":{"softLimit":"1Gi"}`),
				gpu(`"sharing":{"timeSlicing":{"interval":"Short"},"mps":{"activeThreadPercentage":25,"pinnedDeviceMemoryLimit":"4Gi"}}`),
				gpu(`"sharing":{"mps":{"enforcement":"Preferred"}},"memory":{"softLimit":"2Gi"}`),
			},
			Settings{
				Memory:    MemorySettings{Enforcement: EnforcementPreferred, SoftLimit: quantity("2Gi")},
				TimeSlice: TimeSliceShort,
				MPS:       &MPSSettings{Enforcement: EnforcementPreferred, ActiveThreadPercentage: ptr.To[int32](25), PinnedDeviceMemoryLimit: quantity("4Gi")},
			},
		},
		"asking for the default interval is asking": {
			[]string{gpu(`"sharing":{"timeSlicing":{"interval":"Long"}}`), gpu(`"sharing":{"timeSlicing":{"interval":"Default"}}`)},
			Settings{Memory: defaults, TimeSlice: TimeSliceDefault},
		},
		"switched off by the claim": {
			[]string{mig(`"sharing":{"mps":{"activeThreadPercentage":50}}`), mig(`"sharing":{"mps":{"enforcement":"None"}},"memory":{"enforcement":"None"}`)},
			Settings{Memory: MemorySettings{Enforcement: EnforcementNone}, MPS: &MPSSettings{Enforcement: EnforcementNone, ActiveThreadPercentage: ptr.To[int32](50)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Resolve(decodeAll(t, test.configs)...)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := asJSON(t, got), asJSON(t, test.want); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		configs []string
		want    string
	}{
		"an invalid one that a later one overrides": {
			[]string{gpu(`"memory":{"enforcement":"x"}`), gpu(`"memory":{"enforcement":"None"}`)},
			`GPUConfig: memory.enforcement: Unsupported value: "x": supported values: "Required", "Preferred", "None"`,
		},
		"two kinds": {[]string{gpu(""), mig("")}, "a GPUConfig and a MIGConfig cannot configure the same device"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Resolve(decodeAll(t, test.configs)...); err == nil || err.Error() != test.want {
				t.Errorf("got  %+v, %v\nwant %s", got, err, test.want)
			}
		})
	}
}

// Who changes the settings does not change a config, nor what it resolves to next.
func TestSettingsShareNothingWithConfigs(t *testing.T) {
	configs := decodeAll(t, []string{gpu(`"sharing":{"mps":{"activeThreadPercentage":50,"pinnedDeviceMemoryLimit":"1Gi"}},"memory":{"softLimit":"1Gi"}`)})
	before := asJSON(t, configs)
	s, err := Resolve(configs...)
	if err != nil {
		t.Fatal(err)
	}
	*s.MPS.ActiveThreadPercentage = 1
	s.MPS.PinnedDeviceMemoryLimit.Set(1)
	s.Memory.SoftLimit.Set(1)
	if after := asJSON(t, configs); after != before {
		t.Errorf("config was %s, is %s", before, after)
	}
}

func decodeAll(t *testing.T, texts []string) []Config {
	t.Helper()
	var configs []Config
	for _, text := range texts {
		config, err := Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		configs = append(configs, config)
	}
	return configs
}

// asJSON is the value with its pointers followed.
func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
