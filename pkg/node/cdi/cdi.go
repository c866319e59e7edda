// Package cdi writes one Container Device Interface spec per claim: the devices
// of that claim and of no other.
//
// What a GPU needs inside a container comes from nvidia-container-toolkit's
// nvcdi, asked about the driver that is installed at that moment; a MIG device
// needs the node of its GPU and those of its capabilities. The package knows
// claims only by their UID; it does not know Kubernetes objects, and it does not
// decide who gets what.
package cdi

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/internal/atomicfile"
)

// class is the CDI class of claims' devices; the vendor is the driver's name.
const class = "claim"

// Options says where things are. Paths are absolute.
type Options struct {
	// Vendor is the driver's name, for example "gpu.apportion.dev".
	Vendor string
	// Dir is the folder for specs, for example "/var/run/cdi".
	Dir string
	// Library is the NVML of the installed driver.
	Library nvml.Interface
	// DriverRoot is where this process sees the folder under which the NVIDIA
	// driver is installed, HostDriverRoot where the container runtime sees it.
	DriverRoot, HostDriverRoot string
	// HookPath is where the container runtime finds nvidia-cdi-hook.
	HookPath string
}

// Device is one device of a claim.
type Device struct {
	// Name is the device's name within the claim's spec, from DeviceName.
	Name string
	// GPU is the UUID of the GPU (or MIG device) that a container gets.
	GPU string
	// Edits are what the claim adds for this device: environment, mounts, hooks.
	// Paths of the host are those that the container runtime sees.
	Edits specs.ContainerEdits
}

// Writer writes and removes claims' specs. Its methods may be called
// concurrently for different claims.
type Writer struct {
	options Options
	edits   *editSource
}

// New returns a Writer. It fails if the driver's name is no CDI vendor.
func New(o Options) (*Writer, error) {
	if err := parser.ValidateVendorName(o.Vendor); err != nil {
		return nil, fmt.Errorf("driver name %q cannot be a CDI vendor: %w", o.Vendor, err)
	}
	return &Writer{options: o, edits: newEditSource(o)}, nil
}

// DeviceName returns the name of a claim's device, or of a share of it. It is
// never used again for another claim, so no runtime can answer from an old spec.
func DeviceName(claim types.UID, device string, share *types.UID) string {
	name := string(claim) + "-" + device
	if share != nil {
		name += "-" + string(*share)
	}
	return name
}

// QualifiedName returns the identifier by which a container runtime knows a
// device from DeviceName.
func (w *Writer) QualifiedName(name string) string {
	return parser.QualifiedName(w.options.Vendor, class, name)
}

// Write makes spec the claim's spec. What was there for the claim is replaced.
func (w *Writer) Write(claim types.UID, spec Spec) error {
	err := atomicfile.Write(w.path(claim), spec.Data, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(w.options.Dir, 0o755); err == nil {
			err = atomicfile.Write(w.path(claim), spec.Data, 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("CDI spec: %w", err)
	}
	return nil
}

// Intact says whether the claim's spec is on disk with the content of that
// digest.
func (w *Writer) Intact(claim types.UID, digest string) (bool, error) {
	data, err := os.ReadFile(w.path(claim))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("CDI spec: %w", err)
	}
	return digestOf(data) == digest, nil
}

// Remove deletes the claim's spec. It is no error if there is none.
func (w *Writer) Remove(claim types.UID) error {
	if err := os.Remove(w.path(claim)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("CDI spec: %w", err)
	}
	return nil
}

// Sweep removes the specs of claims that are not to be kept, also those that
// device metadata left, and unfinished files. It returns the names of the files
// it removed. Nobody may be writing specs meanwhile.
func (w *Writer) Sweep(keep func(claim types.UID) bool) (removed []string, err error) {
	entries, err := os.ReadDir(w.options.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("CDI folder: %w", err)
	}
	var errs []error
	for _, e := range entries {
		claim, ours := w.claimOf(e.Name())
		if !ours || keep(claim) {
			continue
		}
		if err := os.Remove(filepath.Join(w.options.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(errs...)
}

// claimOf says which claim a file of the CDI folder belongs to, if it is one of
// this driver's. An unfinished file belongs to no claim.
func (w *Writer) claimOf(file string) (types.UID, bool) {
	claims := w.options.Vendor + "-" + class + "_"
	// The helper library names the specs of device metadata
	// <driver>_metadata_<claim UID>_<request>.json.
	metadata := w.options.Vendor + "_metadata_"
	if atomicfile.IsTemp(file) {
		return "", strings.HasPrefix(file, "."+claims) || strings.HasPrefix(file, "."+metadata)
	}
	name, ok := strings.CutSuffix(file, ".json")
	if !ok {
		return "", false
	}
	if uid, ok := strings.CutPrefix(name, claims); ok {
		return types.UID(uid), true
	}
	if rest, ok := strings.CutPrefix(name, metadata); ok {
		uid, _, ok := strings.Cut(rest, "_")
		return types.UID(uid), ok
	}
	return "", false
}

func (w *Writer) path(claim types.UID) string {
	return filepath.Join(w.options.Dir, w.options.Vendor+"-"+class+"_"+string(claim)+".json")
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
