package devicemodel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// tainted lists the devices with taints and their problems' first words.
func tainted(m *Model) []string {
	var lines []string
	for _, d := range m.Devices {
		for _, taint := range d.API.Taints {
			lines = append(lines, fmt.Sprintf("%s %s=%s:%s", strings.TrimPrefix(d.API.Name, "gpu-4f3a1b2c-mig-"), taint.Key, taint.Value, taint.Effect))
		}
		if (d.Problem == "") != (len(d.API.Taints) == 0) {
			lines = append(lines, fmt.Sprintf("%s has taints %v and the problem %q", d.API.Name, d.API.Taints, d.Problem))
		}
	}
	return lines
}

func TestTaints(t *testing.T) {
	xid := func(code int, instance ...int) inventory.XID {
		x := inventory.XID{Code: code}
		if len(instance) > 0 {
			x.GPUInstance = &instance[0]
		}
		return x
	}
	everywhere := func(value string) []string {
		var lines []string
		for _, device := range []string{"2g-12gb-2", "2g-12gb-0", "2g-12gb-me-2", "2g-12gb-me-0", "4g-24gb-0", "gpu-4f3a1b2c"} {
			lines = append(lines, device+" example.com/unhealthy="+value+":NoSchedule")
		}
		return lines
	}
	held := map[inventory.Partition]int{{GPU: uuidA, Profile: "2g.12gb", Start: 2}: 4, {GPU: uuidB, Profile: "2g.12gb", Start: 0}: 5}
	for _, tc := range []struct {
		name    string
		problem string
		xids    []inventory.XID
		missing []inventory.Partition
		want    []string
	}{
		{"all is well", "", nil, nil, nil},
		{"lost", "the GPU is lost: it fell off the bus", nil, nil, everywhere("lost")},
		{"needs a reset", "the GPU needs a reset before it can be used", nil, nil, everywhere("needs-reset")},
		{"some other problem", "the GPU has not enough power", nil, nil, everywhere("unusable")},
		{"of the whole GPU", "", []inventory.XID{xid(79)}, nil, everywhere("xid-79")},
		{"of a partition in use", "", []inventory.XID{xid(94, 4)}, nil, []string{"2g-12gb-2 example.com/unhealthy=xid-94:NoSchedule"}},
		{"two of a partition, one twice", "", []inventory.XID{xid(95, 4), xid(48, 4), xid(95, 4)}, nil, []string{
			"2g-12gb-2 example.com/unhealthy=xid-48:NoSchedule", "2g-12gb-2 example.com/unhealthy=xid-95:NoSchedule",
		}},
		{"of an instance that is nobody's", "", []inventory.XID{xid(94, 5)}, nil, nil},
		{"a destroyed partition", "", nil, []inventory.Partition{{GPU: uuidA, Profile: "2g.12gb+me", Start: 0}}, []string{"2g-12gb-me-0 example.com/missing=destroyed:NoSchedule"}},
		{"a destroyed partition's old error", "", []inventory.XID{xid(94, 4)}, []inventory.Partition{{GPU: uuidA, Profile: "2g.12gb", Start: 2}}, []string{"2g-12gb-2 example.com/missing=destroyed:NoSchedule"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gpu := halves()
			gpu.Problem, gpu.XIDs = tc.problem, tc.xids
			m := Build(node(gpu), Policy{TaintDomain: "example.com", Held: held, Missing: tc.missing})
			if diff := cmp.Diff(tc.want, tainted(m)); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestXIDOfAnAdministratorsPartition(t *testing.T) {
	gpu := halves()
	gpu.MIG.Enabled = ptr(true)
	gpu.MIG.Instances = []inventory.MIGInstance{foreignInstance(gpu, "2g.12gb", 2, 7)}
	gpu.XIDs = []inventory.XID{{Code: 94, GPUInstance: ptr(7)}}
	want := []string{"2g-12gb-2 unhealthy=xid-94:NoSchedule"}
	if diff := cmp.Diff(want, tainted(Build(node(gpu), Policy{}))); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}

func TestProblemSaysAllThatIsWrong(t *testing.T) {
	gpu := halves()
	gpu.XIDs = []inventory.XID{{Code: 79}, {Code: 48}, {Code: 94, GPUInstance: ptr(4)}}
	gpu.Problem = "the GPU is lost"
	m := Build(node(gpu), Policy{
		Held:    map[inventory.Partition]int{{GPU: uuidA, Profile: "2g.12gb", Start: 0}: 4},
		Missing: []inventory.Partition{{GPU: uuidA, Profile: "2g.12gb", Start: 2}},
	})
	for device, parts := range map[string][]string{
		"gpu-4f3a1b2c":               []string{"the GPU is lost; ", "Xid 48 on the GPU", "Xid 79 on the GPU"},
		"gpu-4f3a1b2c-mig-2g-12gb-0": []string{"Xid 94 in the partition", "; the GPU is lost; ", "Xid 48 on", "Xid 79 on"},
		"gpu-4f3a1b2c-mig-2g-12gb-2": []string{"somebody else destroyed the partition", "; the GPU is lost; ", "Xid 48 on", "Xid 79 on"},
		"gpu-4f3a1b2c-mig-4g-24gb-0": []string{"the GPU is lost; ", "Xid 48 on", "Xid 79 on"},
	} {
		d, ok := m.Device(device)
		if !ok {
			t.Fatalf("there is no device %s", device)
		}
		rest := d.Problem
		for _, part := range parts {
			_, after, found := strings.Cut(rest, part)
			if !found {
				t.Errorf("problem of %s is %q, want %q after what comes before", device, d.Problem, part)
			}
			rest = after
		}
	}
}

func TestTaintsKeepToTheLimitsOfTheAPI(t *testing.T) {
	gpu := halves()
	gpu.Problem = strings.Repeat("ä", 300)
	for code := range 40 {
		gpu.XIDs = append(gpu.XIDs, inventory.XID{Code: code - 3}, inventory.XID{Code: code, GPUInstance: ptr(1)})
	}
	m := Build(node(gpu), Policy{
		TaintDomain: "gpu.apportion.dev",
		Held:        map[inventory.Partition]int{{GPU: uuidA, Profile: "2g.12gb", Start: 0}: 1},
		Missing:     []inventory.Partition{{GPU: uuidA, Profile: "2g.12gb", Start: 2}},
	})
	for _, d := range m.Devices {
		if n := len(d.API.Taints); n == 0 || n > resourceapi.DeviceTaintsMaxLength {
			t.Errorf("%s has %d taints", d.API.Name, n)
		}
		for _, taint := range d.API.Taints {
			if errs := metav1validation.ValidateLabelName(taint.Key, field.NewPath("key")); len(errs) > 0 {
				t.Errorf("%s: %v", d.API.Name, errs)
			}
			if errs := validation.IsValidLabelValue(taint.Value); len(errs) > 0 {
				t.Errorf("%s: value %q: %v", d.API.Name, taint.Value, errs)
			}
		}
	}
}

// The words of inventory are recognized.
func TestLostGPUOfAMachineIsTaintedAsLost(t *testing.T) {
	machine, err := fakegpu.Create(t.TempDir(), fakegpu.Spec{Node: "node-a", GPUs: []string{"h100-sxm5-80gb"}})
	if err != nil {
		t.Fatal(err)
	}
	source := inventory.NewNVML(inventory.Options{Library: machine.NVML(), SysFS: machine.SysFS()})
	defer func() {
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	}()
	before, err := source.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := machine.LoseGPU("0"); err != nil {
		t.Fatal(err)
	}
	after, err := source.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	was, is := Build(before, Policy{}), Build(after, Policy{})
	if len(is.Devices) != len(was.Devices) {
		t.Errorf("%d devices are published, before it was %d", len(is.Devices), len(was.Devices))
	}
	for _, d := range is.Devices {
		if len(d.API.Taints) != 1 || d.API.Taints[0].Value != TaintValueLost {
			t.Errorf("%s has the taints %v", d.API.Name, d.API.Taints)
		}
	}
}
