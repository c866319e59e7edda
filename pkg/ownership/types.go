// Package ownership says who holds which GPU, partition or share: a join of prepared
// devices, claims and pods.
//
// It is pure: what was prepared, the claims and the pods come in as values, and the
// same values give the same answer, byte for byte. It does not know where they come
// from, and reads neither a clock nor the hardware.
package ownership

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
)

// Owner is a claim's hold on one device, or on one share of a device, and who uses it
// by that claim.
type Owner struct {
	Device Device   `json:"device"`
	Claim  ClaimRef `json:"claim"`
	// Request is the name of the claim's request that the device was given for, with
	// its subrequest ("gpu/large").
	Request string `json:"request"`
	// AdminAccess holds see the device and take nothing of it.
	AdminAccess bool `json:"adminAccess,omitempty"`
	// Consumed is what a share takes of the device, as the claim's allocation has it:
	// capacity name -> quantity in its canonical form. Empty for a device that is not
	// shared.
	Consumed map[string]string `json:"consumed,omitempty"`
	// MemoryLimitBytes is the limit that the hardware driver keeps for each container;
	// nil where nothing limits it.
	MemoryLimitBytes *int64 `json:"memoryLimitBytes,omitempty"`
	// Since is when the claim was prepared on the node, or allocated where that is not
	// known. In UTC.
	Since time.Time `json:"since,omitzero"`
	// Consumers are the pods that use the device by this claim, by namespace, name and
	// UID. There may be none: a claim holds its devices until it is unprepared,
	// whatever pods are listed.
	Consumers []Consumer `json:"consumers,omitempty"`
}

// Device identifies a GPU, a MIG partition, or a share of either.
type Device struct {
	// Driver, Pool and Name identify the device in ResourceSlices.
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Name   string `json:"name"`
	// Type is "gpu" or "mig" (devicemodel.TypeGPU, devicemodel.TypeMIG).
	Type string `json:"type,omitempty"`
	// UUID is NVML's: of the GPU, or of the MIG device. It is empty for a partition
	// made on demand where the node has not said it.
	UUID string `json:"uuid,omitempty"`
	// ParentUUID is the UUID of the GPU that a partition lies on.
	ParentUUID string `json:"parentUUID,omitempty"`
	// Profile is a partition's ("1g.10gb"), GPUInstanceID the id of its GPU instance on
	// the GPU, where it is known.
	Profile       string `json:"profile,omitempty"`
	GPUInstanceID *int   `json:"gpuInstanceID,omitempty"`
	// ShareID tells the shares of a device apart; empty for a device that is not
	// shared.
	ShareID types.UID `json:"shareID,omitempty"`
	// Fraction is the part of the whole GPU that is held, over 0 and up to 1: 1 for a
	// whole GPU, a partition's memory slices over the GPU's, and of either a share's
	// part of the memory. 0 where it is not known, and for admin access.
	Fraction float64 `json:"fraction,omitempty"`
}

// IsPartition says whether the device is a partition of a GPU, or a share of one.
func (d *Device) IsPartition() bool {
	return d.Type == devicemodel.TypeMIG || d.ParentUUID != "" || d.Profile != "" || d.GPUInstanceID != nil
}

// GPUUUID is the UUID of the GPU that the device is or lies on, empty if it is not known.
func (d *Device) GPUUUID() string {
	if d.IsPartition() {
		return d.ParentUUID
	}
	return d.UUID
}

// PartOfGPU is Fraction up to 1, and for a GPU that is neither partitioned nor shared 1
// where Fraction is not known.
func (d *Device) PartOfGPU() float64 {
	if d.Fraction <= 0 && !d.IsPartition() && d.ShareID == "" {
		return 1
	}
	return max(0, min(1, d.Fraction))
}

// ClaimRef identifies a ResourceClaim.
type ClaimRef struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// Consumer is a pod that uses a device.
type Consumer struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Node is the name of the pod's node, empty before it has one.
	Node string `json:"node,omitempty"`
	// State says how far the pod is.
	State PodState `json:"state"`
	// Workload is what the pod was made by, if that is known: of a ReplicaSet its
	// Deployment, of a Job its CronJob.
	Workload *Workload `json:"workload,omitempty"`
	// Labels are the pod's.
	Labels map[string]string `json:"labels,omitempty"`
	// Containers are those that use the device, in the pod's order: init containers
	// and sidecars, the regular ones, ephemeral ones. A pod may reserve a device that
	// no container uses.
	Containers []Container `json:"containers,omitempty"`
}

// PodState is how far a pod is.
type PodState string

const (
	// Waiting pods have no container that has started.
	Waiting PodState = "Waiting"
	// Running pods have a container that has started, and are not being deleted.
	Running PodState = "Running"
	// Terminating pods are being deleted, and still hold their devices.
	Terminating PodState = "Terminating"
	// Gone pods have ended (Succeeded or Failed), or reserve the claim and do not
	// exist any more; the latter have a name and UID alone.
	Gone PodState = "Gone"
)

// Workload is what a pod was made by.
type Workload struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// Container uses a device.
type Container struct {
	Name string        `json:"name"`
	Kind ContainerKind `json:"kind"`
	// ID is the runtime's id of the running container, without "containerd://" and the
	// like. Empty for one that does not run.
	ID string `json:"id,omitempty"`
	// Started is true once it has run, whether or not it runs now.
	Started bool `json:"started,omitempty"`
}

// ContainerKind is a container's place in its pod.
type ContainerKind string

const (
	// InitContainer ends before the regular ones start.
	InitContainer ContainerKind = "init"
	// Sidecar is an init container that is always restarted.
	Sidecar ContainerKind = "sidecar"
	// RegularContainer is one of pod.spec.containers.
	RegularContainer ContainerKind = "regular"
	// EphemeralContainer was added to a running pod.
	EphemeralContainer ContainerKind = "ephemeral"
)

// Snapshot is who holds what at one moment.
type Snapshot struct {
	// Instance tells apart the processes that count generations.
	Instance string `json:"instance"`
	// Generation grows with every change of Owners.
	Generation uint64 `json:"generation"`
	// Time is when Owners last became what they are. Verified is when it was last
	// known that they still are. In UTC.
	Time     time.Time `json:"time"`
	Verified time.Time `json:"verified"`
	// Problem says why Owners may be stale or lack pods ("pods: connection refused");
	// empty if they are right.
	Problem string `json:"problem,omitempty"`
	// Owners are sorted by driver, pool, device name, share, claim namespace, name and
	// UID, request.
	Owners []Owner `json:"owners"`
}
