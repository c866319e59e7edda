package devicemodel

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"apportion.dev/apportion/pkg/inventory"
)

// How the memory limit of a share is kept, the values of [AttributeMemoryEnforcement].
const (
	// MemoryEnforcementNVML means that NVML keeps a share's memory limit.
	MemoryEnforcementNVML = "nvml"
	// MemoryEnforcementNone means that a share's memory is counted and not limited.
	MemoryEnforcementNone = "none"
)

// Policy is what an administrator decides about the devices of a node.
type Policy struct {
	// Exclude names GPUs that are not published. An entry is a GPU's UUID
	// ("GPU-4f3a1b2c-..."), a PCI address ("0000:07:00.0", also as nvidia-smi and
	// lspci write it) or a product name, in any case and with the patterns of
	// path.Match ("NVIDIA T4*").
	Exclude []string
	// MemoryEnforcement is what the node can do about the memory of a share:
	// MemoryEnforcementNVML or MemoryEnforcementNone, the default.
	MemoryEnforcement string
}

// Validate returns an error that names each bad entry and the forms allowed.
func (p Policy) Validate() error {
	var errs []error
	for _, entry := range p.Exclude {
		if _, err := parseExclusion(entry); err != nil {
			errs = append(errs, fmt.Errorf("excluded device %q: %w; give a UUID (GPU-4f3a1b2c-...), a PCI address (0000:07:00.0) or a product name (NVIDIA L4, or a pattern such as *T4*)", entry, err))
		}
	}
	switch p.MemoryEnforcement {
	case "", MemoryEnforcementNone, MemoryEnforcementNVML:
	default:
		errs = append(errs, fmt.Errorf("memory enforcement %q is unknown; give %s or %s", p.MemoryEnforcement, MemoryEnforcementNVML, MemoryEnforcementNone))
	}
	return errors.Join(errs...)
}

func (p Policy) memoryEnforcement() string {
	if p.MemoryEnforcement == "" {
		return MemoryEnforcementNone
	}
	return p.MemoryEnforcement
}

func (p Policy) exclusions() []exclusion {
	var exclusions []exclusion
	for _, entry := range p.Exclude {
		if e, err := parseExclusion(entry); err == nil {
			exclusions = append(exclusions, e)
		}
	}
	return exclusions
}

// exclusion is one entry of Policy.Exclude.
type exclusion struct {
	entry   string
	matches func(inventory.GPU) bool
}

var onlyDigits = regexp.MustCompile(`^[0-9]+$`)

func parseExclusion(entry string) (exclusion, error) {
	value := strings.ToLower(strings.TrimSpace(entry))
	e := exclusion{entry: entry}
	switch {
	case value == "":
		return e, errors.New("it is empty")
	case onlyDigits.MatchString(value):
		return e, errors.New("an index does not always mean the same GPU")
	case strings.HasPrefix(value, "mig-"):
		return e, errors.New("a MIG device cannot be left out, only a GPU")
	case strings.HasPrefix(value, "gpu-"):
		digits := uuidDigits(value)
		if digits == "" {
			return e, errors.New("it is no complete UUID")
		}
		e.matches = func(gpu inventory.GPU) bool { return uuidDigits(gpu.UUID) == digits }
	case strings.Contains(value, ":"):
		address, err := inventory.NormalizePCIBusID(value)
		if err != nil {
			return e, errors.New("it is no PCI address")
		}
		e.matches = func(gpu inventory.GPU) bool { return strings.EqualFold(gpu.PCIBusID, address) }
	default:
		if _, err := path.Match(value, ""); err != nil {
			return e, err
		}
		e.matches = func(gpu inventory.GPU) bool {
			product := strings.ToLower(gpu.ProductName)
			matched, err := path.Match(value, product)
			return product == value || err == nil && matched
		}
	}
	return e, nil
}
