package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"apportion.dev/apportion/pkg/cdi"
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
		if err := p.checkConfig(allocation.Config, result); err != nil {
			return nil, err
		}
		target, ok := p.Resolve(result.Device)
		if !ok {
			return nil, fmt.Errorf("device %s is not on this node any more; was the GPU removed? Delete the pod so that it is scheduled anew", result.Device)
		}
		d := Device{
			Request: result.Request, Pool: result.Pool, Device: result.Device, GPU: target.GPU,
			ShareID: result.ShareID, AdminAccess: result.AdminAccess != nil && *result.AdminAccess,
			CDIDevice: p.Specs.QualifiedName(cdi.DeviceName(claim.UID, result.Device, result.ShareID)),
		}
		for name, quantity := range result.ConsumedCapacity {
			if d.Consumed == nil {
				d.Consumed = map[string]string{}
			}
			d.Consumed[string(name)] = quantity.String()
		}
		if err := checkAmounts(result, target); err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("the claim has no device of driver %s", p.Driver)
	}
	return devices, nil
}

// checkConfig refuses parameters that nobody here would honour: a setting that
// is dropped silently is worse than a pod that does not start.
func (p *Preparer) checkConfig(configs []resourceapi.DeviceAllocationConfiguration, result resourceapi.DeviceRequestAllocationResult) error {
	for _, c := range resourceclaim.ConfigForResult(configs, result) {
		if c.Opaque.Driver == p.Driver {
			return fmt.Errorf("request %s has an opaque config for driver %s (source %s); this version supports none, remove it", result.Request, p.Driver, c.Source)
		}
	}
	return nil
}

// checkAmounts refuses a share that takes nothing of what every share must take:
// it would use the device, and nobody would count it. Who only looks takes nothing.
func checkAmounts(result resourceapi.DeviceRequestAllocationResult, target Target) error {
	if result.AdminAccess != nil && *result.AdminAccess {
		return nil
	}
	for _, name := range target.Required {
		if amount, ok := result.ConsumedCapacity[resourceapi.QualifiedName(name)]; ok && amount.IsZero() {
			return fmt.Errorf("request %s asks for a share of device %s with no %s; ask for the %s it needs, or for no capacity to get the whole device", result.Request, result.Device, name, name)
		}
	}
	return nil
}

// usable fails if a device has a problem. A container that only looks (admin
// access) may look at a GPU with a problem.
func (p *Preparer) usable(devices []Device) error {
	for _, d := range devices {
		target, _ := p.Resolve(d.Device)
		if target.Problem != "" && !d.AdminAccess {
			return fmt.Errorf("device %s (%s) cannot be used: %s", d.Device, d.GPU, target.Problem)
		}
	}
	return nil
}

func (p *Preparer) capacity(device string) map[string]resource.Quantity {
	target, _ := p.Resolve(device)
	return target.Capacity
}

// step is one thing done on the node for a claim. Both functions are
// idempotent: Undo of a step that was not taken, or only half, is right too.
type step struct {
	Name     string
	Do, Undo func(ctx context.Context) error
}

// steps works out what is to be done for a claim, in order, and completes its
// record. Nothing is changed yet.
func (p *Preparer) steps(ctx context.Context, r *Record) ([]step, error) {
	spec, err := p.Specs.Render(ctx, specDevices(r))
	if err != nil {
		return nil, fmt.Errorf("work out the CDI spec: %w", err)
	}
	r.SpecDigest = spec.Digest
	steps := p.undoSteps(r)
	steps[0].Do = func(context.Context) error { return p.Specs.Write(r.Claim.UID, spec) }
	return steps, nil
}

// undoSteps lists what may have been done for a recorded claim, in order; its
// steps can only be undone.
func (p *Preparer) undoSteps(r *Record) []step {
	return []step{{
		Name: "write CDI spec",
		Undo: func(context.Context) error { return p.Specs.Remove(r.Claim.UID) },
	}}
}

// specDevices lists the CDI devices of a claim, each once: two requests may see
// the same device with admin access.
func specDevices(r *Record) []cdi.Device {
	var out []cdi.Device
	seen := map[string]bool{}
	for _, d := range r.Devices {
		name := cdi.DeviceName(r.Claim.UID, d.Device, d.ShareID)
		if !seen[name] {
			seen[name] = true
			out = append(out, cdi.Device{Name: name, GPU: d.GPU})
		}
	}
	return out
}

// conflict is the last line of defence against double use: it fails if what the
// claim uid wants is held by another claim or given to it twice, or if the shares
// of a device would add up to more than the device has. Devices with admin access
// hold nothing.
func conflict(records []*Record, uid types.UID, devices []Device, capacity func(device string) map[string]resource.Quantity) error {
	type holding struct {
		Device
		claim ClaimRef
	}
	held := map[string][]holding{}
	for _, r := range records {
		if r.Claim.UID == uid {
			continue
		}
		for _, d := range r.Devices {
			if !d.AdminAccess {
				held[d.Device] = append(held[d.Device], holding{d, r.Claim})
			}
		}
	}
	for _, d := range devices {
		if d.AdminAccess {
			continue
		}
		used := map[string]resource.Quantity{}
		var holders []string
		for _, h := range held[d.Device] {
			whole := h.ShareID == nil || d.ShareID == nil || *h.ShareID == *d.ShareID
			if whole && h.claim.UID == uid {
				return fmt.Errorf("the claim was allocated device %s twice; delete the pod so that it is scheduled anew", d.Device)
			}
			if whole {
				return fmt.Errorf("device %s is in use by claim %s (uid %s); it is free once that claim's last pod has ended", d.Device, h.claim, h.claim.UID)
			}
			if err := add(used, h.Consumed); err != nil {
				return fmt.Errorf("claim %s: %w", h.claim, err)
			}
			if h.claim.UID != uid {
				holders = append(holders, h.claim.String())
			}
		}
		if err := add(used, d.Consumed); err != nil {
			return err
		}
		has := capacity(d.Device)
		for _, name := range slices.Sorted(maps.Keys(used)) {
			total, known := has[name]
			if sum := used[name]; known && sum.Cmp(total) > 0 {
				return fmt.Errorf("device %s has %s of %s, but with this claim %s would be in use; other claims that hold it: %s", d.Device, total.String(), name, sum.String(), cmp.Or(strings.Join(holders, ", "), "none"))
			}
		}
		// A device that the claim has twice counts twice.
		held[d.Device] = append(held[d.Device], holding{d, ClaimRef{UID: uid}})
	}
	return nil
}

func add(sum map[string]resource.Quantity, consumed map[string]string) error {
	for name, value := range consumed {
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("consumed %s %q: %w", name, value, err)
		}
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
	return nil
}

// sameDevices says whether two lists mean the same allocation.
func sameDevices(a, b []Device) bool {
	return slices.EqualFunc(a, b, func(x, y Device) bool {
		sameShare := (x.ShareID == nil) == (y.ShareID == nil) && (x.ShareID == nil || *x.ShareID == *y.ShareID)
		return sameShare && x.Request == y.Request && x.Pool == y.Pool && x.Device == y.Device && x.GPU == y.GPU &&
			x.AdminAccess == y.AdminAccess && maps.Equal(x.Consumed, y.Consumed)
	})
}
