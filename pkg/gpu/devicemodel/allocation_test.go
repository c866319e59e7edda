package devicemodel

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

const testDriver = "gpu.apportion.dev"

// classes is the lister of the chart's classes: "gpu" for GPUs and shares of them,
// "mig" for partitions, and "any".
type classes struct{}

func (classes) Get(name string) (*resourceapi.DeviceClass, error) {
	expression := `device.driver == "gpu.apportion.dev"`
	if name != "any" {
		expression += fmt.Sprintf(` && device.attributes["gpu.apportion.dev"].type == %q`, name)
	}
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}},
	}, nil
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	var list []*resourceapi.DeviceClass
	for _, name := range []string{"any", TypeGPU, TypeMIG} {
		class, err := c.Get(name)
		if err != nil {
			return nil, err
		}
		list = append(list, class)
	}
	return list, nil
}

// scheduler is kube-scheduler's allocator for one node, and what it gave out.
type scheduler struct {
	claims [][]resourceapi.DeviceRequestAllocationResult
	cache  *cel.Cache
}

func newScheduler() *scheduler {
	return &scheduler{cache: cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})}
}

// defaults are the gates of Kubernetes 1.37.
var defaults = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
}

// state is what kube-scheduler knows of the claims that have devices. Admin access
// holds nothing.
func (s *scheduler) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, results := range s.claims {
		for _, device := range results {
			id := structured.MakeDeviceID(device.Driver, device.Pool, device.Device)
			switch {
			case device.AdminAccess != nil && *device.AdminAccess:
			case device.ShareID == nil:
				state.AllocatedDevices.Insert(id)
			default:
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, device.ShareID))
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, device.ConsumedCapacity))
			}
		}
	}
	return state
}

// free ends all claims.
func (s *scheduler) free() { s.claims = nil }

// place returns the devices that a new claim gets, and none if it has to wait.
func (s *scheduler) place(t *testing.T, m *Model, spec resourceapi.DeviceClaim) []string {
	t.Helper()
	published := m.Slices()
	var objects []*resourceapi.ResourceSlice
	for i, slice := range published {
		objects = append(objects, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05x", i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver:         testDriver,
				NodeName:       ptr("node-a"),
				Pool:           resourceapi.ResourcePool{Name: "node-a", ResourceSliceCount: int64(len(published))},
				Devices:        slice.Devices,
				SharedCounters: slice.SharedCounters,
			},
		})
	}
	allocator, err := structured.NewAllocator(t.Context(), defaults, s.state(), classes{}, objects, s.cache)
	if err != nil {
		t.Fatal(err)
	}
	number := len(s.claims)
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("claim-%d", number), UID: types.UID(fmt.Sprint(number))},
		Spec:       resourceapi.ResourceClaimSpec{Devices: spec},
	}
	results, err := allocator.Allocate(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, result := range results {
		s.claims = append(s.claims, result.Devices.Results)
		for _, device := range result.Devices.Results {
			names = append(names, device.Device)
		}
	}
	return names
}

// devices asks for a number of devices of a class that an expression selects, if
// one is given.
func devices(class string, count int64, expression string) resourceapi.DeviceClaim {
	request := resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	if expression != "" {
		request.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	}
	return resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &request}}}
}

// amounting is the claim with amounts of the memory, and then of the other
// capacities, that it asks for.
func amounting(claim resourceapi.DeviceClaim, memory string, others ...string) resourceapi.DeviceClaim {
	requests := map[resourceapi.QualifiedName]resource.Quantity{CapacityMemory: resource.MustParse(memory)}
	for i := 0; i < len(others); i += 2 {
		requests[resourceapi.QualifiedName(others[i])] = resource.MustParse(others[i+1])
	}
	claim.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: requests}
	return claim
}

// gpus asks for whole GPUs, or for shares if amounts of memory and of compute are
// given.
func gpus(count int64, amounts ...string) resourceapi.DeviceClaim {
	claim := devices(TypeGPU, count, "")
	switch len(amounts) {
	case 1:
		claim = amounting(claim, amounts[0])
	case 2:
		claim = amounting(claim, amounts[0], CapacityComputePercent, amounts[1])
	}
	return claim
}

// partitions asks for partitions of a profile.
func partitions(count int64, profile string) resourceapi.DeviceClaim {
	return devices(TypeMIG, count, fmt.Sprintf(`device.attributes["gpu.apportion.dev"].profile == %q`, profile))
}

// looking is the claim with admin access, for none of the device's memory.
func looking(claim resourceapi.DeviceClaim, others ...string) resourceapi.DeviceClaim {
	claim = amounting(claim, "0", others...)
	claim.Requests[0].Exactly.AdminAccess = ptr(true)
	return claim
}

func onlooker() resourceapi.DeviceClaim { return looking(gpus(1)) }

// step is a claim that comes, and what it gets.
type step struct {
	claim resourceapi.DeviceClaim
	want  string // device names, "[]" if the claim has to wait
}

func (s *scheduler) follow(t *testing.T, m *Model, steps []step) {
	t.Helper()
	for i, step := range steps {
		if got := fmt.Sprint(s.place(t, m, step.claim)); got != step.want {
			t.Errorf("claim %d got %s, want %s", i+1, got, step.want)
		}
	}
}

func linkedGPUs(count int64) resourceapi.DeviceClaim {
	claim := gpus(count)
	name := resourceapi.FullyQualifiedName(testDriver + "/" + AttributeNVLinkDomain)
	claim.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &name}}
	return claim
}

const (
	uuidC = "GPU-cccccccc-0000-4000-8000-000000000003"
	uuidD = "GPU-dddddddd-0000-4000-8000-000000000004"
)

func TestSchedulerSharesOrGivesWhole(t *testing.T) {
	fortyGiB := func(uuid, address string) inventory.GPU {
		gpu := a30(uuid, address, "")
		gpu.MemoryBytes = ptr(uint64(40 << 30))
		return gpu
	}
	one := node(fortyGiB(uuidA, "0000:07:00.0"))
	two := node(fortyGiB(uuidA, "0000:07:00.0"), fortyGiB(uuidB, "0000:08:00.0"))
	pairs := node(
		a30(uuidA, "0000:01:00.0", "0000:03:00.0"), a30(uuidB, "0000:02:00.0", "0000:04:00.0"),
		a30(uuidC, "0000:03:00.0", "0000:01:00.0"), a30(uuidD, "0000:04:00.0", "0000:02:00.0"),
	)
	const a, b, c, d = "gpu-4f3a1b2c", "gpu-0badcafe", "gpu-cccccccc", "gpu-dddddddd"
	for _, tc := range []struct {
		name  string
		node  inventory.Node
		steps []step
	}{
		{"a whole GPU is exclusive", one, []step{{gpus(1), "[" + a + "]"}, {gpus(1), "[]"}, {gpus(1, "1Mi"), "[]"}}},
		{"an administrator looks on beside an owner", one, []step{{gpus(1), "[" + a + "]"}, {onlooker(), "[" + a + "]"}, {onlooker(), "[" + a + "]"}, {gpus(1), "[]"}}},
		{"an administrator who came first takes nothing", one, []step{{onlooker(), "[" + a + "]"}, {gpus(1), "[" + a + "]"}}},
		{"four shares fill a GPU", one, []step{
			{gpus(1, "10Gi"), "[" + a + "]"}, {gpus(1, "10Gi"), "[" + a + "]"}, {gpus(1, "10Gi"), "[" + a + "]"}, {gpus(1), "[]"},
			{gpus(1, "10Gi"), "[" + a + "]"}, {gpus(1, "1Mi"), "[]"},
		}},
		{"a share keeps the whole out", one, []step{{gpus(1, "1"), "[" + a + "]"}, {gpus(1), "[]"}, {gpus(1, "40959Mi"), "[" + a + "]"}}},
		{"compute is counted too", one, []step{{gpus(1, "10Gi", "60"), "[" + a + "]"}, {gpus(1, "10Gi", "50"), "[]"}, {gpus(1, "10Gi", "40"), "[" + a + "]"}, {gpus(1, "10Gi"), "[" + a + "]"}}},
		{"more than there is", one, []step{{gpus(1, "41Gi"), "[]"}, {gpus(1, "40Gi", "101"), "[]"}}},
		{"one GPU fills before the next", two, []step{
			{gpus(1, "30Gi"), "[" + a + "]"}, {gpus(1, "30Gi"), "[" + b + "]"}, {gpus(1, "10Gi"), "[" + a + "]"}, {gpus(1), "[]"},
		}},
		{"linked GPUs", pairs, []step{{gpus(1), "[" + a + "]"}, {linkedGPUs(2), "[" + b + " " + d + "]"}, {linkedGPUs(2), "[]"}, {gpus(1), "[" + c + "]"}}},
		{"no three are linked", pairs, []step{{linkedGPUs(3), "[]"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			newScheduler().follow(t, Build(tc.node, Policy{}), tc.steps)
			t.Run("without partitions", func(t *testing.T) {
				newScheduler().follow(t, Build(tc.node, Policy{NoPartitions: true}), tc.steps)
			})
		})
	}
}

func TestGPUOfUnknownMemoryIsGivenWholeOnly(t *testing.T) {
	gpu := l4(uuidA, "0000:07:00.0")
	gpu.MemoryBytes = nil
	s, m := newScheduler(), Build(node(gpu), Policy{})
	if got := s.place(t, m, gpus(1, "1Gi")); got != nil {
		t.Errorf("a share got %v", got)
	}
	if got := s.place(t, m, gpus(1)); len(got) != 1 {
		t.Errorf("a whole got %v", got)
	}
	if got := s.place(t, m, gpus(1)); got != nil {
		t.Errorf("a second whole got %v", got)
	}
}

// A property that cannot be read for a while must not hand a GPU out twice.
func TestSharedGPUWhoseMemoryBecomesUnreadableIsNotGivenAgain(t *testing.T) {
	for name, gpu := range map[string]inventory.GPU{"without MIG": l4(uuidA, "0000:07:00.0"), "with MIG": a30(uuidA, "0000:07:00.0", "")} {
		t.Run(name, func(t *testing.T) {
			s := newScheduler()
			if got := s.place(t, Build(node(gpu), Policy{}), gpus(1, "1Gi")); len(got) != 1 {
				t.Fatalf("a share got %v", got)
			}
			unreadable := gpu
			unreadable.MemoryBytes = nil
			if got := s.place(t, Build(node(unreadable), Policy{}), gpus(1)); got != nil {
				t.Errorf("the GPU was given as a whole while it has a share: %v", got)
			}
			unreadable.MIG.Profiles = nil
			if got := s.place(t, Build(node(unreadable), Policy{}), gpus(1)); got != nil {
				t.Errorf("the GPU was given as a whole while it has a share: %v", got)
			}
			if got := s.place(t, Build(node(gpu), Policy{}), gpus(1, "1Gi")); len(got) != 1 {
				t.Errorf("a second share got %v after the memory was read again", got)
			}
		})
	}
}
