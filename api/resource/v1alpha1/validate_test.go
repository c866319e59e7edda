package v1alpha1

import (
	"strings"
	"testing"
)

// validationTests are fields of a config and what Validate says about them. The
// schema is to say the same, but for what it does not know.
var validationTests = map[string]struct {
	in   string
	want string // "" for valid
	// looser says that the schema lets it through although it is invalid.
	looser bool
}{
	"nothing": {gpu(""), "", false},
	"all": {gpu(`"sharing":{"timeSlicing":{"interval":"Long"},"mps":{"enforcement":"Required","activeThreadPercentage":100,"pinnedDeviceMemoryLimit":"10Gi"}},
		"memory":{"enforcement":"None","softLimit":"1Gi"}`), "", false},
	"empty objects":           {mig(`"sharing":{"timeSlicing":{},"mps":{}},"memory":{}`), "", false},
	"partition's interval":    {mig(`"sharing":{"timeSlicing":{"interval":"Default"}}`), "", false},
	"least":                   {gpu(`"sharing":{"mps":{"activeThreadPercentage":1}},"memory":{"softLimit":1048576}`), "", false},
	"most":                    {gpu(`"memory":{"softLimit":1125899906842624}`), "", false},
	"least and most as text":  {gpu(`"sharing":{"mps":{"pinnedDeviceMemoryLimit":"1Mi"}},"memory":{"softLimit":"1Pi"}`), "", false},
	"decimal, with exponents": {gpu(`"sharing":{"mps":{"pinnedDeviceMemoryLimit":"1.5e9"}},"memory":{"softLimit":1.5e9}`), "", false},

	"interval": {gpu(`"sharing":{"timeSlicing":{"interval":"long"}}`),
		`sharing.timeSlicing.interval: Unsupported value: "long": supported values: "Default", "Short", "Medium", "Long"`, false},
	"partition's own interval": {mig(`"sharing":{"timeSlicing":{"interval":"Long"}}`),
		`sharing.timeSlicing.interval: Invalid value: "Long": a partition has no time slice of its own; leave it out, or ask for Default`, false},
	"partition's unknown interval": {mig(`"sharing":{"timeSlicing":{"interval":"Eternal"}}`),
		`sharing.timeSlicing.interval: Unsupported value: "Eternal": supported values: "Default", "Short", "Medium", "Long"`, false},
	"enforcement of MPS": {gpu(`"sharing":{"mps":{"enforcement":"Please"}}`),
		`sharing.mps.enforcement: Unsupported value: "Please": supported values: "Required", "Preferred", "None"`, false},
	"enforcement of memory": {mig(`"memory":{"enforcement":"required"}`),
		`memory.enforcement: Unsupported value: "required": supported values: "Required", "Preferred", "None"`, false},
	"long value": {gpu(`"memory":{"enforcement":"` + strings.Repeat("x", 9000) + `"}`),
		`memory.enforcement: Unsupported value: "` + strings.Repeat("x", 500) + `...": supported values: "Required", "Preferred", "None"`, false},
	"no percentage":       {gpu(`"sharing":{"mps":{"activeThreadPercentage":0}}`), `sharing.mps.activeThreadPercentage: Invalid value: 0: must be from 1 to 100`, false},
	"negative percentage": {gpu(`"sharing":{"mps":{"activeThreadPercentage":-1}}`), `sharing.mps.activeThreadPercentage: Invalid value: -1: must be from 1 to 100`, false},
	"too many percent":    {gpu(`"sharing":{"mps":{"activeThreadPercentage":101}}`), `sharing.mps.activeThreadPercentage: Invalid value: 101: must be from 1 to 100`, false},
	"no memory":           {gpu(`"memory":{"softLimit":0}`), `memory.softLimit: Invalid value: "0": must be from 1Mi to 1Pi`, false},
	"negative memory":     {gpu(`"memory":{"softLimit":-1048576}`), `memory.softLimit: Invalid value: "-1048576": must be from 1Mi to 1Pi`, false},
	"too little":          {gpu(`"memory":{"softLimit":1048575}`), `memory.softLimit: Invalid value: "1048575": must be from 1Mi to 1Pi`, false},
	"too much":            {gpu(`"memory":{"softLimit":1125899906842625}`), `memory.softLimit: Invalid value: "1125899906842625": must be from 1Mi to 1Pi`, false},

	"meant as MiB":             {gpu(`"memory":{"softLimit":"512"}`), `memory.softLimit: Invalid value: "512": must be from 1Mi to 1Pi`, true},
	"m for M":                  {gpu(`"memory":{"softLimit":"512m"}`), `memory.softLimit: Invalid value: "512m": must be from 1Mi to 1Pi`, true},
	"negative text":            {mig(`"sharing":{"mps":{"pinnedDeviceMemoryLimit":"-1Gi"}}`), `sharing.mps.pinnedDeviceMemoryLimit: Invalid value: "-1Gi": must be from 1Mi to 1Pi`, true},
	"more than 64 bits":        {gpu(`"memory":{"softLimit":"1e99"}`), `memory.softLimit: Invalid value: "1e99": must be from 1Mi to 1Pi`, true},
	"more than 64 bits, below": {gpu(`"memory":{"softLimit":"-1e99"}`), `memory.softLimit: Invalid value: "-1e99": must be from 1Mi to 1Pi`, true},
	"nearly nothing":           {gpu(`"memory":{"softLimit":"1e-99"}`), `memory.softLimit: Invalid value: "1e-9": must be from 1Mi to 1Pi`, true},
	"several": {gpu(`"sharing":{"mps":{"enforcement":"x","activeThreadPercentage":0,"pinnedDeviceMemoryLimit":"0"}},"memory":{"enforcement":"y","softLimit":"1"}`),
		`[sharing.mps.enforcement: Unsupported value: "x": supported values: "Required", "Preferred", "None", ` +
			`sharing.mps.activeThreadPercentage: Invalid value: 0: must be from 1 to 100, ` +
			`sharing.mps.pinnedDeviceMemoryLimit: Invalid value: "0": must be from 1Mi to 1Pi, ` +
			`memory.enforcement: Unsupported value: "y": supported values: "Required", "Preferred", "None", ` +
			`memory.softLimit: Invalid value: "1": must be from 1Mi to 1Pi]`, false},
}

func TestValidate(t *testing.T) {
	for name, test := range validationTests {
		t.Run(name, func(t *testing.T) {
			config, err := Decode([]byte(test.in))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := config.Validate().ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
