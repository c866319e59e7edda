package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"apportion.dev/apportion/pkg/plan/allocator"
)

func lookup(t *testing.T, name string) InstanceType {
	t.Helper()
	it, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

func TestObjectsAreReadBack(t *testing.T) {
	for _, name := range []string{"p5.48xlarge", "p3.8xlarge", "Standard_NC4as_T4_v3"} {
		want, err := Templates(lookup(t, name), Policy{DriverVersion: "580.95.05", CUDADriverVersion: "13.0"})
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Objects(name, want[0])
		if err != nil {
			t.Fatal(err)
		}
		var read []*resourceapi.ResourceSlice
		for _, object := range objects {
			data, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			slice := &resourceapi.ResourceSlice{}
			if err := yaml.UnmarshalStrict(data, slice); err != nil {
				t.Fatal(err)
			}
			if slice.Spec.NodeName != nil || slice.Spec.NodeSelector != nil || slice.Spec.AllNodes != nil || slice.Spec.Pool.Name != "" || slice.Spec.Pool.ResourceSliceCount != int64(len(objects)) {
				t.Errorf("slice %s names a node or a pool: %+v", slice.Name, slice.Spec.Pool)
			}
			read = append(read, slice)
		}
		got, err := FromObjects(read)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || !equality.Semantic.DeepEqual(want, got[name]) {
			t.Errorf("%s is read back otherwise: %s", name, cmp.Diff(want, got[name]))
		}
	}
}

func TestFromObjectsKeepsDriversAndTypesApart(t *testing.T) {
	object := func(instanceType, driver, pool, device, bindings string) *resourceapi.ResourceSlice {
		s := &resourceapi.ResourceSlice{}
		s.Name = "slice"
		if instanceType != "" {
			s.Labels = map[string]string{"node.kubernetes.io/instance-type": instanceType}
		}
		if bindings != "" {
			s.Annotations = map[string]string{BindingsAnnotation: bindings}
		}
		s.Spec = resourceapi.ResourceSliceSpec{Driver: driver, Pool: resourceapi.ResourcePool{Name: pool}, Devices: []resourceapi.Device{{Name: device}}}
		return s
	}
	got, err := FromObjects([]*resourceapi.ResourceSlice{
		object("a", "nic.example.com", "", "nic", ""),
		object("a", "gpu.example.com", "", "gpu-0", `[{"attribute": "resource.kubernetes.io/pcieRoot", "devices": ["gpu-0", "gpu-1"]}]`),
		object("b", "gpu.example.com", "fabric", "gpu-0", ""),
		object("a", "gpu.example.com", "", "gpu-1", ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	slice := func(device string) allocator.TemplateSlice {
		return allocator.TemplateSlice{Devices: []resourceapi.Device{{Name: device}}}
	}
	want := map[string][]allocator.Template{
		"a": {
			{
				Driver: "gpu.example.com", Slices: []allocator.TemplateSlice{slice("gpu-0"), slice("gpu-1")},
				Bindings: []allocator.Binding{{Attribute: "resource.kubernetes.io/pcieRoot", Devices: []string{"gpu-0", "gpu-1"}}},
			},
			{Driver: "nic.example.com", Slices: []allocator.TemplateSlice{slice("nic")}},
		},
		"b": {{Driver: "gpu.example.com", Pool: "fabric", Slices: []allocator.TemplateSlice{slice("gpu-0")}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for want, bad := range map[string]*resourceapi.ResourceSlice{
		`ResourceSlice "slice" does not say`: object("", "gpu.example.com", "", "gpu-0", ""),
		"annotation " + BindingsAnnotation:   object("a", "gpu.example.com", "", "gpu-0", "[["),
	} {
		if _, err := FromObjects([]*resourceapi.ResourceSlice{bad}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// What is made up to tell GPUs apart is nowhere in a template but in names.
func TestTemplatesMakeNothingUp(t *testing.T) {
	for _, name := range []string{"p5.48xlarge", "p3.16xlarge", "Standard_NC96ads_A100_v4", "g4dn.metal"} {
		for _, migMode := range []bool{false, true} {
			templates, err := Templates(lookup(t, name), Policy{MIGMode: migMode})
			if err != nil {
				t.Fatal(err)
			}
			for _, slice := range templates[0].Slices {
				for _, d := range slice.Devices {
					text, err := json.Marshal(d.Attributes)
					if err != nil {
						t.Fatal(err)
					}
					for _, made := range []string{"00000000", "0000:", "pci", "nvlink-", "uuid", "numa", "river"} {
						if strings.Contains(string(text), made) {
							t.Errorf("%s: device %s says %s", name, d.Name, text)
						}
					}
				}
			}
		}
	}
}

func TestPolicyMistakes(t *testing.T) {
	it := lookup(t, "g4dn.xlarge")
	for want, policy := range map[string]Policy{
		`driver name "GPU"`:                 {DriverName: "GPU"},
		`driver version "latest" is no`:     {DriverVersion: "latest"},
		`CUDA version of the driver "13.x"`: {CUDADriverVersion: "13.x"},
		"memory enforcement":                badEnforcement(),
	} {
		if _, err := Templates(it, policy); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q", err, want)
		}
		if _, err := it.Allocator(nil, 0, policy); err == nil {
			t.Errorf("%s: no error", want)
		}
	}
}

func badEnforcement() Policy {
	p := Policy{}
	p.Devices.MemoryEnforcement = "much"
	return p
}

func TestAllocatorLabels(t *testing.T) {
	it, err := lookup(t, "p5.48xlarge").Allocator([]string{"us-east-1a", "us-east-1b"}, 12.5, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"node.kubernetes.io/instance-type": {"p5.48xlarge"},
		"kubernetes.io/arch":               {"amd64"},
		"topology.kubernetes.io/zone":      {"us-east-1a", "us-east-1b"},
	}
	if diff := cmp.Diff(want, it.Labels); diff != "" {
		t.Error(diff)
	}
	if it.Name != "p5.48xlarge" || it.Price != 12.5 || len(it.Templates) != 1 || it.Templates[0].Driver != "gpu.apportion.dev" {
		t.Errorf("instance type is %s at %v with %d templates", it.Name, it.Price, len(it.Templates))
	}
	it, err = lookup(t, "p5.48xlarge").Allocator(nil, 0, Policy{})
	if _, ok := it.Labels["topology.kubernetes.io/zone"]; ok || err != nil {
		t.Errorf("without zones: %v %v", it.Labels, err)
	}
}
