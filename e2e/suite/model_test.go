package suite

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// This is a model of what GPUs can hold at once, by which the driver and the
// scheduler are checked. It has nothing of theirs: it knows from the product's data
// where instances can lie, and from a device's name which one is meant.

// gpuModel is one GPU and what it holds.
type gpuModel struct {
	product fakegpu.Product
	uuid    string
	// whole is the claim that has all of it; shares are the bytes that claims have
	// of its memory.
	whole  string
	shares map[string]int64
	// slices are its memory slices with the claims that have them. profiles counts
	// the instances by profile.
	slices   []string
	profiles map[string]int
}

func newGPUModel(product fakegpu.Product, uuid string) *gpuModel {
	g := &gpuModel{product: product, uuid: uuid, shares: map[string]int64{}, profiles: map[string]int{}}
	if product.MIG != nil {
		g.slices = make([]string, product.MIG.MemorySlices)
	}
	return g
}

func (g *gpuModel) memory() int64 { return int64(g.product.Memory.TotalMiB) << 20 }

// holdMemory gives a claim bytes of the GPU's memory: all of it is the whole GPU,
// less is a share.
func (g *gpuModel) holdMemory(claim string, bytes int64) error {
	for _, holder := range g.slices {
		if holder != "" {
			return fmt.Errorf("%s has memory of GPU %s, on which %s has a partition", claim, g.uuid, holder)
		}
	}
	if g.whole != "" {
		return fmt.Errorf("%s has memory of GPU %s, which %s has whole", claim, g.uuid, g.whole)
	}
	if bytes <= 0 {
		return fmt.Errorf("%s has nothing of GPU %s", claim, g.uuid)
	}
	sum := bytes
	for _, share := range g.shares {
		sum += share
	}
	if sum > g.memory() {
		return fmt.Errorf("with %s, claims have %d of the %d bytes of GPU %s: %v", claim, sum, g.memory(), g.uuid, g.shares)
	}
	if bytes == g.memory() {
		g.whole = claim
	}
	g.shares[claim] += bytes
	return nil
}

// holdPartition gives a claim an instance of a profile that starts at a memory slice.
func (g *gpuModel) holdPartition(claim, profileName string, start int) error {
	profile, err := g.product.ProfileByName(profileName)
	if err != nil {
		return err
	}
	if !slices.Contains(profile.Placements.Starts, start) {
		return fmt.Errorf("%s has a %s at %d of GPU %s, where it cannot lie", claim, profileName, start, g.uuid)
	}
	if len(g.shares) > 0 {
		return fmt.Errorf("%s has a %s of GPU %s, of whose memory others have %v", claim, profileName, g.uuid, g.shares)
	}
	for i := start; i < start+profile.Placements.Size; i++ {
		if g.slices[i] != "" {
			return fmt.Errorf("%s and %s both have memory slice %d of GPU %s", g.slices[i], claim, i, g.uuid)
		}
		g.slices[i] = fmt.Sprintf("%s (%s)", claim, profileName)
	}
	g.profiles[profileName]++
	compute, ofa := 0, 0
	for name, n := range g.profiles {
		p, err := g.product.ProfileByName(name)
		if err != nil {
			return err
		}
		if n > p.MaxInstances {
			return fmt.Errorf("GPU %s has %d instances of %s, at most %d are possible", g.uuid, n, name, p.MaxInstances)
		}
		compute += n * p.Slices
		ofa += n * p.Engines.OFA
	}
	if most := len(g.slices) - 1; compute > most || ofa > 1 {
		return fmt.Errorf("GPU %s has instances %v with %d compute slices and %d OFA engines; it has %d and 1", g.uuid, g.profiles, compute, ofa, most)
	}
	return nil
}

// clusterModel is what the GPUs of a cluster hold.
type clusterModel map[string]*gpuModel

// partitionName is how the name of a partition's device ends.
var partitionName = regexp.MustCompile(`^gpu-[0-9a-f]+-mig-.*-([0-9]+)$`)

// hold gives a claim what one result of its allocation says. device is the published
// device of that name.
func (m clusterModel) hold(claim string, result resourceapi.DeviceRequestAllocationResult, device resourceapi.Device) error {
	uuid := text(device, "uuid")
	isPartition := text(device, "type") == "mig"
	if isPartition {
		uuid = text(device, "parentUUID")
	}
	g := m[uuid]
	if g == nil {
		return fmt.Errorf("%s has %s of GPU %q, which no machine has", claim, device.Name, uuid)
	}
	if !isPartition {
		memory, ok := result.ConsumedCapacity["memory"]
		if !ok {
			return fmt.Errorf("%s has %s with no amount of memory", claim, device.Name)
		}
		return g.holdMemory(claim, memory.Value())
	}
	parts := partitionName.FindStringSubmatch(device.Name)
	if parts == nil {
		return fmt.Errorf("%s has %s, which is no name of a partition", claim, device.Name)
	}
	start, err := strconv.Atoi(parts[1])
	if err != nil {
		return err
	}
	return g.holdPartition(claim, text(device, "profile"), start)
}

// TestTheModelKnowsWhatCannotBe checks the checker.
func TestTheModelKnowsWhatCannotBe(t *testing.T) {
	product, err := fakegpu.LookupProduct("h100-sxm5-80gb")
	if err != nil {
		t.Fatal(err)
	}
	const gib = int64(1) << 30
	all := int64(81559) << 20
	memory := func(bytes int64) func(*gpuModel, string) error {
		return func(g *gpuModel, claim string) error { return g.holdMemory(claim, bytes) }
	}
	partition := func(profile string, start int) func(*gpuModel, string) error {
		return func(g *gpuModel, claim string) error { return g.holdPartition(claim, profile, start) }
	}
	type steps []func(*gpuModel, string) error
	tests := []struct {
		name     string
		steps    steps
		possible bool
	}{
		{"one whole", steps{memory(all)}, true},
		{"two whole", steps{memory(all), memory(all)}, false},
		{"whole beside a share", steps{memory(gib), memory(all)}, false},
		{"shares that fit", steps{memory(40 * gib), memory(39 * gib)}, true},
		{"shares that do not", steps{memory(40 * gib), memory(40 * gib)}, false},
		{"a share of nothing", steps{memory(0)}, false},
		{"3g and 4g", steps{partition("3g.40gb", 4), partition("4g.40gb", 0)}, true},
		{"two 4g", steps{partition("4g.40gb", 0), partition("4g.40gb", 4)}, false},
		{"overlap", steps{partition("1g.10gb", 3), partition("2g.20gb", 2)}, false},
		{"seven 1g", steps{partition("1g.10gb", 0), partition("1g.10gb", 1), partition("1g.10gb", 2), partition("1g.10gb", 3), partition("1g.10gb", 4), partition("1g.10gb", 5), partition("1g.10gb", 6)}, true},
		{"two of the only media engine", steps{partition("1g.10gb+me", 0), partition("1g.10gb+me", 1)}, false},
		{"partition beside a share", steps{partition("1g.10gb", 0), memory(gib)}, false},
		{"share beside a partition", steps{memory(gib), partition("1g.10gb", 0)}, false},
		{"4g, 2g and a 1g of double memory", steps{partition("4g.40gb", 0), partition("2g.20gb", 4), partition("1g.20gb", 6)}, true},
		{"a place where it cannot lie", steps{partition("2g.20gb", 1)}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := newGPUModel(product, "GPU-model")
			var errs []error
			for i, step := range test.steps {
				errs = append(errs, step(g, fmt.Sprintf("claim %d", i)))
			}
			if err := errors.Join(errs...); (err == nil) != test.possible {
				t.Errorf("possible: %t, but the model says %v", test.possible, err)
			}
		})
	}
}
