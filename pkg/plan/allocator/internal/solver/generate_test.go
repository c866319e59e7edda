package solver_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

func TestSameChoicesSameCase(t *testing.T) {
	for seed := range uint64(500) {
		first, second := Generate(Seeded(seed)), Generate(Seeded(seed))
		if !equality.Semantic.DeepEqual(first, second) {
			t.Fatalf("seed %d gives two cases:\n%s\nand\n%s", seed, first.YAML(), second.YAML())
		}
	}
}

func TestAnyBytesMakeACase(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		data := make([]byte, random.IntN(300))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		c := Generate(Bytes(data))
		if c.Node == nil || len(c.Claims) == 0 || len(c.Slices) == 0 {
			t.Fatalf("bytes %v make a case without node, claims or slices", data)
		}
	}
}

func TestNoBytesMakeThePlainestCase(t *testing.T) {
	c := Generate(Bytes(nil))
	if len(c.Slices) != 1 || len(c.Slices[0].Spec.Devices) != 1 || len(c.Claims) != 1 || len(c.AllocatedClaims) != 0 {
		t.Errorf("want one slice of one device and one claim, got\n%s", c.YAML())
	}
	request := c.Claims[0].Spec.Devices.Requests[0].Exactly
	if request == nil || request.Count != 1 || request.Selectors != nil || request.DeviceClassName != "any" {
		t.Errorf("want a request for any one device, got\n%s", c.YAML())
	}
}

func TestACopyIsDeep(t *testing.T) {
	c := Generate(Seeded(3))
	before := c.YAML()
	shrunk := Shrink(c, func(c Case) bool { return len(c.Claims) > 0 })
	if c.YAML() != before {
		t.Error("shrinking changed the case that was given")
	}
	if len(shrunk.Claims) != 1 || len(shrunk.Slices) != 0 || len(shrunk.Claims[0].Spec.Devices.Requests) != 0 {
		t.Errorf("want one empty claim and nothing else, got\n%s", shrunk.YAML())
	}
}

// TestShrinkKeepsWhatMatters looks for a device with a taint, of which all else can go.
func TestShrinkKeepsWhatMatters(t *testing.T) {
	tainted := func(c Case) bool {
		return slices.ContainsFunc(c.Slices, func(slice *resourceapi.ResourceSlice) bool {
			return slices.ContainsFunc(slice.Spec.Devices, func(device resourceapi.Device) bool { return len(device.Taints) > 0 })
		})
	}
	for seed := uint64(0); ; seed++ {
		c := Generate(Seeded(seed))
		if !tainted(c) {
			continue
		}
		c = Shrink(c, tainted)
		if len(c.Slices) != 1 || len(c.Slices[0].Spec.Devices) != 1 || len(c.Claims) != 0 {
			t.Fatalf("want one device, got\n%s", c.YAML())
		}
		device := c.Slices[0].Spec.Devices[0]
		want := resourceapi.Device{Name: device.Name, Taints: device.Taints}
		if len(device.Taints) != 1 || !reflect.DeepEqual(device, want) {
			t.Fatalf("want one taint and nothing else, got\n%s", c.YAML())
		}
		return
	}
}

func BenchmarkGenerate(b *testing.B) {
	b.ReportAllocs()
	for seed := uint64(0); b.Loop(); seed++ {
		Generate(Seeded(seed))
	}
}
