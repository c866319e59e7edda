package contender

import (
	"context"
	"fmt"
	"unique"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling/dynamicresources"

	"apportion.dev/apportion/bench/allocator/internal/setting"
	"apportion.dev/apportion/pkg/plan/catalog/karpenter"
)

// nodePool is the name of the only NodePool.
const nodePool = "default"

// karpenterLoop is a scheduling loop of Karpenter.
func karpenterLoop(s setting.Setting) (Start, error) {
	types, err := instanceTypes(s)
	if err != nil {
		return nil, err
	}
	targets := nodeClaims(s, types)
	slices := make([]dynamicresources.ResourceSlice, len(s.Slices))
	for i, slice := range s.Slices {
		slices[i] = dynamicresources.NewAPIServerSlice(slice)
	}
	claims := inTurn(s)
	return func(context.Context) (Call, error) {
		bindings := dynamicresources.BuildAttributeBindings(map[string][]*cloudprovider.InstanceType{nodePool: types})
		alloc := dynamicresources.NewAllocator(slices, karpenterState(s), bindings, classReader{classes: s.Classes}, nil)
		return func(ctx context.Context) (int, error) {
			pod := claims()
			fit := 0
			for _, target := range targets {
				result, err := alloc.Allocate(ctx, target, pod)
				if err := refused(ctx, err, err != nil && err.Error() == noInstanceType); err != nil {
					return 0, err
				}
				if result != nil {
					fit += len(result.InstanceTypes)
				}
			}
			return fit, nil
		}, nil
	}, nil
}

// noInstanceType is the error of a search that found nothing, for which Karpenter has no
// other sign.
const noInstanceType = "no instance type can satisfy the allocation"

func instanceTypes(s setting.Setting) ([]*cloudprovider.InstanceType, error) {
	var types []*cloudprovider.InstanceType
	for _, t := range s.Types {
		resources, err := karpenter.DynamicResources(t.Templates)
		if err != nil {
			return nil, fmt.Errorf("instance type %s: %w", t.Name, err)
		}
		types = append(types, &cloudprovider.InstanceType{Name: t.Name, DynamicResources: resources})
	}
	return types, nil
}

func karpenterState(s setting.Setting) dynamicresources.AllocatedDeviceState {
	taken := sets.New[cloudprovider.DeviceID]()
	for _, id := range s.Allocated {
		taken.Insert(cloudprovider.DeviceID{
			Driver: unique.Make(id.Driver.String()), Pool: unique.Make(id.Pool.String()), Device: unique.Make(id.Device.String()),
		})
	}
	return dynamicresources.AllocatedDeviceState{ExclusiveDevices: taken}
}

// nodeClaim is a node, or a node claim that may still become any of its instance types.
type nodeClaim struct {
	id           dynamicresources.NodeClaimID
	nodeName     string
	requirements scheduling.Requirements
	types        []dynamicresources.InstanceTypeID
	slices       map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice
}

func (n nodeClaim) ID() dynamicresources.NodeClaimID                 { return n.id }
func (n nodeClaim) NodeName() string                                 { return n.nodeName }
func (n nodeClaim) NodePoolID() dynamicresources.NodePoolID          { return unique.Make(nodePool) }
func (n nodeClaim) Requirements() scheduling.Requirements            { return n.requirements }
func (n nodeClaim) InstanceTypes() []dynamicresources.InstanceTypeID { return n.types }
func (n nodeClaim) ResourceSlices() map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice {
	return n.slices
}

func nodeClaims(s setting.Setting, types []*cloudprovider.InstanceType) []nodeClaim {
	var result []nodeClaim
	for _, n := range inZone(s.Nodes, s.Zone) {
		result = append(result, nodeClaim{
			id: unique.Make(n.Name), nodeName: n.Name, requirements: scheduling.NewLabelRequirements(n.Labels),
			types: []dynamicresources.InstanceTypeID{unique.Make("exists")},
		})
	}
	if len(types) == 0 {
		return result
	}
	claim := nodeClaim{
		id: unique.Make("new"), requirements: scheduling.NewRequirements(),
		slices: make(map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice),
	}
	if s.Zone != "" {
		claim.requirements.Add(scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, s.Zone))
	}
	for _, t := range types {
		id := unique.Make(t.Name)
		claim.types = append(claim.types, id)
		for _, template := range t.DynamicResources.ResourceSliceTemplates {
			claim.slices[id] = append(claim.slices[id], dynamicresources.NewTemplateSlice(template))
		}
	}
	return append(result, claim)
}

// classReader has all that Karpenter's allocator reads from an API server, at no cost.
type classReader struct {
	client.Client
	classes classLister
}

func (r classReader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	class, err := r.classes.Get(key.Name)
	if err != nil {
		return err
	}
	into, ok := object.(*resourceapi.DeviceClass)
	if !ok {
		return fmt.Errorf("unexpected %T", object)
	}
	*into = *class
	return nil
}
