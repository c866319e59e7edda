package devicemodel

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"apportion.dev/apportion/pkg/gpu/inventory"
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
	// MemoryEnforcementNVML or MemoryEnforcementNone, the default. It is done for
	// the GPUs of which NVML can limit the memory.
	MemoryEnforcement string
	// NoPartitions is true where partitions are not offered, by choice or because
	// the cluster drops counters (gate DRAPartitionableDevices). GPUs are published
	// without counters then. Those that an administrator made are still published.
	NoPartitions bool
	// NoShares is true where sharing is not offered, by choice or because the
	// cluster drops request policies (gate DRAConsumableCapacity).
	NoShares bool
	// Sharing is what shares there can be; Products has exceptions, of which the
	// first that matches counts.
	Sharing  SharingPolicy
	Products []ProductPolicy
	// TaintDomain is the domain of taint keys, the driver's name. Keys have no
	// domain if it is empty.
	TaintDomain string

	// Held are the partitions that the driver made for claims, with the id of the GPU
	// instance that each is, and Missing those that somebody else destroyed. They are
	// not a choice but what the driver knows beside the hardware: they are published
	// for as long as claims hold them, whatever else is offered. A partition in both
	// is missing.
	Held    map[inventory.Partition]int
	Missing []inventory.Partition
}

// claimedPartition is a partition of a GPU that holds a claim.
type claimedPartition struct {
	missing   bool
	instances []int
}

// claimedPartitions are those of one GPU, by the name of their device.
func (p Policy) claimedPartitions(gpu Name, uuid string) map[Name]claimedPartition {
	claimed := map[Name]claimedPartition{}
	for held, instance := range p.Held {
		if strings.EqualFold(held.GPU, uuid) {
			name := Name{GPU: gpu.GPU, Profile: held.Profile, Start: held.Start}
			claimed[name] = claimedPartition{instances: []int{instance}}
		}
	}
	for _, missing := range p.Missing {
		if strings.EqualFold(missing.GPU, uuid) {
			claimed[Name{GPU: gpu.GPU, Profile: missing.Profile, Start: missing.Start}] = claimedPartition{missing: true}
		}
	}
	return claimed
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
	if p.TaintDomain != "" {
		if reasons := validation.IsDNS1123Subdomain(p.TaintDomain); len(reasons) > 0 {
			errs = append(errs, fmt.Errorf("taint domain %q is not a driver's name: %s", p.TaintDomain, strings.Join(reasons, "; ")))
		}
	}
	return errors.Join(append(errs, p.validateSharing())...)
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
		e.matches = func(gpu inventory.GPU) bool { return isProduct(gpu, value) }
	}
	return e, nil
}
