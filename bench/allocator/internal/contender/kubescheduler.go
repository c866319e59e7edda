package contender

import (
	"context"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"apportion.dev/apportion/bench/allocator/internal/setting"
)

// features are the feature gates of Kubernetes 1.37 at their defaults, with which
// structured.NewAllocator takes the implementation "incubating".
var features = structured.Features{
	AdminAccess:             true,
	PrioritizedList:         true,
	PartitionableDevices:    true,
	DeviceTaints:            true,
	DeviceBindingAndStatus:  true,
	ConsumableCapacity:      true,
	FractionalCapacityRange: true,
}

// celCacheSize is that of kube-scheduler's plugin.
const celCacheSize = 10

// kubeScheduler asks node by node, as it knows no other way: for an instance type about a
// node that has published already. Its allocator is made once, although kube-scheduler
// makes one for each pod.
func kubeScheduler(s setting.Setting) (Start, error) {
	nodes, slices := s.NodesFor()
	nodes = inZone(nodes, s.Zone)
	lister := classLister(s.Classes)
	claims := inTurn(s)
	return func(ctx context.Context) (Call, error) {
		cache := cel.NewCache(celCacheSize, cel.Features{EnableConsumableCapacity: true})
		alloc, err := structured.NewAllocator(ctx, features, allocatedState(s.Allocated), lister, slices, cache)
		if err != nil {
			return nil, fmt.Errorf("making the allocator: %w", err)
		}
		return func(ctx context.Context) (int, error) {
			pod := claims()
			fit := 0
			for _, node := range nodes {
				results, err := alloc.Allocate(ctx, node, pod)
				if err := refused(ctx, err, errors.Is(err, structured.ErrFailedAllocationOnNode)); err != nil {
					return 0, err
				}
				if results != nil {
					fit++
				}
			}
			return fit, nil
		}, nil
	}, nil
}

type classLister []*resourceapi.DeviceClass

func (l classLister) List() ([]*resourceapi.DeviceClass, error) { return l, nil }

func (l classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, c := range l {
		if c.Name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("no DeviceClass %s", name)
}
