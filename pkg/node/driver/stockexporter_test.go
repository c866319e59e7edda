package driver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stockDevice is what a stock dcgm-exporter takes of a published device. It finds the
// devices of claims in slices of the driver gpu.nvidia.com, by pool and name, and reads
// these attributes by names without a domain.
type stockDevice struct{ Type, UUID, ParentUUID, Profile string }

func TestStockExporterFindsItsDevicesUnderNVIDIAsName(t *testing.T) {
	r := newRigConfigured(t, nil, func(c *Config) { c.DriverName = "gpu.nvidia.com" }, "l4", "a100-sxm4-40gb")
	// On an Ampere the administrator alone makes partitions, and the GPU is not whole.
	first, err := r.machine.CreateMIG("1", "3g.20gb", 0)
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.machine.CreateMIG("1", "4g.20gb", -1)
	if err == nil {
		t.Fatalf("4g.20gb was made beside 3g.20gb at 0: %s", second)
	}
	if second, err = r.machine.CreateMIG("1", "3g.20gb", 4); err != nil {
		t.Fatal(err)
	}
	hardware, err := r.machine.Summary()
	if err != nil {
		t.Fatal(err)
	}
	whole, parent := hardware.GPUs[0].UUID, hardware.GPUs[1].UUID
	want := map[string]stockDevice{
		whole:  {Type: "gpu", UUID: whole},
		first:  {Type: "mig", UUID: first, ParentUUID: parent, Profile: "3g.20gb"},
		second: {Type: "mig", UUID: second, ParentUUID: parent, Profile: "3g.20gb"},
	}
	var got map[string]stockDevice
	r.eventually("both partitions are published", func() bool {
		got = r.stockDevices()
		return len(got) == len(want) && got[second] == want[second]
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices by UUID (-want +got):\n%s", diff)
	}
}

// stockDevices are the devices that have a UUID, by that.
func (r *rig) stockDevices() map[string]stockDevice {
	r.t.Helper()
	list, err := r.client.ResourceV1().ResourceSlices().List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	found := map[string]stockDevice{}
	for _, slice := range list.Items {
		if slice.Spec.Driver != "gpu.nvidia.com" || slice.Spec.Pool.Name != "node-a" {
			r.t.Errorf("a slice is of driver %s and pool %s", slice.Spec.Driver, slice.Spec.Pool.Name)
		}
		for _, device := range slice.Spec.Devices {
			text := func(name resourceapi.QualifiedName) string {
				if value := device.Attributes[name].StringValue; value != nil {
					return *value
				}
				return ""
			}
			if d := (stockDevice{text("type"), text("uuid"), text("parentUUID"), text("profile")}); d.UUID != "" {
				found[d.UUID] = d
			}
		}
	}
	return found
}
