package driver

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/node/prepare"
)

var _ kubeletplugin.DRAPlugin = &Driver{}

// PrepareResourceClaims prepares each claim by itself, all at once.
func (d *Driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make([]kubeletplugin.PrepareResult, len(claims))
	inParallel(len(claims), func(i int) { results[i] = d.prepareClaim(ctx, claims[i]) })
	byUID := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for i, claim := range claims {
		byUID[claim.UID] = results[i]
	}
	return byUID, nil
}

func (d *Driver) prepareClaim(ctx context.Context, claim *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "claim", klog.KObj(claim), "uid", claim.UID)
	d.owners.Learn(claim)
	started := time.Now()
	record, err := d.preparer.Prepare(klog.NewContext(ctx, logger), claim)
	d.Metrics.observeOperation("prepare", started, err)
	if err != nil {
		logger.Error(err, "Claim could not be prepared")
		return kubeletplugin.PrepareResult{Err: fmt.Errorf("prepare claim %s: %w", klog.KObj(claim), err)}
	}
	model := d.seen.Load().Model
	result := kubeletplugin.PrepareResult{}
	for _, device := range record.Devices {
		result.Devices = append(result.Devices, kubeletplugin.Device{
			Requests:     []string{device.Request},
			PoolName:     device.Pool,
			DeviceName:   device.Device,
			CDIDeviceIDs: []string{device.CDIDevice},
			ShareID:      device.ShareID,
			Metadata:     metadata(model, device),
		})
	}
	d.status.set(record, model)
	d.tellOfUnlimitedShares(record)
	d.claimsChanged()
	logger.V(2).Info("Claim prepared", "devices", len(record.Devices))
	return result
}

// tellOfUnlimitedShares writes an event for each share that is counted and not
// kept within its limits.
func (d *Driver) tellOfUnlimitedShares(record *prepare.Record) {
	for _, device := range record.Devices {
		if device.NotLimited != "" {
			d.events.claim(record.Claim, corev1.EventTypeWarning, "MemoryNotEnforced",
				"The share of %s of device %s is counted, not limited: %s", device.Consumed[devicemodel.CapacityMemory], device.Device, device.NotLimited)
		}
		if device.NoMPS != "" {
			d.events.claim(record.Claim, corev1.EventTypeWarning, "ComputeNotEnforced",
				"The compute of device %s is counted, not limited: %s", device.Device, device.NoMPS)
		}
	}
}

// UnprepareResourceClaims takes each claim's devices back, all at once.
func (d *Driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	errs := make([]error, len(claims))
	inParallel(len(claims), func(i int) { errs[i] = d.unprepareClaim(ctx, claims[i]) })
	byUID := make(map[types.UID]error, len(claims))
	for i, claim := range claims {
		byUID[claim.UID] = errs[i]
	}
	return byUID, nil
}

func (d *Driver) unprepareClaim(ctx context.Context, claim kubeletplugin.NamespacedObject) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "claim", klog.KRef(claim.Namespace, claim.Name), "uid", claim.UID)
	started := time.Now()
	d.status.forget(claim.UID)
	err := d.preparer.Unprepare(klog.NewContext(ctx, logger), claim.UID)
	d.Metrics.observeOperation("unprepare", started, err)
	if err != nil {
		logger.Error(err, "Claim could not be unprepared")
		return fmt.Errorf("unprepare claim %s: %w", claim, err)
	}
	d.claimsChanged()
	logger.V(2).Info("Claim unprepared")
	return nil
}

// inParallel calls f with 0 to n-1 and returns when all calls have.
func inParallel(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// metadata is what the pod can read about its device: what is published of it,
// and for a share how much of it is the pod's.
func metadata(model *devicemodel.Model, device prepare.Device) *kubeletplugin.DeviceMetadata {
	attributes := map[string]resourceapi.DeviceAttribute{}
	if published, ok := model.Device(device.Device); ok {
		for name, value := range published.API.Attributes {
			attributes[string(name)] = value
		}
	}
	if device.MIG != nil {
		attributes[devicemodel.AttributeUUID] = resourceapi.DeviceAttribute{StringValue: ptr.To(device.MIG.UUID)}
	}
	if device.ShareID != nil {
		attributes["shareID"] = resourceapi.DeviceAttribute{StringValue: ptr.To(string(*device.ShareID))}
	}
	for name, value := range device.Consumed {
		q, err := resource.ParseQuantity(value)
		if err != nil {
			continue // Checked when the claim was prepared.
		}
		attributes[shareAmount(name)] = resourceapi.DeviceAttribute{IntValue: ptr.To(q.Value())}
	}
	return &kubeletplugin.DeviceMetadata{Attributes: attributes}
}

// shareAmount is the metadata attribute for a share's part of a capacity:
// memory is in bytes, computePercent in percent.
func shareAmount(capacity string) string {
	switch capacity {
	case devicemodel.CapacityMemory:
		return "shareMemoryBytes"
	case devicemodel.CapacityComputePercent:
		return "shareComputePercent"
	}
	return capacity
}

// resolve tells prepare what an allocated device is.
func (d *Driver) resolve(name string) (prepare.Target, bool) {
	device, ok := d.seen.Load().Model.Device(name)
	if !ok {
		return prepare.Target{}, false
	}
	capacity := map[string]resource.Quantity{}
	for name, c := range device.API.Capacity {
		capacity[string(name)] = c.Value
	}
	target := prepare.Target{
		GPU: device.GPUUUID, MIGDevice: device.MIGDevice, Capacity: capacity,
		LimitsMemory: device.Enforced, CheckShare: device.CheckShare, Problem: device.Problem,
	}
	if device.Missing {
		target.Problem = "" // Preparing the claim makes it again.
	}
	if p := device.Partition; p != nil {
		target.Placement = &prepare.Placement{Profile: p.Profile, Start: p.Start, Size: device.Size, Given: device.MIGDevice != ""}
	} else if capable := device.API.Attributes[devicemodel.AttributeMIGCapable].BoolValue; capable != nil {
		target.Modes = *capable
	}
	return target, true
}
