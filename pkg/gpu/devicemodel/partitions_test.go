package devicemodel

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// h100s are GPUs that are offered whole and partitioned, at addresses in order.
func h100s(t *testing.T, uuids ...string) inventory.Node {
	t.Helper()
	n := node()
	for i, uuid := range uuids {
		gpu := readGPU(t, "h100-sxm5-80gb")
		gpu.UUID, gpu.PCIBusID, gpu.NVLink = uuid, fmt.Sprintf("0000:%02x:00.0", i+1), inventory.NVLink{}
		n.GPUs = append(n.GPUs, gpu)
	}
	return n
}

// on names devices of one GPU as they are allocated together: "" is the GPU.
func on(gpu string, partitions ...string) string {
	var names []string
	for _, p := range partitions {
		names = append(names, strings.TrimSuffix(gpu+"-mig-"+p, "-mig-"))
	}
	return fmt.Sprint(names)
}

func TestSchedulerPartitions(t *testing.T) {
	const a, b, none = "gpu-4f3a1b2c", "gpu-0badcafe", "[]"
	atLeast := func(memory string) resourceapi.DeviceClaim {
		return devices(TypeMIG, 1, fmt.Sprintf(`device.capacity["gpu.apportion.dev"].memory.compareTo(quantity(%q)) >= 0`, memory))
	}
	withOFA := devices(TypeMIG, 1, `device.capacity["gpu.apportion.dev"].ofaEngines.compareTo(quantity("1")) >= 0`)
	looksAt := looking(partitions(1, "3g.40gb"))
	for _, tc := range []struct {
		name  string
		gpus  []string
		steps []step
	}{
		{"seven of the smallest, each for itself", []string{uuidA}, []step{
			{partitions(6, "1g.10gb"), on(a, "1g-10gb-6", "1g-10gb-5", "1g-10gb-4", "1g-10gb-3", "1g-10gb-2", "1g-10gb-1")},
			{gpus(1), none}, {gpus(1, "1Mi"), none}, {partitions(1, "2g.20gb"), none},
			{partitions(1, "1g.10gb"), on(a, "1g-10gb-0")}, {partitions(1, "1g.10gb"), none},
		}},
		{"a whole partition is exclusive", []string{uuidA}, []step{
			{partitions(1, "7g.80gb"), on(a, "7g-80gb-0")}, {partitions(1, "7g.80gb"), none}, {amounting(partitions(1, "7g.80gb"), "1Mi"), none},
		}},
		{"3g and then 4g", []string{uuidA}, []step{{partitions(1, "3g.40gb"), on(a, "3g-40gb-4")}, {partitions(1, "4g.40gb"), on(a, "4g-40gb-0")}, {partitions(1, "1g.10gb"), none}}},
		{"4g and then 3g", []string{uuidA}, []step{{partitions(1, "4g.40gb"), on(a, "4g-40gb-0")}, {partitions(1, "3g.40gb"), on(a, "3g-40gb-4")}}},
		{"the whole keeps partitions out", []string{uuidA}, []step{{gpus(1), on(a, "")}, {partitions(1, "1g.10gb"), none}}},
		{"shares keep partitions out", []string{uuidA, uuidB}, []step{
			{gpus(1, "10Gi"), on(a, "")}, {partitions(1, "1g.10gb"), on(b, "1g-10gb-6")}, {gpus(1, "10Gi"), on(a, "")}, {gpus(1), none}, {gpus(1, "79Gi"), none},
		}},
		{"shares of a partition", []string{uuidA}, []step{
			{amounting(partitions(1, "3g.40gb"), "20Gi"), on(a, "3g-40gb-4")}, {amounting(partitions(1, "3g.40gb"), "10Gi"), on(a, "3g-40gb-4")},
			{amounting(partitions(1, "3g.40gb"), "10Gi"), on(a, "3g-40gb-0")}, {amounting(partitions(1, "3g.40gb"), "9Gi"), on(a, "3g-40gb-4")},
			{partitions(1, "3g.40gb"), none}, {gpus(1), none}, {gpus(1, "1Mi"), none},
		}},
		{"what shares of a partition reserve is counted", []string{uuidA}, []step{
			{amounting(partitions(1, "4g.40gb"), "10Gi", CapacityMultiprocessors, "40"), on(a, "4g-40gb-0")},
			{amounting(partitions(1, "4g.40gb"), "10Gi", CapacityMultiprocessors, "25"), none},
			{amounting(partitions(1, "4g.40gb"), "10Gi", CapacityMultiprocessors, "24", CapacityDecoders, "4"), on(a, "4g-40gb-0")},
			{amounting(partitions(1, "4g.40gb"), "1Gi", CapacityDecoders, "1"), none},
			{amounting(partitions(1, "4g.40gb"), "1Gi", CapacityEncoders, "1"), none},
			{amounting(partitions(1, "4g.40gb"), "1Gi", CapacityEncoders, "0"), on(a, "4g-40gb-0")},
		}},
		{"partitions have no percents", []string{uuidA}, []step{{amounting(partitions(1, "4g.40gb"), "10Gi", CapacityComputePercent, "0"), none}}},
		{"the smallest that suffices", []string{uuidA}, []step{
			{atLeast("5Gi"), on(a, "1g-10gb-6")}, {atLeast("15Gi"), on(a, "1g-20gb-4")}, {atLeast("20Gi"), on(a, "3g-40gb-0")}, {atLeast("5Gi"), none},
		}},
		{"media engines are kept for who needs them", []string{uuidA}, []step{
			{atLeast("5Gi"), on(a, "1g-10gb-6")}, {withOFA, on(a, "1g-10gb-me-5")}, {withOFA, none}, {partitions(1, "1g.10gb"), on(a, "1g-10gb-4")},
		}},
		{"one GPU is cut before the next", []string{uuidA, uuidB}, []step{
			{partitions(1, "4g.40gb"), on(a, "4g-40gb-0")}, {partitions(1, "4g.40gb"), on(b, "4g-40gb-0")}, {partitions(1, "3g.40gb"), on(a, "3g-40gb-4")}, {gpus(1), none},
		}},
		{"partitions of one GPU", []string{uuidA, uuidB}, []step{
			{partitions(1, "4g.40gb"), on(a, "4g-40gb-0")}, {sameGPU(partitions(2, "3g.40gb")), on(b, "3g-40gb-4", "3g-40gb-0")},
		}},
		{"an administrator looks at a partition", []string{uuidA}, []step{
			{looksAt, on(a, "3g-40gb-4")}, {partitions(1, "3g.40gb"), on(a, "3g-40gb-4")}, {looksAt, on(a, "3g-40gb-4")}, {partitions(1, "3g.40gb"), on(a, "3g-40gb-0")},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			newScheduler().follow(t, Build(h100s(t, tc.gpus...), Policy{}), tc.steps)
		})
	}
}

func sameGPU(claim resourceapi.DeviceClaim) resourceapi.DeviceClaim {
	name := resourceapi.FullyQualifiedName(testDriver + "/" + AttributeParentUUID)
	claim.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &name}}
	return claim
}

func TestOneGPUTakesEveryFormInTurn(t *testing.T) {
	const a = "gpu-4f3a1b2c"
	s, m := newScheduler(), Build(h100s(t, uuidA), Policy{})
	for _, round := range [][]step{
		{{partitions(7, "1g.10gb"), on(a, "1g-10gb-6", "1g-10gb-5", "1g-10gb-4", "1g-10gb-3", "1g-10gb-2", "1g-10gb-1", "1g-10gb-0")}, {gpus(1), "[]"}},
		{{partitions(1, "3g.40gb"), on(a, "3g-40gb-4")}, {partitions(1, "4g.40gb"), on(a, "4g-40gb-0")}, {gpus(1, "1Mi"), "[]"}},
		{{gpus(1), on(a, "")}, {partitions(1, "1g.10gb"), "[]"}},
		{{gpus(1, "19Gi"), on(a, "")}, {gpus(1, "19Gi"), on(a, "")}, {gpus(1, "19Gi"), on(a, "")}, {gpus(1, "19Gi"), on(a, "")}, {partitions(1, "1g.10gb"), "[]"}, {gpus(1), "[]"}},
	} {
		s.follow(t, m, round)
		s.free()
	}
}

func TestPrioritizedListOfPartitionShareAndWhole(t *testing.T) {
	const a = "gpu-4f3a1b2c"
	list := resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu"}}}
	for i, claim := range []resourceapi.DeviceClaim{partitions(1, "3g.40gb"), gpus(1, "40Gi"), gpus(1)} {
		exactly := claim.Requests[0].Exactly
		list.Requests[0].FirstAvailable = append(list.Requests[0].FirstAvailable, resourceapi.DeviceSubRequest{
			Name: fmt.Sprint(i), DeviceClassName: exactly.DeviceClassName, Selectors: exactly.Selectors,
			AllocationMode: exactly.AllocationMode, Count: exactly.Count, Capacity: exactly.Capacity,
		})
	}
	m := Build(h100s(t, uuidA), Policy{})
	newScheduler().follow(t, m, []step{{list, on(a, "3g-40gb-4")}, {list, on(a, "3g-40gb-0")}, {list, "[]"}})
	newScheduler().follow(t, m, []step{{gpus(1, "20Gi"), on(a, "")}, {list, on(a, "")}, {list, "[]"}})
}

func TestSchedulerKeepsTheSharingPolicy(t *testing.T) {
	const a = "gpu-4f3a1b2c"
	share := amounting(gpus(1), "10Gi")
	half := amounting(partitions(1, "3g.40gb"), "10Gi")
	for _, tc := range []struct {
		name   string
		policy Policy
		steps  []step
	}{
		{"two shares", Policy{Sharing: SharingPolicy{MaxShares: 2}}, []step{{share, on(a, "")}, {share, on(a, "")}, {share, "[]"}, {gpus(1), "[]"}}},
		{"two shares of a partition", Policy{Sharing: SharingPolicy{MaxShares: 2}}, []step{
			{half, on(a, "3g-40gb-4")}, {half, on(a, "3g-40gb-4")}, {half, on(a, "3g-40gb-0")}, {half, on(a, "3g-40gb-0")}, {half, "[]"},
		}},
		{"a whole GPU is one of them", Policy{Sharing: SharingPolicy{MaxShares: 2}}, []step{{gpus(1), on(a, "")}, {share, "[]"}}},
		{"an administrator who asks for no shares looks on", Policy{Sharing: SharingPolicy{MaxShares: 2}}, []step{
			{share, on(a, "")}, {onlooker(), on(a, "")}, {share, on(a, "")}, {onlooker(), "[]"}, {looking(gpus(1), CapacityShares, "0"), on(a, "")},
		}},
		{"the same works where there is no limit", Policy{}, []step{{gpus(1), on(a, "")}, {looking(gpus(1), CapacityShares, "0"), on(a, "")}}},
		{"and where nothing is shared", Policy{NoShares: true, NoPartitions: true}, []step{{gpus(1), on(a, "")}, {looking(gpus(1), CapacityShares, "0"), on(a, "")}}},
		// The scheduler counts counters for administrators too, except on a device that
		// is shared already.
		{"but not where partitions are offered beside", Policy{NoShares: true}, []step{{gpus(1), on(a, "")}, {looking(gpus(1)), "[]"}}},
		{"nor at the whole of what is partitioned", Policy{}, []step{{partitions(1, "1g.10gb"), on(a, "1g-10gb-6")}, {looking(gpus(1)), "[]"}}},
		// A share that does not count is refused by CheckShare.
		{"who asks for no shares is not counted", Policy{Sharing: SharingPolicy{MaxShares: 1}}, []step{{share, on(a, "")}, {amounting(gpus(1), "10Gi", CapacityShares, "0"), on(a, "")}}},
		{"memory held back", Policy{Sharing: SharingPolicy{ReservedMemory: 1559 << 20}}, []step{{amounting(gpus(1), "79Gi"), "[]"}, {amounting(gpus(1), "80000Mi"), on(a, "")}, {share, "[]"}}},
		{"no sharing: who asks for a share gets all", Policy{NoShares: true}, []step{{amounting(gpus(1), "10Gi", CapacityComputePercent, "30"), on(a, "")}, {share, "[]"}, {gpus(1), "[]"}, {half, "[]"}}},
		{"no sharing of partitions", Policy{Sharing: SharingPolicy{Disabled: true}}, []step{{half, on(a, "3g-40gb-4")}, {half, on(a, "3g-40gb-0")}, {half, "[]"}}},
		{"no sharing: more than there is", Policy{NoShares: true}, []step{{amounting(gpus(1), "90Gi"), "[]"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			newScheduler().follow(t, Build(h100s(t, uuidA), tc.policy), tc.steps)
		})
	}
}

func TestTaintedDevicesAreNotGivenOut(t *testing.T) {
	n := h100s(t, uuidA, uuidB)
	n.GPUs[0].XIDs = []inventory.XID{{Code: 79}}
	n.GPUs[1].XIDs = []inventory.XID{{Code: 94, GPUInstance: ptr(3)}}
	m := Build(n, Policy{TaintDomain: testDriver, Held: map[inventory.Partition]int{{GPU: uuidB, Profile: "3g.40gb", Start: 4}: 3}})
	tolerant := gpus(1)
	tolerant.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{{
		Key: testDriver + "/" + TaintUnhealthy, Operator: resourceapi.DeviceTolerationOpEqual, Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoSchedule,
	}}
	newScheduler().follow(t, m, []step{
		{tolerant, on("gpu-4f3a1b2c", "")},
		{partitions(1, "3g.40gb"), on("gpu-0badcafe", "3g-40gb-0")}, {partitions(1, "3g.40gb"), "[]"}, {partitions(1, "1g.10gb"), on("gpu-0badcafe", "1g-10gb-6")},
	})
}

// The allocator and the rules agree about every pair of devices.
func TestSchedulerAllocatesThePairsThatTheHardwareDoes(t *testing.T) {
	for _, product := range migProducts() {
		t.Run(product.Name, func(t *testing.T) {
			t.Parallel()
			m, r := Build(node(readGPU(t, product.Name)), Policy{}), rulesOf(product)
			all := m.Devices
			for i := range all {
				for j := range i {
					pair := &Model{Devices: []Device{all[j], all[i]}, CounterSets: m.CounterSets}
					want := r.allow(thingOf(all[i]), thingOf(all[j]))
					if got := newScheduler().place(t, pair, devices("any", 2, "")); (len(got) == 2) != want {
						t.Errorf("%s and %s: allocated %v, want %v", all[j].API.Name, all[i].API.Name, got, want)
					}
				}
			}
		})
	}
}

// A claim has a partition that somebody destroyed, and in its place somebody made
// one with the same engine. With both counted the node had less than nothing of the
// engine, and the scheduler gave out none of its GPUs.
func TestReplacedPartitionDoesNotKeepTheNodesOtherGPUsFromUse(t *testing.T) {
	n := h100s(t, uuidA, uuidB)
	s := newScheduler()
	s.follow(t, Build(n, Policy{}), []step{{partitions(1, "1g.10gb+me"), on("gpu-4f3a1b2c", "1g-10gb-me-6")}})
	n.GPUs[0].MIG.Enabled = ptr(true)
	n.GPUs[0].MIG.Instances = []inventory.MIGInstance{foreignInstance(n.GPUs[0], "1g.10gb+me", 0, 1)}
	m := Build(n, Policy{Missing: []inventory.Partition{{GPU: n.GPUs[0].UUID, Profile: "1g.10gb+me", Start: 6}}})
	s.follow(t, m, []step{
		{gpus(1), on("gpu-0badcafe", "")},
		{partitions(1, "1g.10gb+me"), on("gpu-4f3a1b2c", "1g-10gb-me-0")},
	})
}

func TestWhatAnAdministratorMadeIsGivenOutOnce(t *testing.T) {
	n := h100s(t, uuidA)
	n.GPUs[0].MIG.Enabled = ptr(true)
	n.GPUs[0].MIG.Instances = []inventory.MIGInstance{foreignInstance(n.GPUs[0], "3g.40gb", 0, 1)}
	for _, policy := range []Policy{{}, {NoPartitions: true}} {
		steps := []step{{partitions(1, "3g.40gb"), on("gpu-4f3a1b2c", "3g-40gb-0")}}
		if !policy.NoPartitions {
			steps = append(steps, step{partitions(1, "3g.40gb"), on("gpu-4f3a1b2c", "3g-40gb-4")})
		}
		steps = append(steps, step{partitions(1, "3g.40gb"), "[]"}, step{gpus(1), "[]"})
		newScheduler().follow(t, Build(n, policy), steps)
	}
}

// Nine claims for 10Gi on four GPUs of 40 GiB fill one after the other.
func TestSharesFillOneGPUAfterTheOther(t *testing.T) {
	n := node()
	for i, uuid := range []string{uuidA, uuidB} {
		gpu := halves()
		gpu.UUID, gpu.PCIBusID, gpu.MemoryBytes = uuid, fmt.Sprintf("0000:%02x:00.0", i+1), ptr(uint64(40<<30))
		n.GPUs = append(n.GPUs, gpu)
	}
	s, m := newScheduler(), Build(n, Policy{})
	var got []string
	for range 9 {
		got = append(got, s.place(t, m, gpus(1, "10Gi"))...)
	}
	want := slices.Concat(slices.Repeat([]string{"gpu-4f3a1b2c"}, 4), slices.Repeat([]string{"gpu-0badcafe"}, 4))
	if !slices.Equal(got, want) {
		t.Errorf("claims got %v, want %v", got, want)
	}
}
