package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"apportion.dev/apportion/pkg/ownership"
)

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"train-0":                  "train-0",
		"größer 大きい ✓":             "größer 大きい ✓",
		"\x1b[2Jgone":              `\x1b[2Jgone`,
		"a\tb\nc\rd":               `a\tb\nc\rd`,
		"bell\a, delete\x7f":       `bell\a, delete\x7f`,
		"C1 \u009b31m":             `C1 \u009b31m`,
		"right \u202eto left":      `right \u202eto left`,
		"no width\u200b":           `no width\u200b`,
		"hard space\u00a0":         `hard space\u00a0`,
		"not UTF-8 \xff\x9b":       `not UTF-8 \xff\x9b`,
		"replacement \ufffd":       "replacement \ufffd",
		"tag \U000e0041":           `tag \U000e0041`,
		`a backslash \x1b of text`: `a backslash \x1b of text`,
	} {
		if got := visible(text); got != want {
			t.Errorf("%q is shown as %s, want %s", text, got, want)
		}
		if again := visible(want); again != want {
			t.Errorf("%s becomes %s", want, again)
		}
	}
}

// evil is what a user of a namespace may write, and more.
const evil = "\x1b[2J\x1b]0;title\a\u009b31m\u202e\U000e0041\x7f"

func evilOwners() []ownership.Owner {
	return []ownership.Owner{{
		Device: ownership.Device{
			Driver: testDriver, Pool: "n" + evil, Name: "d" + evil, UUID: "u" + evil, ParentUUID: "p" + evil, Type: "mig", Profile: "f" + evil,
			ShareID: "s" + evil, Fraction: 0.5,
		},
		Claim: ownership.ClaimRef{Namespace: "ns" + evil, Name: "c" + evil, UID: "i" + evil}, Request: "r" + evil,
		Consumed: map[string]string{"memory" + evil: evil, "memory": evil}, Since: noon,
		Consumers: []ownership.Consumer{{
			Namespace: "ns" + evil, Name: "p" + evil, UID: "i" + evil, Node: evil, State: ownership.PodState(evil),
			Workload:   &ownership.Workload{APIVersion: evil, Kind: "K" + evil, Name: evil},
			Labels:     map[string]string{"l" + evil: evil},
			Containers: []ownership.Container{{Name: evil, Kind: ownership.ContainerKind(evil), ID: evil}},
		}},
	}}
}

func TestNoTextReachesTheTerminalAsControlCharacters(t *testing.T) {
	v := view{owners: evilOwners(), problem: "problem" + evil + "\nsecond line"}
	for _, output := range []string{"table", "wide", "json", "yaml"} {
		for _, by := range []string{"", byNamespace, byWorkload, byNode} {
			for _, width := range []int{0, 40} {
				o := &ownersOptions{output: newOutputFlag(output), by: &outputFlag{value: by}, surroundings: around(nil)}
				var out strings.Builder
				if err := o.render(&out, v, noon, width); err != nil {
					t.Fatal(err)
				}
				if out.Len() == 0 || strings.ContainsFunc(out.String(), isHarmful) {
					t.Errorf("%s by %q, %d wide: %q", output, by, width, out.String())
				}
			}
		}
	}
	s := screen{options: &ownersOptions{output: newOutputFlag("table"), by: &outputFlag{}, surroundings: around(nil)}}
	var out strings.Builder
	s.out = &out
	if err := s.show(v); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(out.String(), isHarmful) || strings.Count(out.String(), "\n") != 5 {
		t.Errorf("a watch shows %q", out.String())
	}
}

func isHarmful(r rune) bool { return r != '\n' && visible(string(r)) != string(r) }

// What programs read says what was there.
func TestHarmlessJSONAndYAMLKeepTheText(t *testing.T) {
	want := ownerList{Owners: evilOwners()}
	for _, output := range []string{"json", "yaml"} {
		var out strings.Builder
		if err := printHarmless(&out, output, want); err != nil {
			t.Fatal(err)
		}
		var got ownerList
		unmarshal := func(data []byte) error { return json.Unmarshal(data, &got) }
		if output == "yaml" {
			unmarshal = func(data []byte) error { return yaml.UnmarshalStrict(data, &got) }
		}
		if err := unmarshal([]byte(out.String())); err != nil {
			t.Fatalf("%v in %s", err, out.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", output, diff)
		}
	}
}

func TestAge(t *testing.T) {
	for since, want := range map[time.Time]string{
		{}:                              "-",
		noon:                            "0s",
		noon.Add(time.Minute):           "0s", // Clocks differ.
		noon.Add(-90 * time.Minute):     "90m",
		noon.Add(-30 * time.Hour):       "30h",
		noon.Add(-400 * 24 * time.Hour): "400d",
	} {
		if got := age(since, noon); got != want {
			t.Errorf("since %s: %s, want %s", since, got, want)
		}
	}
	if got := age(noon, time.Time{}); got != "-" {
		t.Errorf("without a clock: %s", got)
	}
}

func TestNumbers(t *testing.T) {
	for gpus, want := range map[float64]string{0: "0", 1: "1", 0.125: "0.125", 1.0 / 3: "0.333", 0.1 + 0.2: "0.3", 16: "16"} {
		if got := parts(gpus); got != want {
			t.Errorf("%v is written %s, want %s", gpus, got, want)
		}
	}
	if got := rounded(0.1 + 0.2); got != 0.3 {
		t.Errorf("0.1 + 0.2 = %v", got)
	}
	if got := fmt.Sprint(percent(0), percent(1), percent(0.4375)); got != "0.0%100.0%43.8%" {
		t.Errorf("percentages are %s", got)
	}
}

func TestWhatIsHeldOfADevice(t *testing.T) {
	unknown := newHardware(nil, testDriver)
	known := newHardware(nil, testDriver)
	known.add(testDriver, "n", gpuDevice("gpu-4f3a1b2c", uuidA, "40Gi"))
	known.add(testDriver, "n", partitionDevice("gpu-0badcafe-mig-1g-5gb-me-3", "gpu-0badcafe", uuidB, "1g.5gb+me", "4Gi", 1))
	gpu := ownership.Device{Pool: "n", Name: "gpu-4f3a1b2c", Type: "gpu", Fraction: 1}
	mig := ownership.Device{Pool: "n", Name: "gpu-0badcafe-mig-1g-5gb-me-3", Type: "mig", Profile: "1g.5gb+me", Fraction: 0.125}
	shared := func(d ownership.Device, fraction float64) ownership.Device {
		d.ShareID, d.Fraction = "s", fraction
		return d
	}
	memory := func(amount string) map[string]string { return map[string]string{"memory": amount} }
	for name, test := range map[string]struct {
		hardware *hardware
		owner    ownership.Owner
		others   int
		want     string
	}{
		"a GPU that is not shared":         {nil, ownership.Owner{Device: gpu}, 0, "whole"},
		"all of a GPU":                     {nil, ownership.Owner{Device: shared(gpu, 1), Consumed: memory("40Gi")}, 0, "whole"},
		"a part of a GPU":                  {nil, ownership.Owner{Device: shared(gpu, 0.25), Consumed: memory("10Gi")}, 0, "share"},
		"a GPU of unknown size":            {nil, ownership.Owner{Device: shared(gpu, 0), Consumed: memory("10Gi")}, 0, "-"},
		"a GPU of unknown size and others": {nil, ownership.Owner{Device: shared(gpu, 0), Consumed: memory("10Gi")}, 1, "share"},
		"a GPU of known size":              {known, ownership.Owner{Device: shared(gpu, 0), Consumed: memory("10Gi")}, 0, "share"},
		"an onlooker":                      {known, ownership.Owner{Device: shared(gpu, 0), AdminAccess: true}, 0, "admin"},
		"a partition":                      {nil, ownership.Owner{Device: mig}, 0, "1g.5gb+me@3"},
		"all of a partition":               {known, ownership.Owner{Device: shared(mig, 0.125), Consumed: memory("4Gi")}, 0, "1g.5gb+me@3"},
		"a part of a partition":            {known, ownership.Owner{Device: shared(mig, 0.06), Consumed: memory("2Gi")}, 0, "1g.5gb+me@3 share"},
		"a partition of unknown size":      {unknown, ownership.Owner{Device: shared(mig, 0.125), Consumed: memory("2Gi")}, 0, "1g.5gb+me@3"},
		"a partition and others":           {nil, ownership.Owner{Device: shared(mig, 0.06), Consumed: memory("2Gi")}, 1, "1g.5gb+me@3 share"},
		"an onlooker on a partition":       {known, ownership.Owner{Device: shared(mig, 0), AdminAccess: true}, 1, "1g.5gb+me@3 admin"},
		"another driver's partition":       {nil, ownership.Owner{Device: ownership.Device{Name: "gpu-0-mig-19-0-1", Type: "mig", Profile: "1g.5gb"}}, 0, "1g.5gb"},
		"a partition without profile":      {nil, ownership.Owner{Device: ownership.Device{Name: "gpu-0-mig-19-0-1", Type: "mig"}}, 0, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{hardware: test.hardware, owners: []ownership.Owner{test.owner}}
			for range test.others {
				other := ownership.Owner{Device: test.owner.Device}
				other.Device.ShareID = "other"
				v.owners = append(v.owners, other, other)
			}
			if got := newHolds(v, v.owners[:1], noon)[0].part; got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
		})
	}
}
