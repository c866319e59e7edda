package products

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Brands are the marketing lines by which NVML knows products, as go-nvlib words them.
var Brands = []string{"GeForce", "Nvidia", "NvidiaRTX", "Quadro", "QuadroRTX", "Tesla", "Titan", "TitanRTX"}

// Architectures are those that NVML knows, the oldest first.
var Architectures = []string{"Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell", "Rubin"}

var (
	productName = regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)*$`)
	capability  = regexp.MustCompile(`^[1-9][0-9]*\.[0-9]+$`)
	profileName = regexp.MustCompile(`^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z][a-z0-9.,]*)?$`)
)

// Bounds of what the data may say; hardware is far within.
const (
	maxMiB          = 1 << 30
	maxNumber       = 1 << 16
	maxMemorySlices = 16
)

// Validate says what is missing or wrong, each with the field's name, among the facts
// that a node's published devices depend on. The others (of which only fake hardware
// makes use) may be left out.
func (p *Product) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !productName.MatchString(p.Name) {
		bad("name %q: give one of small letters, digits and dashes, such as h100-sxm5-80gb", p.Name)
	}
	if strings.TrimSpace(p.ProductName) == "" {
		bad("productName is missing: the name that nvidia-smi -L shows")
	}
	if !slices.Contains(Brands, p.Brand) {
		bad("brand %q is unknown; known are: %s", p.Brand, strings.Join(Brands, ", "))
	}
	if !slices.Contains(Architectures, p.Architecture) {
		bad("architecture %q is unknown; known are: %s", p.Architecture, strings.Join(Architectures, ", "))
	}
	if !capability.MatchString(p.ComputeCapability) {
		bad("computeCapability %q is not of the form \"9.0\"", p.ComputeCapability)
	}
	if p.Memory.TotalMiB < 1 || p.Memory.TotalMiB > maxMiB {
		bad("memory.totalMiB is %d: give the total memory that nvidia-smi shows", p.Memory.TotalMiB)
	}
	if !slices.Contains(Topologies, p.NVLink.Topology) {
		bad("nvlink.topology %q is unknown; known are: none, bridge, mesh, switch", p.NVLink.Topology)
	}
	if p.MIG != nil {
		errs = append(errs, p.MIG.validate(p.Architecture))
	}
	return errors.Join(errs...)
}

func (m *MIG) validate(architecture string) error {
	var errs []error
	// The node driver tells by the architecture.
	if needs := architecture == "Ampere"; m.ModeNeedsReset != needs {
		errs = append(errs, fmt.Errorf("mig.modeNeedsReset is %t: it is true for Ampere and for no other", m.ModeNeedsReset))
	}
	if m.MemorySlices < 1 || m.MemorySlices > maxMemorySlices {
		errs = append(errs, fmt.Errorf("mig.memorySlices is %d: give 1 to %d", m.MemorySlices, maxMemorySlices))
	}
	if len(m.Profiles) == 0 {
		errs = append(errs, errors.New("mig.profiles is empty: leave mig out for a product without"))
	}
	seen := map[string]bool{}
	for _, q := range m.Profiles {
		if seen[q.Name] {
			errs = append(errs, fmt.Errorf("MIG profile %s is there twice", q.Name))
		}
		seen[q.Name] = true
		if err := q.validate(m.MemorySlices); err != nil {
			errs = append(errs, fmt.Errorf("MIG profile %q: %w", q.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (q *Profile) validate(memorySlices int) error {
	if !profileName.MatchString(q.Name) {
		return errors.New("its name is not of the form 1g.10gb or 1g.10gb+me")
	}
	if q.MemoryMiB < 1 || q.MemoryMiB > maxMiB {
		return fmt.Errorf("memoryMiB is %d: give the memory that nvidia-smi mig -lgip shows", q.MemoryMiB)
	}
	e := q.Engines
	for _, n := range []int{q.Slices, q.Multiprocessors, q.MaxInstances} {
		if n < 1 || n > maxNumber {
			return errors.New("slices, multiprocessors and maxInstances must be 1 or more")
		}
	}
	for _, n := range []int{q.Index, q.ID, e.Copy, e.Decoder, e.Encoder, e.JPEG, e.OFA} {
		if n < 0 || n > maxNumber {
			return errors.New("index, id and engines must be 0 or more")
		}
	}
	if q.Placements.Size < 1 || len(q.Placements.Starts) == 0 {
		return errors.New("placements need a size and starts (nvidia-smi mig -lgipp)")
	}
	for i, start := range q.Placements.Starts {
		if start < 0 || start+q.Placements.Size > memorySlices {
			return fmt.Errorf("the placement at %d of size %d is not within the %d memory slices", start, q.Placements.Size, memorySlices)
		}
		if slices.Contains(q.Placements.Starts[:i], start) {
			return fmt.Errorf("the placement at %d is there twice", start)
		}
	}
	return nil
}
