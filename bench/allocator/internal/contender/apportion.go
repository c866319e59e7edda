package contender

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured/schedulerapi"

	"apportion.dev/apportion/bench/allocator/internal/setting"
	"apportion.dev/apportion/pkg/plan/allocator"
)

func apportion(s setting.Setting) (Start, error) {
	targets := make([]allocator.Target, 0, len(s.Nodes)+1)
	for _, n := range s.Nodes {
		targets = append(targets, allocator.Target{ID: n.Name, Node: n, Selectors: s.Selectors()})
	}
	if len(s.Types) > 0 {
		targets = append(targets, allocator.Target{ID: "new", InstanceTypes: s.Types, Selectors: s.Selectors()})
	}
	claims := inTurn(s)
	return func(context.Context) (Call, error) {
		alloc, err := allocator.New(allocator.Options{
			Slices: s.Slices, Classes: s.Classes, Allocated: allocatedState(s.Allocated), Cache: allocator.NewCache(),
		})
		if err != nil {
			return nil, fmt.Errorf("making the allocator: %w", err)
		}
		return func(ctx context.Context) (int, error) {
			pod := claims()
			fit := 0
			for _, target := range targets {
				result, err := alloc.Allocate(ctx, target, pod)
				if err != nil {
					return 0, refused(ctx, err, false)
				}
				for _, d := range result.Dropped {
					if d.Err || d.Unknown {
						return 0, fmt.Errorf("not decided: %s", d.Reason)
					}
				}
				fit += len(result.Survivors)
			}
			return fit, nil
		}, nil
	}, nil
}

func allocatedState(devices []schedulerapi.DeviceID) schedulerapi.AllocatedState {
	return schedulerapi.AllocatedState{
		AllocatedDevices:         sets.New(devices...),
		AllocatedSharedDeviceIDs: sets.New[schedulerapi.SharedDeviceID](),
		AggregatedCapacity:       schedulerapi.NewConsumedCapacityCollection(),
	}
}
