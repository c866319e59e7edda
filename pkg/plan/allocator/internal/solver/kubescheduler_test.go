package solver_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"
)

// A Scheduler asks kube-scheduler's own allocator, with the feature gates of Kubernetes
// 1.37 at their defaults. It must know nothing of the solver.

// Features are what AllocatorFeatures of kube-scheduler's plugin dynamicresources gives
// with default gates: all but the four that are alpha in 1.37.
var Features = structured.Features{
	AdminAccess:             true,
	ConsumableCapacity:      true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

// Scheduler keeps what can be used again for the next case. It may be used by many
// goroutines.
type Scheduler struct {
	cel *cel.Cache
}

// newScheduler returns a Scheduler.
func newScheduler() *Scheduler {
	return &Scheduler{cel: cel.NewCache(100, cel.Features{EnableConsumableCapacity: Features.ConsumableCapacity})}
}

// maxSteps is how many steps the search may take: about half a second.
const maxSteps = 300_000

// Allocate answers for one node. Steps are calls of its recursive function.
func (s *Scheduler) Allocate(c Case, node *corev1.Node) Answer {
	ctx := &countdown{Context: context.Background(), left: maxSteps}
	allocator, err := structured.NewAllocator(ctx, Features, c.Allocated(), classes(c.ClassMap()), c.Slices, s.cel)
	if err != nil {
		return Answer{Verdict: Errors, Err: err}
	}
	results, err := allocator.Allocate(ctx, node, c.Claims)
	answer := Answer{Steps: steps(allocator)}
	switch {
	case errors.Is(err, errCut):
		answer.Verdict = Cut
	case err != nil:
		answer.Verdict, answer.Err = Errors, err
	case results == nil:
		answer.Verdict = Cannot
	default:
		answer.Verdict, answer.Claims = Allocates, picked(results)
	}
	return answer
}

func picked(results []resourceapi.AllocationResult) [][]Picked {
	claims := make([][]Picked, len(results))
	for i := range results {
		for _, result := range results[i].Devices.Results {
			claims[i] = append(claims[i], Picked{
				Request:  result.Request,
				Device:   schedulerapi.MakeDeviceID(result.Driver, result.Pool, result.Device),
				Admin:    result.AdminAccess != nil && *result.AdminAccess,
				Consumed: result.ConsumedCapacity,
			})
		}
	}
	return claims
}

// steps reads the statistics of which the type is internal. 0 if there are none.
func steps(allocator structured.Allocator) int64 {
	method := reflect.ValueOf(allocator).MethodByName("GetStats")
	if !method.IsValid() {
		return 0
	}
	field := method.Call(nil)[0].FieldByName("NumAllocateOneInvocations")
	if !field.IsValid() {
		return 0
	}
	return field.Int()
}

// classes is the lister that the allocator wants.
type classes map[string]*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return nil, errors.New("the allocator is not known to list classes")
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	class, found := c[name]
	if !found {
		return nil, fmt.Errorf("device class %q not found", name)
	}
	return class, nil
}

var errCut = errors.New("the search takes too many steps")

// countdown is a context that ends after it was asked often enough: the allocator asks
// in each step. Unlike a deadline it is the same on every machine.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left <= 0 {
		return errCut
	}
	c.left--
	return nil
}
