package prepare

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
