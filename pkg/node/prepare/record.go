package prepare

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/cdi"
	"apportion.dev/apportion/pkg/node/mig"
)

// recordVersion is the version of the record's format. A reader refuses a
// higher one: an older driver must not guess what a newer one has done.
const recordVersion = 1

// State says how far a claim has come.
type State string

const (
	// Preparing is recorded before the first step is taken. Whoever finds it while
	// holding the locks of the record's GPUs knows that a Prepare did not end, and
	// undoes it.
	Preparing State = "Preparing"
	// Prepared is recorded after the last step.
	Prepared State = "Prepared"
)

// Record is what the driver has done for one claim. It holds everything that is
// needed to undo it, because the claim itself may be gone by then.
type Record struct {
	Version int      `json:"version"`
	Claim   ClaimRef `json:"claim"`
	// State is not in the file but in its name: a rename changes it at once.
	State State     `json:"-"`
	Since time.Time `json:"since"`
	// Devices are the claim's results for this driver, in allocation order.
	Devices []Device `json:"devices"`
	// BootID is the boot in which the claim was prepared
	// (/proc/sys/kernel/random/boot_id), DriverVersion the NVIDIA driver's
	// version at that time. A claim whose record names others is prepared again.
	BootID        string `json:"bootID,omitempty"`
	DriverVersion string `json:"driverVersion,omitempty"`
	// SpecDigest identifies the content of the claim's CDI spec.
	SpecDigest string `json:"specDigest,omitempty"`

	// spec is the CDI spec from when it is known until it is written.
	spec cdi.Spec
}

// ClaimRef identifies a claim for good: names are used again, UIDs are not.
type ClaimRef struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

func (c ClaimRef) String() string { return c.Namespace + "/" + c.Name }

// Device is one allocated device, or one share of a device, of a claim.
type Device struct {
	// Request is the result's request name, with its subrequest ("gpu/large").
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	// GPU is the UUID of the physical GPU that the device is, or is part of.
	GPU string `json:"gpu"`
	// ShareID is set for a share of a device that allows several allocations.
	ShareID *types.UID `json:"shareID,omitempty"`
	// Consumed is what a share takes of the device: capacity name -> quantity.
	Consumed map[string]string `json:"consumed,omitempty"`
	// AdminAccess devices are seen, not held.
	AdminAccess bool `json:"adminAccess,omitempty"`
	// CDIDevice is the fully qualified CDI device, unique per device and share.
	CDIDevice string `json:"cdiDevice"`

	// Placement is where a partition lies on its GPU; nil for a whole GPU.
	Placement *Placement `json:"placement,omitempty"`
	// MIG is the MIG device that containers get of a partition. For one that is
	// made on demand it is known once it was made.
	MIG *mig.Instance `json:"mig,omitempty"`
	// MemoryLimit is what each container may use of a share's GPU; nil if nothing
	// limits it. NotLimited says why that is so where a limit was wanted.
	MemoryLimit *MemoryLimit `json:"memoryLimit,omitempty"`
	NotLimited  string       `json:"notLimited,omitempty"`
	// MPS is what a share gets of the GPU's compute through MPS; nil if it does not
	// use it. NoMPS says why that is so where it was wanted.
	MPS   *MPS   `json:"mps,omitempty"`
	NoMPS string `json:"noMPS,omitempty"`
	// TimeSlice is the interval that the claim asks of its GPU ("Long"), empty if it
	// does not care.
	TimeSlice string `json:"timeSlice,omitempty"`

	planned planned
}

// planned is what is known of a device while its claim is being prepared, and not
// recorded.
type planned struct {
	// target is what the device is on this node. It is asked for once, as the node
	// may change while the claim waits.
	target Target
	// mpsRequired says whether the claim cannot do without MPS, tolerant whether it
	// tolerates taints.
	mpsRequired, tolerant bool
	// wrongAmounts says why a share of these amounts cannot be given.
	wrongAmounts error
}

// Placement is the place of a partition among its GPU's memory slices.
type Placement struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
	// Given is true for a partition that an administrator made: it is used as it
	// is, and never destroyed.
	Given bool `json:"given,omitempty"`
}

func (p Placement) overlaps(q Placement) bool {
	return p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
}

// MemoryLimit is in bytes, as nvmlDeviceSetMemoryLimits_v1 takes it.
type MemoryLimit struct {
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
}

// MPS is how a container uses the GPU's MPS daemon.
type MPS struct {
	// Percent is the active thread percentage, 0 if not limited.
	Percent int `json:"percent,omitempty"`
	// PinnedBytes limits the device memory that a client pins, 0 if not limited.
	PinnedBytes int64 `json:"pinnedBytes,omitempty"`
}

// onDemand says whether the device is a partition that the claim makes.
func (d Device) onDemand() bool {
	return d.Placement != nil && !d.Placement.Given && !d.AdminAccess
}

// given says whether the device is a partition that an administrator made.
func (d Device) given() bool { return d.Placement != nil && d.Placement.Given && d.MIG != nil }

// partition names the partition that the device is.
func (d Device) partition() inventory.Partition {
	return inventory.Partition{GPU: d.GPU, Profile: d.Placement.Profile, Start: d.Placement.Start}
}

// visible is the UUID of the GPU or MIG device that a container gets.
func (d Device) visible() string {
	if d.MIG != nil {
		return d.MIG.UUID
	}
	return d.GPU
}

// errNewerRecord is returned for a record that a later version wrote.
var errNewerRecord = errors.New("written by a newer version of the driver")

// decodeRecord parses a record and checks that it is one of claim uid.
func decodeRecord(uid types.UID, state State, data []byte) (*Record, error) {
	if len(data) == 0 {
		return nil, errors.New("file is empty")
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	if version.Version > recordVersion {
		return nil, fmt.Errorf("format version %d, this driver knows %d: %w", version.Version, recordVersion, errNewerRecord)
	}
	if version.Version < 1 {
		return nil, errors.New("no format version")
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Claim.UID != uid {
		return nil, fmt.Errorf("is about claim %q", r.Claim.UID)
	}
	r.State = state
	return &r, nil
}

func (r *Record) encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode record of claim %s: %w", r.Claim, err)
	}
	return append(data, '\n'), nil
}

// gpus lists the physical GPUs that the record's devices lie on, each once.
func gpus(devices []Device) []string {
	seen := map[string]bool{}
	var out []string
	for _, d := range devices {
		if d.GPU != "" && !seen[d.GPU] {
			seen[d.GPU] = true
			out = append(out, d.GPU)
		}
	}
	return out
}
