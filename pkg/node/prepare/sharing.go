package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	configapi "apportion.dev/apportion/api/resource"
	"apportion.dev/apportion/api/resource/v1alpha1"
	gpufacts "apportion.dev/apportion/pkg/gpu"
	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/node/mps"
)

// settings are what the opaque configs for a result say. Configs of the class come
// before those of the claim in the allocation, and later ones win. A config for the
// other type of device is not meant: a prioritized list carries both.
func (p *Preparer) settings(configs []resourceapi.DeviceAllocationConfiguration, result resourceapi.DeviceRequestAllocationResult, partition bool) (v1alpha1.Settings, error) {
	var applicable []v1alpha1.Config
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim} {
		for _, c := range resourceclaim.ConfigForResult(configs, result) {
			if c.Source != source || c.Opaque == nil || c.Opaque.Driver != p.Driver {
				continue
			}
			config, err := configapi.DecodeFor(p.Driver, c.Opaque.Parameters.Raw)
			if err != nil {
				return v1alpha1.Settings{}, fmt.Errorf("request %s: config of the %s: %w", result.Request, sourceName(source), err)
			}
			if source == resourceapi.AllocationConfigSourceClaim {
				if err := v1alpha1.ValidateForClaim(config).ToAggregate(); err != nil {
					return v1alpha1.Settings{}, fmt.Errorf("request %s: config of the claim: %w", result.Request, err)
				}
			}
			if _, forPartition := config.(*v1alpha1.MIGConfig); forPartition == partition {
				applicable = append(applicable, config)
			}
		}
	}
	settings, err := v1alpha1.Resolve(applicable...)
	if err != nil {
		return v1alpha1.Settings{}, fmt.Errorf("request %s: config: %w", result.Request, err)
	}
	return settings, nil
}

func sourceName(s resourceapi.AllocationConfigSource) string {
	if s == resourceapi.AllocationConfigSourceClass {
		return "DeviceClass"
	}
	return "claim"
}

// applyConfig works out what the result's configs and amounts mean for the device.
// A request with admin access is not limited, and sets nothing.
func (p *Preparer) applyConfig(d *Device, configs []resourceapi.DeviceAllocationConfiguration, result resourceapi.DeviceRequestAllocationResult) error {
	settings, err := p.settings(configs, result, d.Placement != nil)
	if err != nil || d.AdminAccess {
		return err
	}
	if err := limitMemory(d, settings.Memory, result); err != nil {
		return err
	}
	if d.Placement == nil {
		d.TimeSlice = string(settings.TimeSlice)
	}
	return wantMPS(d, settings.MPS, result)
}

// limitMemory sets the memory limit of a share. A share of all of a device needs none.
func limitMemory(d *Device, settings v1alpha1.MemorySettings, result resourceapi.DeviceRequestAllocationResult) error {
	memory, consumed := result.ConsumedCapacity[devicemodel.CapacityMemory]
	total, known := d.planned.target.Capacity[devicemodel.CapacityMemory]
	if d.ShareID == nil || !consumed || !known || memory.Cmp(total) >= 0 {
		return nil
	}
	reason := ""
	switch {
	case settings.Enforcement == v1alpha1.EnforcementNone:
		return nil
	case d.Placement != nil:
		reason = "NVML limits the memory of no share of a MIG partition"
	case !d.planned.target.LimitsMemory:
		reason = fmt.Sprintf("NVML on this node cannot limit a container's memory (it takes driver %d or newer and cgroup v2)", gpufacts.MemoryLimitsSince)
	}
	if reason != "" {
		if settings.Enforcement == v1alpha1.EnforcementRequired {
			return fmt.Errorf("request %s requires that its memory is limited, but for device %s it is not: %s; select devices whose attribute memoryEnforcement is nvml, or set memory.enforcement to Preferred", result.Request, d.Device, reason)
		}
		d.NotLimited = reason
		return nil
	}
	hard := memory.Value()
	soft := hard
	if settings.SoftLimit != nil {
		if soft = settings.SoftLimit.Value(); soft > hard {
			return fmt.Errorf("request %s: memory.softLimit %s is above the share's memory %s; give at most that", result.Request, settings.SoftLimit, &memory)
		}
	}
	d.MemoryLimit = &MemoryLimit{Soft: soft, Hard: hard}
	return nil
}

// wantMPS says what the device is to get of MPS. Whether there is any is seen when
// it is acquired. A reserved percentage of compute asks for it too.
func wantMPS(d *Device, settings *v1alpha1.MPSSettings, result resourceapi.DeviceRequestAllocationResult) error {
	percent := 0
	if reserved, ok := result.ConsumedCapacity[devicemodel.CapacityComputePercent]; ok {
		percent = int(reserved.Value())
	}
	if settings == nil && percent == 0 || settings != nil && settings.Enforcement == v1alpha1.EnforcementNone {
		return nil
	}
	want := &MPS{Percent: percent}
	enforcement := v1alpha1.EnforcementPreferred
	if settings != nil {
		enforcement = settings.Enforcement
		if percent == 0 && settings.ActiveThreadPercentage != nil {
			want.Percent = int(*settings.ActiveThreadPercentage)
		}
		if settings.PinnedDeviceMemoryLimit != nil {
			want.PinnedBytes = settings.PinnedDeviceMemoryLimit.Value()
		}
	}
	d.MPS, d.planned.mpsRequired = want, enforcement == v1alpha1.EnforcementRequired
	if d.Placement != nil {
		return d.withoutMPS(errors.New("MPS in a MIG partition is not offered"))
	}
	return nil
}

// oneMPS gives MPS to no device of a claim with several GPUs: a CUDA process uses one
// daemon, and sees no GPU but that one's.
func oneMPS(devices []Device) error {
	if len(gpus(devices)) < 2 {
		return nil
	}
	for i := range devices {
		if devices[i].MPS == nil {
			continue
		}
		if err := devices[i].withoutMPS(errors.New("with MPS a container can use one GPU only, and the claim has several")); err != nil {
			return err
		}
	}
	return nil
}

// withoutMPS is what becomes of a device for which there is no MPS.
func (d *Device) withoutMPS(reason error) error {
	if d.planned.mpsRequired {
		return fmt.Errorf("request %s requires MPS, which device %s cannot have: %w; set sharing.mps.enforcement to Preferred to run without", d.Request, d.Device, reason)
	}
	d.MPS, d.NoMPS = nil, reason.Error()
	return nil
}

// acquireCompute has the MPS daemons that the devices want running.
func (p *Preparer) acquireCompute(ctx context.Context, uid types.UID, devices []Device) error {
	for i := range devices {
		d := &devices[i]
		if d.MPS == nil {
			continue
		}
		err := p.Compute.Acquire(ctx, d.GPU, uid)
		if errors.Is(err, mps.ErrUnavailable) {
			err = d.withoutMPS(err)
		}
		if err != nil {
			return fmt.Errorf("MPS for GPU %s: %w", d.GPU, err)
		}
	}
	return nil
}

// releaseCompute gives up the MPS daemons of a recorded claim. Where there is no MPS,
// there are no daemons either.
func (p *Preparer) releaseCompute(ctx context.Context, r *Record) error {
	for _, d := range r.Devices {
		if d.MPS == nil {
			continue
		}
		if err := p.Compute.Release(ctx, d.GPU, r.Claim.UID); err != nil && !errors.Is(err, mps.ErrUnavailable) {
			return fmt.Errorf("give up MPS of GPU %s: %w", d.GPU, err)
		}
	}
	return nil
}

// releaseUnused gives up the daemons that a Prepare acquired or found acquired, but
// for those that the claim's record, if there is one, says it uses. before is the
// record that the Prepare found.
func (p *Preparer) releaseUnused(ctx context.Context, uid types.UID, before *Record, devices []Device) error {
	acquired := slices.Clone(devices)
	if before != nil {
		acquired = append(acquired, before.Devices...)
	}
	acquired = slices.DeleteFunc(acquired, func(d Device) bool { return d.MPS == nil })
	if len(acquired) == 0 {
		return nil
	}
	record, err := p.store.get(uid)
	if err != nil {
		return err
	}
	unused := slices.DeleteFunc(acquired, func(d Device) bool { return record.usesMPS(d.GPU) })
	return p.releaseCompute(context.WithoutCancel(ctx), &Record{Claim: ClaimRef{UID: uid}, Devices: unused})
}

// usesMPS says whether the claim's containers use the MPS daemon of the GPU.
func (r *Record) usesMPS(gpu string) bool {
	return r != nil && slices.ContainsFunc(r.Devices, func(d Device) bool { return d.GPU == gpu && d.MPS != nil })
}

// reacquireTimeout is how long daemons may take to start again at the driver's start,
// all together.
const reacquireTimeout = 30 * time.Second

// retainCompute brings the users of MPS in line with the records at start. It drops
// those that no record knows: what a process that ended in the middle acquired. And it
// acquires again for prepared claims that are users no more, because the supervisor
// lost its file.
func (p *Preparer) retainCompute(ctx context.Context) error {
	type use struct {
		gpu   string
		claim types.UID
	}
	known := map[use]bool{}
	err := p.Compute.Retain(ctx, func(gpu string, claim types.UID) bool {
		known[use{gpu, claim}] = true
		record, err := p.store.get(claim)
		return err != nil || record.usesMPS(gpu)
	})
	if err != nil && !errors.Is(err, mps.ErrUnavailable) {
		return fmt.Errorf("give up MPS daemons that nobody uses: %w", err)
	}
	records, err := p.Prepared()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reacquireTimeout)
	defer cancel()
	var errs []error
	for _, r := range records {
		for _, gpu := range gpus(r.Devices) {
			if !r.usesMPS(gpu) || known[use{gpu, r.Claim.UID}] {
				continue
			}
			if err := p.Compute.Acquire(ctx, gpu, r.Claim.UID); err != nil {
				errs = append(errs, fmt.Errorf("claim %s lost its MPS daemon of GPU %s: %w", r.Claim, gpu, err))
			}
		}
	}
	return errors.Join(errs...)
}
