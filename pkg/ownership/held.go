package ownership

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
)

// Held is what claims hold of a driver's devices by their allocation, without who
// uses it: the owners to [Join] where the records of the nodes are not at hand, such
// as for a whole cluster. What the devices are is read from the driver's slices, and
// what only the node knows (the UUID of a partition made on demand, since when it is
// prepared) from what the driver wrote to the claim's status.
//
// The result is sorted and never nil.
func Held(claims []*resourceapi.ResourceClaim, resourceSlices []*resourceapi.ResourceSlice, driver string) []Owner {
	return NewPublished(driver, resourceSlices).Held(claims)
}

// Held is what claims hold of the devices, see [Held].
func (p *Published) Held(claims []*resourceapi.ResourceClaim) []Owner {
	owners := make([]Owner, 0, len(claims))
	for _, claim := range claims {
		if claim == nil || claim.Status.Allocation == nil {
			continue
		}
		results := claim.Status.Allocation.Devices.Results
		for i := range results {
			if results[i].Driver == p.driver {
				owners = append(owners, p.owner(claim, &results[i]))
			}
		}
	}
	Sort(owners)
	return compact(owners)
}

// owner is the hold of one result of a claim's allocation.
func (p *Published) owner(claim *resourceapi.ResourceClaim, result *resourceapi.DeviceRequestAllocationResult) Owner {
	memory := math.NaN()
	if amount, ok := result.ConsumedCapacity[devicemodel.CapacityMemory]; ok {
		memory = amount.AsApproximateFloat64()
	}
	device, taken := p.device(result.Pool, result.Device, shareOf(result), memory)
	o := Owner{
		Device:      device,
		Claim:       ClaimRef{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		Request:     result.Request,
		AdminAccess: result.AdminAccess != nil && *result.AdminAccess,
	}
	for name, amount := range result.ConsumedCapacity {
		if o.Consumed == nil {
			o.Consumed = make(map[string]string, len(result.ConsumedCapacity))
		}
		o.Consumed[string(name)] = amount.String()
	}
	if at := claim.Status.Allocation.AllocationTimestamp; at != nil {
		o.Since = at.UTC()
	}
	for i := range claim.Status.Devices {
		s := &claim.Status.Devices[i]
		if s.Driver == result.Driver && s.Pool == result.Pool && s.Device == result.Device && statusShare(s) == string(o.Device.ShareID) {
			o.prepared(s)
		}
	}
	o.Device.Fraction *= taken
	if o.AdminAccess {
		o.Device.Fraction = 0
	}
	return o
}

func statusShare(s *resourceapi.AllocatedDeviceStatus) string {
	if s.ShareID == nil {
		return ""
	}
	return *s.ShareID
}

// prepared adds what the node says of a device that it has prepared.
func (o *Owner) prepared(s *resourceapi.AllocatedDeviceStatus) {
	if since, ok := readySince(s.Conditions); ok {
		o.Since = since
	}
	isMIG := o.Device.IsPartition()
	if s.Data == nil || !isMIG && o.Device.UUID != "" && !bytes.Contains(s.Data.Raw, []byte(`"memoryLimitBytes"`)) {
		return // It says nothing more: most need not be decoded.
	}
	var data DeviceData
	if json.Unmarshal(s.Data.Raw, &data) != nil {
		return // Of a version that writes something else: it is not needed.
	}
	// It is not published where the node offers no partitions.
	o.Device.Fraction = cmp.Or(o.Device.Fraction, data.PartOfGPU)
	o.Device.ParentUUID = cmp.Or(o.Device.ParentUUID, data.ParentUUID)
	o.Device.Profile = cmp.Or(o.Device.Profile, data.Profile)
	if !isMIG || data.UUID != o.Device.ParentUUID {
		// Admin access to a partition that nobody has made has its GPU's.
		o.Device.UUID = cmp.Or(o.Device.UUID, data.UUID)
	}
	if isMIG {
		o.Device.GPUInstanceID = data.GPUInstance
	}
	o.MemoryLimitBytes = data.MemoryLimitBytes
}

// DeviceData is what a driver writes to status.devices[].data of a claim, as JSON.
type DeviceData struct {
	// UUID is the GPU's, or the MIG device's on the GPU of ParentUUID.
	UUID       string `json:"uuid"`
	ParentUUID string `json:"parentUUID,omitempty"`
	// Profile, GPUInstance and PartOfGPU are a partition's; PartOfGPU is over 0 and up
	// to 1, of all of the partition.
	Profile       string            `json:"profile,omitempty"`
	GPUInstance   *int              `json:"gpuInstance,omitempty"`
	PartOfGPU     float64           `json:"partOfGPU,omitempty"`
	PCIBusID      string            `json:"pciBusID,omitempty"`
	DriverVersion string            `json:"driverVersion,omitempty"`
	Consumed      map[string]string `json:"consumedCapacity,omitempty"`
	AdminAccess   bool              `json:"adminAccess,omitempty"`
	// MemoryLimitBytes is what each container may use of a share's GPU.
	MemoryLimitBytes *int64 `json:"memoryLimitBytes,omitempty"`
}

// readySince is when the device became ready.
func readySince(conditions []metav1.Condition) (time.Time, bool) {
	for i := range conditions {
		if c := &conditions[i]; c.Type == "Ready" && c.Status == metav1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.UTC(), true
		}
	}
	return time.Time{}, false
}
