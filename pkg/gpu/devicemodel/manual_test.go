package devicemodel

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

var update = flag.Bool("update", false, "write "+manual+" anew")

const manual = "../../../docs/attributes.md"

// attributeMeanings are what the manual says of attributes, in its order.
var attributeMeanings = [][2]string{
	{AttributeType, "`gpu` for a whole GPU, `mig` for a partition"},
	{AttributeUUID, "NVML's identifier. A partition that is made on demand gets a new one each time; it is in the claim's status and in the pod's metadata file"},
	{AttributeParentUUID, "UUID of the GPU on which it lies"},
	{AttributeProfile, "MIG profile, as `nvidia-smi` shows it"},
	{AttributeProductName, "NVML's name of the GPU"},
	{AttributeBrand, "NVML's name of the line, such as `Nvidia` or `Tesla`"},
	{AttributeArchitecture, "such as `Turing`, `Ampere`, `Ada`, `Hopper`, `Blackwell`"},
	{AttributeCUDAComputeCapability, "compute capability"},
	{AttributeDriverVersion, "of the NVIDIA driver; 580.95.05 is written `580.95.5`, as semantic versions have no leading zeros"},
	{AttributeCUDADriverVersion, "highest CUDA version that the driver supports"},
	{AttributeNVLinkDomain, "equal for the GPUs of a node that NVLink connects; absent for a GPU without"},
	{AttributeMIGCapable, "whether the GPU can be partitioned"},
	{AttributeMemoryEnforcement, "`nvml` where a share's memory is limited, `none` where it is only counted"},
	{"resource.kubernetes.io/pciBusID", "PCI address of the GPU"},
	{"resource.kubernetes.io/pcieRoot", "PCIe root complex of the GPU"},
	{"resource.kubernetes.io/numaNode", "NUMA node of the GPU"},
}

var capacityMeanings = [][2]string{
	{CapacityMemory, "memory, in bytes"},
	{CapacityShares, "claims that can hold the device at once"},
	{CapacityComputePercent, "percent of the GPU's compute"},
	{CapacityMultiprocessors, "streaming multiprocessors"},
	{CapacityCopyEngines, "copy engines"},
	{CapacityDecoders, "video decoders (NVDEC)"},
	{CapacityEncoders, "video encoders (NVENC)"},
	{CapacityJPEGEngines, "JPEG decoders (NVJPG)"},
	{CapacityOFAEngines, "optical flow accelerators (OFA)"},
}

// counterMeanings are by the names of counters in which numbers and profiles are
// left out.
var counterMeanings = [][2]string{
	{"memory-slice-N", "one slice of the GPU's memory, as placements count them"},
	{CounterMultiprocessors, "streaming multiprocessors"},
	{CounterCopyEngines, "copy engines"},
	{CounterDecoders, "video decoders"},
	{CounterEncoders, "video encoders"},
	{CounterJPEGEngines, "JPEG decoders"},
	{CounterOFAEngines, "optical flow accelerators"},
	{"instances-PROFILE", "instances of a profile, where nothing else limits them to what the hardware allows"},
}

// taintMeanings are by key and value, with numbers left out.
var taintMeanings = [][2]string{
	{"unhealthy=lost", "the GPU fell off the bus or does not answer"},
	{"unhealthy=needs-reset", "the GPU must be reset before it can be used"},
	{"unhealthy=unusable", "the GPU has some other problem"},
	{"unhealthy=xid-N", "NVIDIA's driver reported this critical error, of the GPU or of the partition"},
	{"missing=destroyed", "somebody else destroyed the partition while a claim had it"},
}

// manualDevices are devices that between them have all that can be published.
func manualDevices(t *testing.T) []Device {
	t.Helper()
	n := readNode(t, "h100-sxm5-80gb", "h100-sxm5-80gb", "rtx-pro-6000-96gb", "l4")
	for i := range n.GPUs {
		n.GPUs[i].MemoryLimits = ptr(true)
	}
	policy := Policy{MemoryEnforcement: MemoryEnforcementNVML, TaintDomain: testDriver}
	devices := Build(n, policy).Devices

	faulty := node(l4(uuidA, "0000:01:00.0"), l4(uuidB, "0000:02:00.0"), l4(uuidC, "0000:03:00.0"), halves())
	for i, problem := range []string{"the GPU is lost", "the GPU needs a reset", "the GPU has not enough power"} {
		faulty.GPUs[i].Problem = problem
	}
	faulty.GPUs[0].XIDs = []inventory.XID{{Code: 79}}
	last := &faulty.GPUs[3]
	last.UUID, last.PCIBusID = uuidD, "0000:04:00.0"
	last.MIG.Profiles[1].JPEGEngines, last.MIG.Profiles[2].JPEGEngines = 0, 0
	last.MIG.Enabled = ptr(true)
	last.MIG.Instances = []inventory.MIGInstance{foreignInstance(*last, "2g.12gb", 0, 1)}
	policy.Missing = []inventory.Partition{{GPU: uuidD, Profile: "2g.12gb+me", Start: 2}}
	return append(devices, Build(faulty, policy).Devices...)
}

// found is what the devices have under one name.
type found struct {
	kinds    map[string]bool
	examples []string
	forms    map[string]bool
}

type foundByName map[string]*found

func (f foundByName) note(d Device, name, form, example string) {
	if f[name] == nil {
		f[name] = &found{kinds: map[string]bool{}, forms: map[string]bool{}}
	}
	kind := "GPU"
	switch {
	case d.MIGDevice != "":
		kind = "administrator's partition"
	case d.Partition != nil:
		kind = "partition"
	}
	f[name].kinds[kind], f[name].forms[form] = true, true
	if !slices.Contains(f[name].examples, example) {
		f[name].examples = append(f[name].examples, example)
	}
}

// of says which devices have it.
func (f *found) of() string {
	var of []string
	for _, kind := range []string{"GPU", "partition", "administrator's partition"} {
		if f.kinds[kind] && (kind != "administrator's partition" || !f.kinds["partition"]) {
			of = append(of, kind)
		}
	}
	return strings.Join(of, ", ")
}

// rows makes the rows of a table from what the devices have and what it means. Both
// must be complete.
func rows(t *testing.T, have foundByName, meanings [][2]string, row func(name, meaning string, f *found) string) string {
	t.Helper()
	var table strings.Builder
	described := map[string]bool{}
	for _, m := range meanings {
		described[m[0]] = true
		f := have[m[0]]
		if f == nil {
			t.Errorf("no device of the example has %s", m[0])
			continue
		}
		table.WriteString(row(m[0], m[1], f) + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !described[name] {
			t.Errorf("it is not said what %s means", name)
		}
	}
	return table.String()
}

func attributesTable(t *testing.T, devices []Device) string {
	have := foundByName{}
	for _, d := range devices {
		for name, a := range d.API.Attributes {
			form, value := attributeValue(a)
			have.note(d, string(name), form, value)
		}
	}
	return "| attribute | type | of | is | such as |\n|---|---|---|---|---|\n" +
		rows(t, have, attributeMeanings, func(name, meaning string, f *found) string {
			return fmt.Sprintf("| `%s` | %s | %s | %s | `%s` |", name, joined(f.forms), f.of(), meaning, f.examples[0])
		})
}

func attributeValue(a resourceapi.DeviceAttribute) (form, value string) {
	switch {
	case a.StringValue != nil:
		return "string", *a.StringValue
	case a.VersionValue != nil:
		return "version", *a.VersionValue
	case a.BoolValue != nil:
		return "bool", fmt.Sprint(*a.BoolValue)
	}
	return "int", fmt.Sprint(*a.IntValue)
}

func capacitiesTable(t *testing.T, devices []Device) string {
	have := foundByName{}
	for _, d := range devices {
		for name, c := range d.API.Capacity {
			unasked := c.RequestPolicy.Default.String()
			if name == CapacityMemory && c.RequestPolicy.Default.Cmp(c.Value) == 0 {
				unasked = "all of it"
			}
			step := ""
			if c.RequestPolicy.ValidRange != nil {
				step = c.RequestPolicy.ValidRange.Step.String()
			}
			if c.Value.IsZero() {
				continue // Nothing that an example would show.
			}
			have.note(d, string(name), unasked+" | "+step, c.Value.String())
		}
	}
	return "| capacity | of | is | a claim that asks for none gets | in steps of | such as |\n|---|---|---|---|---|---|\n" +
		rows(t, have, capacityMeanings, func(name, meaning string, f *found) string {
			return fmt.Sprintf("| `%s` | %s | %s | %s | `%s` |", name, f.of(), meaning, joined(f.forms), f.examples[0])
		})
}

var (
	sliceNumber   = regexp.MustCompile(`^memory-slice-\d+$`)
	instancesOf   = regexp.MustCompile(`^instances-.+$`)
	xidNumber     = regexp.MustCompile(`=xid-\d+$`)
	partitionName = regexp.MustCompile(`-mig-.*-me-\d$`)
)

func countersTable(t *testing.T, devices []Device) string {
	have := foundByName{}
	for _, d := range devices {
		for name, c := range d.API.ConsumesCounters[0].Counters {
			name = sliceNumber.ReplaceAllString(name, "memory-slice-N")
			have.note(d, instancesOf.ReplaceAllString(name, "instances-PROFILE"), "", c.Value.String())
		}
	}
	return "| counter | counts |\n|---|---|\n" +
		rows(t, have, counterMeanings, func(name, meaning string, _ *found) string {
			return fmt.Sprintf("| `%s` | %s |", name, meaning)
		})
}

func taintsTable(t *testing.T, devices []Device) string {
	have := foundByName{}
	for _, d := range devices {
		for _, taint := range d.API.Taints {
			key, ok := strings.CutPrefix(taint.Key, testDriver+"/")
			if !ok || taint.Effect != resourceapi.DeviceTaintEffectNoSchedule {
				t.Errorf("%s has the taint %v", d.API.Name, taint)
			}
			have.note(d, xidNumber.ReplaceAllString(key+"="+taint.Value, "=xid-N"), "", "")
		}
	}
	return "| key | value | of | means |\n|---|---|---|---|\n" +
		rows(t, have, taintMeanings, func(name, meaning string, f *found) string {
			key, value, _ := strings.Cut(name, "=")
			return fmt.Sprintf("| `%s/%s` | `%s` | %s | %s |", testDriver, key, value, f.of(), meaning)
		})
}

func joined(words map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(words)), " or ")
}

// TestManual compares the manual with what the model publishes, and writes it anew
// with -update.
func TestManual(t *testing.T) {
	devices := manualDevices(t)
	page, err := template.New("attributes.md.tmpl").Funcs(template.FuncMap{
		"attributes": func() string { return attributesTable(t, devices) },
		"capacities": func() string { return capacitiesTable(t, devices) },
		"counters":   func() string { return countersTable(t, devices) },
		"taints":     func() string { return taintsTable(t, devices) },
		"name": func() string {
			i := slices.IndexFunc(devices, func(d Device) bool { return partitionName.MatchString(d.API.Name) })
			return fmt.Sprintf("`%s` is a %s at memory slice %d", devices[i].API.Name, devices[i].Partition.Profile, devices[i].Partition.Start)
		},
	}).ParseFiles("testdata/attributes.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := page.Execute(&want, nil); err != nil {
		t.Fatal(err)
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(manual, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("%s is not what the model says; run: go test ./pkg/gpu/devicemodel -run TestManual -update", manual)
	}
}

// The expressions in the manual select devices, and fail none of their class.
func TestTheManualsExamplesSelectDevices(t *testing.T) {
	page, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	_, examples, _ := strings.Cut(string(page), "## Examples\n")
	ofGPUs, ofPartitions, ok := strings.Cut(examples, "### Partitions\n")
	if !ok {
		t.Fatal("the manual has no examples of partitions")
	}
	devices := manualDevices(t)
	for class, text := range map[string]string{TypeGPU: ofGPUs, TypeMIG: ofPartitions} {
		expressions := strings.Split(text, "```cel\n")[1:]
		if len(expressions) < 3 {
			t.Errorf("there are %d examples of class %s", len(expressions), class)
		}
		for _, expression := range expressions {
			expression, _, _ = strings.Cut(expression, "\n```")
			compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{})
			if compiled.Error != nil {
				t.Errorf("%s: %v", expression, compiled.Error)
				continue
			}
			selected, passed := 0, 0
			for _, d := range devices {
				if *d.API.Attributes[AttributeType].StringValue != class {
					continue
				}
				matches, _, err := compiled.DeviceMatches(t.Context(), cel.Device{
					Driver: testDriver, AllowMultipleAllocations: d.API.AllowMultipleAllocations, Attributes: d.API.Attributes, Capacity: d.API.Capacity,
				})
				switch {
				case err != nil:
					t.Errorf("%s: device %s: %v", expression, d.API.Name, err)
				case matches:
					selected++
				default:
					passed++
				}
			}
			if selected == 0 || passed == 0 {
				t.Errorf("%s: selects %d devices and passes %d by", expression, selected, passed)
			}
		}
	}
}
