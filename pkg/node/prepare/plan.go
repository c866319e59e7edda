package prepare

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/node/cdi"
	"apportion.dev/apportion/pkg/node/mig"
)

// plan reads the claim's allocation: which of this driver's devices it has. It
// changes nothing. Results and configs of other drivers are not its business.
func (p *Preparer) plan(claim *resourceapi.ResourceClaim) ([]Device, error) {
	if claim.Status.Allocation == nil {
		return nil, errors.New("the claim is not allocated")
	}
	allocation := claim.Status.Allocation.Devices
	var devices []Device
	for _, result := range allocation.Results {
		if result.Driver != p.Driver {
			continue
		}
		if result.Pool != p.Pool {
			return nil, fmt.Errorf("device %s is in pool %s, this node's pool is %s; was the pod moved to the wrong node?", result.Device, result.Pool, p.Pool)
		}
		target, ok := p.Resolve(result.Device)
		if !ok {
			return nil, fmt.Errorf("device %s is not on this node any more; was the GPU removed? Delete the pod so that it is scheduled anew", result.Device)
		}
		d := p.device(claim.UID, result, target)
		if err := p.applyConfig(&d, allocation.Config, result); err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("the claim has no device of driver %s", p.Driver)
	}
	return devices, oneMPS(devices)
}

// device is the record of one result, without what its config asks for.
func (p *Preparer) device(claim types.UID, result resourceapi.DeviceRequestAllocationResult, target Target) Device {
	d := Device{
		Request: result.Request, Pool: result.Pool, Device: result.Device, GPU: target.GPU, Placement: target.Placement,
		ShareID: result.ShareID, AdminAccess: result.AdminAccess != nil && *result.AdminAccess,
		CDIDevice: p.Specs.QualifiedName(cdi.DeviceName(claim, result.Device, result.ShareID)),
		planned:   planned{target: target, tolerant: len(result.Tolerations) > 0, wrongAmounts: checkAmounts(result, target)},
	}
	if target.MIGDevice != "" {
		d.MIG = &mig.Instance{UUID: target.MIGDevice}
	}
	for name, quantity := range result.ConsumedCapacity {
		if d.Consumed == nil {
			d.Consumed = map[string]string{}
		}
		d.Consumed[string(name)] = quantity.String()
	}
	return d
}

// checkAmounts refuses a share whose amounts cannot be given: one of no memory would
// use the device, and nobody would count it. A request with admin access takes
// nothing.
func checkAmounts(result resourceapi.DeviceRequestAllocationResult, target Target) error {
	if result.ShareID == nil || target.CheckShare == nil || result.AdminAccess != nil && *result.AdminAccess {
		return nil
	}
	if err := target.CheckShare(result.ConsumedCapacity); err != nil {
		return fmt.Errorf("request %s: %w", result.Request, err)
	}
	return nil
}

// usable fails if a device has a problem, or a share has amounts that cannot be given;
// those of a claim that is prepared were right when it got them. A container with admin
// access may look at a GPU with a problem, and a claim that tolerates taints takes the
// device as it is.
func usable(devices []Device) error {
	for _, d := range devices {
		if d.planned.wrongAmounts != nil {
			return d.planned.wrongAmounts
		}
		if problem := d.planned.target.Problem; problem != "" && !d.AdminAccess && !d.planned.tolerant {
			return fmt.Errorf("device %s (%s) cannot be used: %s", d.Device, d.GPU, problem)
		}
	}
	return nil
}

// sameDevices says whether two lists mean the same allocation, of devices that are
// still the same: an administrator may have made a partition anew since it was given.
func sameDevices(before, now []Device) bool {
	return slices.EqualFunc(before, now, func(x, y Device) bool {
		sameShare := (x.ShareID == nil) == (y.ShareID == nil) && (x.ShareID == nil || *x.ShareID == *y.ShareID)
		madeAnew := x.given() && y.given() && x.MIG.UUID != y.MIG.UUID
		return sameShare && !madeAnew && x.Request == y.Request && x.Pool == y.Pool && x.Device == y.Device && x.GPU == y.GPU &&
			x.AdminAccess == y.AdminAccess && maps.Equal(x.Consumed, y.Consumed)
	})
}

// stillGiven fails if a partition that an administrator made is not there any more.
// One of that name can be made on demand now, but the claim's record says that its
// partition is not the driver's to destroy.
func stillGiven(before, now []Device) error {
	for i, d := range before {
		if d.given() && !now[i].given() {
			return fmt.Errorf("partition %s (%s), which an administrator made, is not there any more; delete the pod so that it is scheduled anew", d.Device, d.MIG.UUID)
		}
	}
	return nil
}
