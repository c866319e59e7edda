package solver

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// quantity is nil for an empty text.
func quantity(text string) *resource.Quantity {
	if text == "" {
		return nil
	}
	return ptr.To(resource.MustParse(text))
}

func rangePolicy(fallback, least, most, step string) *resourceapi.CapacityRequestPolicy {
	return &resourceapi.CapacityRequestPolicy{
		Default:    quantity(fallback),
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity(least), Max: quantity(most), Step: quantity(step)},
	}
}

func valuesPolicy(fallback string, values ...string) *resourceapi.CapacityRequestPolicy {
	p := &resourceapi.CapacityRequestPolicy{Default: quantity(fallback)}
	for _, v := range values {
		p.ValidValues = append(p.ValidValues, resource.MustParse(v))
	}
	return p
}

func TestWhatARequestTakesOfACapacity(t *testing.T) {
	for name, test := range map[string]struct {
		value, request string
		policy         *resourceapi.CapacityRequestPolicy
		want           string // empty if the device does not fit
		err            string
	}{
		"all without a request and a policy":     {value: "40Gi", want: "40Gi"},
		"what is asked for without a policy":     {value: "40Gi", request: "3Gi", want: "3Gi"},
		"too much without a policy":              {value: "40Gi", request: "41Gi"},
		"the default":                            {value: "40Gi", policy: rangePolicy("8Gi", "1Gi", "", "1Gi"), want: "8Gi"},
		"the default, even against the policy":   {value: "40Gi", policy: rangePolicy("9", "1Gi", "", "1Gi"), want: "9"},
		"the minimum":                            {value: "40Gi", request: "1Mi", policy: rangePolicy("8Gi", "2Gi", "", "1Gi"), want: "2Gi"},
		"the next step":                          {value: "40Gi", request: "2Gi", policy: rangePolicy("9Gi", "1Gi", "", "4Gi"), want: "5Gi"},
		"a step exactly":                         {value: "40Gi", request: "5Gi", policy: rangePolicy("9Gi", "1Gi", "", "4Gi"), want: "5Gi"},
		"the next step is above the maximum":     {value: "40Gi", request: "8Gi", policy: rangePolicy("1Gi", "1Gi", "8Gi", "4Gi")},
		"anything above the minimum, no step":    {value: "40Gi", request: "2500Mi", policy: rangePolicy("1Gi", "1Gi", "8Gi", ""), want: "2500Mi"},
		"thousandths":                            {value: "4", request: "700m", policy: rangePolicy("500m", "500m", "2", "500m"), want: "1"},
		"thousandths that stay":                  {value: "4", request: "1100m", policy: rangePolicy("500m", "500m", "2", "500m"), want: "1500m"},
		"finer than thousandths":                 {value: "4", request: "1100100u", policy: rangePolicy("500m", "500m", "2", "500m"), err: "cannot be represented"},
		"a step below a thousandth, whole units": {value: "40", request: "2500m", policy: rangePolicy("1", "1", "", "100u"), want: "3"},
		"beyond the integers":                    {value: "1e30", request: "1e20", policy: rangePolicy("1", "1", "", "1u"), err: "cannot be represented"},
		"rounded up beyond the integers":         {value: "1e30", request: "9223372036854775807", policy: rangePolicy("1", "1", "", "9223372036854775000"), err: "cannot be represented"},
		"no step at all":                         {value: "4", request: "2", policy: rangePolicy("1", "1", "", "0"), err: "step"},
		"the next valid value":                   {value: "40Gi", request: "11Gi", policy: valuesPolicy("10Gi", "10Gi", "20Gi", "40Gi"), want: "20Gi"},
		"a valid value exactly":                  {value: "40Gi", request: "10Gi", policy: valuesPolicy("10Gi", "10Gi", "20Gi"), want: "10Gi"},
		"above all valid values":                 {value: "40Gi", request: "21Gi", policy: valuesPolicy("10Gi", "10Gi", "20Gi")},
		"a policy that says nothing":             {value: "40Gi", request: "21Gi", policy: &resourceapi.CapacityRequestPolicy{}, want: "21Gi"},
		"a negative request":                     {value: "40Gi", request: "-1", err: "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &filter{capacity: make(map[resourceapi.QualifiedName]resource.Quantity)}
			if test.request != "" {
				f.capacity["memory"] = resource.MustParse(test.request)
			}
			d := device("d", shared, capacityOf("memory", test.value, test.policy))
			consumed, fits, err := f.consume(capacitiesOf(&d))
			switch {
			case test.err != "":
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
			case err != nil:
				t.Error(err)
			case fits != (test.want != ""):
				t.Errorf("fits: %v", fits)
			case fits && consumed[0].quantity.String() != test.want:
				t.Errorf("takes %s, want %s", consumed[0].quantity.String(), test.want)
			}
		})
	}
}

func TestACapacityThatADeviceDoesNotHaveDoesNotFit(t *testing.T) {
	f := &filter{capacity: map[resourceapi.QualifiedName]resource.Quantity{"other": resource.MustParse("1")}}
	// Not even if another capacity would be an error.
	d := device("d", capacityOf("memory", "-1"))
	if _, fits, err := f.consume(capacitiesOf(&d)); fits || err != nil {
		t.Errorf("fits: %v, error %v", fits, err)
	}
}
