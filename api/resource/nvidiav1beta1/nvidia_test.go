package nvidiav1beta1

import (
	"encoding/json"
	"strings"
	"testing"
)

func written(kind, fields string) string {
	text := `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"` + kind + `"`
	if fields != "" {
		text += "," + fields
	}
	return text + "}"
}

func gpu(fields string) string { return written("GpuConfig", fields) }
func mig(fields string) string { return written("MigDeviceConfig", fields) }

func TestDecode(t *testing.T) {
	const (
		wantGPU = `{"kind":"GPUConfig","apiVersion":"resource.apportion.dev/v1alpha1"`
		wantMIG = `{"kind":"MIGConfig","apiVersion":"resource.apportion.dev/v1alpha1"`
	)
	for name, test := range map[string]struct{ in, want string }{
		"nothing set":              {gpu(""), wantGPU + `}`},
		"partition, nothing set":   {mig(""), wantMIG + `}`},
		"no sharing":               {gpu(`"sharing":null`), wantGPU + `}`},
		"time slices":              {gpu(`"sharing":{"strategy":"TimeSlicing"}`), wantGPU + `,"sharing":{"mps":{"enforcement":"None"}}}`},
		"time slices, no interval": {gpu(`"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{}}`), wantGPU + `,"sharing":{"timeSlicing":{},"mps":{"enforcement":"None"}}}`},
		"long time slices":         {gpu(`"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{"interval":"Long"}}`), wantGPU + `,"sharing":{"timeSlicing":{"interval":"Long"},"mps":{"enforcement":"None"}}}`},
		"partition's time slices":  {mig(`"sharing":{"strategy":"TimeSlicing"}`), wantMIG + `,"sharing":{"mps":{"enforcement":"None"}}}`},
		"MPS":                      {gpu(`"sharing":{"strategy":"MPS"}`), wantGPU + `,"sharing":{"mps":{"enforcement":"Preferred"}}}`},
		"MPS, nothing set":         {gpu(`"sharing":{"strategy":"MPS","mpsConfig":{}}`), wantGPU + `,"sharing":{"mps":{"enforcement":"Preferred"}}}`},
		"MPS with limits": {
			gpu(`"sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":50,"defaultPinnedDeviceMemoryLimit":"10Gi","defaultPerDevicePinnedMemoryLimit":{},"multiUser":false}}`),
			wantGPU + `,"sharing":{"mps":{"enforcement":"Preferred","activeThreadPercentage":50,"pinnedDeviceMemoryLimit":"10Gi"}}}`,
		},
		"MPS in a partition": {
			mig(`"sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":50,"defaultPinnedDeviceMemoryLimit":5368709120}}`),
			wantMIG + `,"sharing":{"mps":{"enforcement":"Preferred","activeThreadPercentage":50,"pinnedDeviceMemoryLimit":"5368709120"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(test.in))
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if string(text) != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
			if errs := got.Validate(); len(errs) > 0 {
				t.Errorf("not valid: %v", errs)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	const known = "known are the kinds GpuConfig and MigDeviceConfig of resource.nvidia.com/v1beta1"
	for name, test := range map[string]struct{ in, want string }{
		"an empty object":      {`{}`, "config must have apiVersion and kind"},
		"kind of another GPU":  {written("VfioDeviceConfig", ""), `unknown config: apiVersion "resource.nvidia.com/v1beta1", kind "VfioDeviceConfig"; ` + known},
		"future version":       {`{"apiVersion":"resource.nvidia.com/v1","kind":"GpuConfig"}`, `unknown config: apiVersion "resource.nvidia.com/v1", kind "GpuConfig"; ` + known},
		"unknown field":        {gpu(`"sharing":{"strategy":"MPS","mps":{}}`), `GpuConfig: unknown field "sharing.mps"`},
		"field twice":          {mig(`"sharing":{"strategy":"MPS","strategy":"MPS"}`), `MigDeviceConfig: duplicate field "sharing.strategy"`},
		"wrong type":           {gpu(`"sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":"50"}}`), "GpuConfig: sharing.mpsConfig.defaultActiveThreadPercentage: does not take string"},
		"no quantity":          {gpu(`"sharing":{"strategy":"MPS","mpsConfig":{"defaultPinnedDeviceMemoryLimit":"ten"}}`), `GpuConfig: sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: "ten" is not a quantity; write it like 512Mi or 10Gi`},
		"huge exponent":        {mig(`"sharing":{"strategy":"MPS","mpsConfig":{"defaultPinnedDeviceMemoryLimit":"1e-2000000000"}}`), `MigDeviceConfig: sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: "1e-2000000000" is not a quantity; write it like 512Mi or 10Gi`},
		"no strategy":          {gpu(`"sharing":{}`), "GpuConfig: sharing.strategy: Required value: must be TimeSlicing or MPS"},
		"unknown strategy":     {gpu(`"sharing":{"strategy":"Exclusive"}`), `GpuConfig: sharing.strategy: Unsupported value: "Exclusive": supported values: "TimeSlicing", "MPS"`},
		"both":                 {gpu(`"sharing":{"strategy":"TimeSlicing","mpsConfig":{}}`), "GpuConfig: sharing.mpsConfig: Forbidden: the strategy is TimeSlicing; leave it out"},
		"both, the other way":  {gpu(`"sharing":{"strategy":"MPS","timeSlicingConfig":{}}`), "GpuConfig: sharing.timeSlicingConfig: Forbidden: the strategy is MPS; leave it out"},
		"unknown interval":     {gpu(`"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{"interval":"Eternal"}}`), `GpuConfig: sharing.timeSlicingConfig.interval: Unsupported value: "Eternal": supported values: "Default", "Short", "Medium", "Long"`},
		"partition's interval": {mig(`"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{}}`), "MigDeviceConfig: sharing.timeSlicingConfig: Forbidden: a partition has no time slice of its own; leave it out"},
		"limits of MPS": {
			gpu(`"sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":101,"defaultPinnedDeviceMemoryLimit":"1Ki"}}`),
			"GpuConfig: [sharing.mpsConfig.defaultActiveThreadPercentage: Invalid value: 101: must be from 1 to 100, " +
				`sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: Invalid value: "1Ki": must be from 1Mi to 1Pi]`,
		},
		"limits by device": {
			gpu(`"sharing":{"strategy":"MPS","mpsConfig":{"defaultPerDevicePinnedMemoryLimit":{"0":"10Gi"}}}`),
			"GpuConfig: sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit: Forbidden: limits by a device's index or UUID are not supported; give the devices requests of their own, each with a config with defaultPinnedDeviceMemoryLimit",
		},
		"several users": {
			mig(`"sharing":{"strategy":"MPS","mpsConfig":{"multiUser":true}}`),
			"MigDeviceConfig: sharing.mpsConfig.multiUser: Forbidden: whether users share a daemon is the driver's setting, not a claim's; leave it out",
		},
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

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", gpu(""), mig(`"sharing":null`),
		gpu(`"sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":50,"defaultPinnedDeviceMemoryLimit":"1Gi","defaultPerDevicePinnedMemoryLimit":{"0":[]}}}`),
		gpu(`"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{"interval":"Long"}}`),
		mig(`"sharing":{"strategy":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Decode(data)
		if err != nil {
			return
		}
		if errs := config.Validate(); len(errs) > 0 {
			t.Errorf("decoded what is not valid: %v", errs)
		}
	})
}
