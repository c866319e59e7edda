package typefile_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/simulate"
	"apportion.dev/apportion/pkg/plan/simulate/typefile"
)

// write makes a file of a name in an empty folder, which becomes the current one.
func write(t *testing.T, name, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// outline is a line for each type.
func outline(types []*simulate.InstanceType) []string {
	var lines []string
	for _, it := range types {
		devices := 0
		for _, slice := range it.Templates[0].Slices {
			devices += len(slice.SharedCounters)
		}
		line := fmt.Sprintf("%s: %v, %d GPUs, price %v", it.Name, it.Labels[corev1.LabelTopologyZone], devices, it.Price)
		if cpu, limited := it.Allocatable[corev1.ResourceCPU]; limited {
			line += ", cpu " + cpu.String()
		}
		for _, taint := range it.Taints {
			line += ", taint " + taint.ToString()
		}
		lines = append(lines, line)
	}
	return lines
}

func TestTypesOfNamesPatternsAndFiles(t *testing.T) {
	write(t, "types.yaml", `
instanceTypes:
- {name: p5.48xlarge, price: 50.5, zones: [a, b], allocatable: {cpu: 190}}
- {name: box, product: l4, gpus: 2, labels: {disk: [slow, fast], owner: me}, taints: [{key: own, effect: NoSchedule}]}
`)
	types, err := typefile.Load([]string{"types.yaml", "p5*xlarge", "g6.xlarge"}, typefile.Options{Zones: []string{"z"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"g6.xlarge: [z], 1 GPUs, price 0",
		"p5.4xlarge: [z], 1 GPUs, price 0",
		"p5.48xlarge: [a b], 8 GPUs, price 50.5, cpu 190",
		"p5e.48xlarge: [z], 8 GPUs, price 0",
		"p5en.48xlarge: [z], 8 GPUs, price 0",
		"box: [z], 2 GPUs, price 0, taint own:NoSchedule",
	}
	if diff := cmp.Diff(want, outline(types)); diff != "" {
		t.Error(diff)
	}
	box := types[5].Labels
	if !slices.Equal(box["disk"], []string{"slow", "fast"}) || !slices.Equal(box["owner"], []string{"me"}) {
		t.Errorf("labels %v", box)
	}
	alone, err := typefile.Load([]string{"types.yaml"}, typefile.Options{})
	if err != nil || len(alone) != 2 {
		t.Errorf("a file alone: %v, %v", outline(alone), err)
	}
}

// A type that is described has the place of one of the catalog.
func TestADescribedTypeOfAKnownName(t *testing.T) {
	write(t, "types.yaml", "cloud: lab\ninstanceTypes: [{name: p5.48xlarge, product: l4, gpus: 3}]\n")
	for _, arguments := range [][]string{{"types.yaml", "p5.48xlarge"}, {"types.yaml"}} {
		types, err := typefile.Load(arguments, typefile.Options{})
		if err != nil || len(types) != 1 || outline(types)[0] != "p5.48xlarge: [], 3 GPUs, price 0" {
			t.Errorf("%v: %v, %v", arguments, outline(types), err)
		}
	}
}

func TestAllOfTheCatalogWithoutArguments(t *testing.T) {
	types, err := typefile.Load(nil, typefile.Options{})
	if err != nil || len(types) < 50 {
		t.Errorf("%d types, %v", len(types), err)
	}
}

func TestFilesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"[]":                           "cannot unmarshal",
		"cloud: x":                     "instanceTypes is missing: list the types there",
		"instanceTypes: []":            "instanceTypes is missing",
		"instanceTypes: [p5.48xlarge]": "instance type 1: this is no object with a name",
		"instanceTypes: [{price: 1}]":  "instance type 1: name is missing",
		"instanceTypes: [{name: p5.48xlarge, price: -1}]":                                             "p5.48xlarge: price -1 is negative",
		"instanceTypes: [{name: p5.48xlarge, price: cheap}]":                                          "instance type 1: ",
		"instanceTypes: [{name: p5.48xlarge, zone: a}]":                                               `unknown field "zone"`,
		"instanceTypes: [{name: p5.48xlarge}, {name: p5.48xlarge}]":                                   "instance type p5.48xlarge is there twice",
		"instanceTypes: [{name: p5.40xlarge}]":                                                        `unknown instance type "p5.40xlarge"; known are: `,
		"instanceTypes: [{name: box, gpus: 2}]":                                                       "box",
		"instanceTypes: [{name: p5.48xlarge, labels: {a b: c}}]":                                      `p5.48xlarge: label "a b": `,
		"instanceTypes: [{name: p5.48xlarge, labels: {a: [b, \"c d\"]}}]":                             `p5.48xlarge: label a: "c d": `,
		"instanceTypes: [{name: p5.48xlarge, allocatable: {cpu: many}}]":                              "instance type 1: ",
		"instanceTypes: [{name: p5.48xlarge, taints: [{key: a, effect: NoSchedule, colour: green}]}]": `unknown field "colour"`,
	} {
		write(t, "types.yaml", text)
		_, err := typefile.Load([]string{"types.yaml"}, typefile.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), "instance types in types.yaml: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for argument, want := range map[string]string{
		"none.yaml": "instance types in none.yaml: there is no such file",
		"z9*":       `instance types "z9*": no type has such a name`,
		"[":         `instance types "[": this is no pattern: `,
		"p5.1":      `unknown instance type "p5.1"`,
	} {
		if _, err := typefile.Load([]string{argument}, typefile.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", argument, err)
		}
	}
}

func TestTemplatesOfFurtherDrivers(t *testing.T) {
	types, err := typefile.Load([]string{"g6.xlarge", "p5.48xlarge"}, typefile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	template := func(driver, device string) allocator.Template {
		return allocator.Template{Driver: driver, Slices: []allocator.TemplateSlice{{Devices: []resourceapi.Device{{Name: device}}}}}
	}
	got := typefile.AddTemplates(types, map[string][]allocator.Template{
		"g6.xlarge":  {template("a-nic.example.com", "nic"), template("gpu.apportion.dev", "other")},
		"box":        {template("gpu.apportion.dev", "mine")},
		"g6.2xlarge": {template("a-nic.example.com", "nic")}, // It was not asked for.
	}, []string{"z"})
	var lines []string
	for _, it := range got {
		line := it.Name
		for _, template := range it.Templates {
			line += fmt.Sprintf(" %s:%s", template.Driver, template.Slices[len(template.Slices)-1].Devices[0].Name)
		}
		lines = append(lines, line)
	}
	want := []string{
		"g6.xlarge a-nic.example.com:nic gpu.apportion.dev:other",
		"p5.48xlarge gpu.apportion.dev:" + types[1].Templates[0].Slices[len(types[1].Templates[0].Slices)-1].Devices[0].Name,
		"box gpu.apportion.dev:mine",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if len(types[0].Templates) != 1 {
		t.Error("the input was changed")
	}
}
