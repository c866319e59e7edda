package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/node/prepare"
	"apportion.dev/apportion/pkg/ownership"
)

// statusWriter writes status.devices of prepared claims by server-side apply,
// behind the kubelet's back: no pod waits for it, and errors are tried again.
type statusWriter struct {
	client  kubernetes.Interface
	config  Config
	queue   workqueue.TypedRateLimitingInterface[types.UID]
	mu      sync.Mutex
	desired map[types.UID]*resourceapply.ResourceClaimApplyConfiguration
}

func newStatusWriter(client kubernetes.Interface, c Config) *statusWriter {
	return &statusWriter{
		client: client, config: c,
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.UID]()),
		desired: map[types.UID]*resourceapply.ResourceClaimApplyConfiguration{},
	}
}

// statusDelay keeps the writes out of the way of a burst of pods that start, and
// saves the write for a claim that is unprepared meanwhile.
const statusDelay = 200 * time.Millisecond

// set notes what the status of a prepared claim is to be.
func (s *statusWriter) set(record *prepare.Record, model *devicemodel.Model) {
	claim := record.Claim
	desired := resourceapply.ResourceClaim(claim.Name, claim.Namespace).WithUID(claim.UID).
		WithStatus(resourceapply.ResourceClaimStatus().WithDevices(statusDevices(s.config, record, model)...))
	s.mu.Lock()
	s.desired[claim.UID] = desired
	s.mu.Unlock()
	s.queue.AddAfter(claim.UID, statusDelay)
}

// forget drops what was not written yet: the claim is being unprepared.
func (s *statusWriter) forget(claim types.UID) {
	s.mu.Lock()
	delete(s.desired, claim)
	s.mu.Unlock()
}

// run writes until ctx ends.
func (s *statusWriter) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for s.next(ctx) {
		}
	})
	<-ctx.Done()
	s.queue.ShutDown()
	wg.Wait()
}

func (s *statusWriter) next(ctx context.Context) bool {
	uid, stop := s.queue.Get()
	if stop {
		return false
	}
	defer s.queue.Done(uid)
	s.mu.Lock()
	desired := s.desired[uid]
	s.mu.Unlock()
	if desired == nil {
		s.queue.Forget(uid)
		return true
	}
	err := s.apply(ctx, desired)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "claim", klog.KRef(*desired.Namespace, *desired.Name), "uid", uid)
	switch {
	case err == nil:
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// The claim is gone, or there is a new one of the same name.
		logger.V(3).Info("Status of a claim that is gone was not written", "reason", err)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		// Deallocated meanwhile, or not permitted: trying again does not help.
		logger.Error(err, "Status of the claim could not be written")
	case ctx.Err() != nil:
		return true
	default:
		logger.V(2).Info("Status of the claim could not be written, it is tried again", "reason", err)
		s.queue.AddRateLimited(uid)
		return true
	}
	s.queue.Forget(uid)
	s.mu.Lock()
	if s.desired[uid] == desired {
		delete(s.desired, uid)
	}
	s.mu.Unlock()
	return true
}

func (s *statusWriter) apply(ctx context.Context, desired *resourceapply.ResourceClaimApplyConfiguration) error {
	_, err := s.client.ResourceV1().ResourceClaims(*desired.Namespace).ApplyStatus(ctx, desired,
		metav1.ApplyOptions{FieldManager: s.config.DriverName, Force: true})
	return err
}

// statusDevices says for each device and share of a claim that it is ready, and
// what it is.
func statusDevices(c Config, record *prepare.Record, model *devicemodel.Model) []*resourceapply.AllocatedDeviceStatusApplyConfiguration {
	var out []*resourceapply.AllocatedDeviceStatusApplyConfiguration
	seen := map[string]bool{}
	for _, device := range record.Devices {
		if seen[device.CDIDevice] {
			continue
		}
		seen[device.CDIDevice] = true
		data := ownership.DeviceData{UUID: device.GPU, Consumed: device.Consumed, AdminAccess: device.AdminAccess}
		if device.MemoryLimit != nil {
			data.MemoryLimitBytes = &device.MemoryLimit.Hard
		}
		if device.Placement != nil {
			data.ParentUUID, data.Profile = device.GPU, device.Placement.Profile
		}
		if device.MIG != nil {
			data.UUID = device.MIG.UUID
			if !device.Placement.Given {
				data.GPUInstance = &device.MIG.GPUInstance
			}
		}
		if published, ok := model.Device(device.Device); ok {
			data.PCIBusID = published.PCIBusID
			if published.Partition != nil {
				data.PartOfGPU = published.PartOfGPU
			}
			if version := published.API.Attributes[devicemodel.AttributeDriverVersion].VersionValue; version != nil {
				data.DriverVersion = *version
			}
		}
		raw, err := json.Marshal(data)
		if err != nil {
			raw = []byte("{}") // Strings and a map of strings always encode.
		}
		status := resourceapply.AllocatedDeviceStatus().
			WithDriver(c.DriverName).WithPool(device.Pool).WithDevice(device.Device).
			WithData(runtime.RawExtension{Raw: raw}).
			WithConditions(conditions(c, record, device)...)
		if device.ShareID != nil {
			status.WithShareID(string(*device.ShareID))
		}
		out = append(out, status)
	}
	return out
}

// Conditions of a prepared device beside Ready, for what has limits.
const (
	// conditionMemoryEnforced says whether NVML keeps a share's memory limit.
	conditionMemoryEnforced = "MemoryEnforced"
	// conditionMPS says whether a share gets its part of the compute by MPS.
	conditionMPS = "MPS"
)

func conditions(c Config, record *prepare.Record, device prepare.Device) []*metaapply.ConditionApplyConfiguration {
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) *metaapply.ConditionApplyConfiguration {
		return metaapply.Condition().WithType(kind).WithStatus(status).WithReason(reason).WithMessage(message).
			WithLastTransitionTime(metav1.NewTime(record.Since))
	}
	out := []*metaapply.ConditionApplyConfiguration{
		condition("Ready", metav1.ConditionTrue, "Prepared", "The device is prepared on node "+c.NodeName),
	}
	switch {
	case device.MemoryLimit != nil:
		out = append(out, condition(conditionMemoryEnforced, metav1.ConditionTrue, "LimitedByNVML",
			fmt.Sprintf("NVML limits each container to %d bytes", device.MemoryLimit.Hard)))
	case device.NotLimited != "":
		out = append(out, condition(conditionMemoryEnforced, metav1.ConditionFalse, "NotSupported", device.NotLimited))
	}
	switch {
	case device.MPS != nil:
		out = append(out, condition(conditionMPS, metav1.ConditionTrue, "Running", "The containers use the GPU's MPS daemon"))
	case device.NoMPS != "":
		out = append(out, condition(conditionMPS, metav1.ConditionFalse, "NotAvailable", device.NoMPS))
	}
	return out
}
