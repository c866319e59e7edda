package devicemodel

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

const (
	namePrefix      = "gpu-"
	partitionMarker = "-mig-"
	// shortUUID is how many hexadecimal digits of its UUID name a GPU if no other
	// GPU of the node has the same.
	shortUUID = 8
)

// Name is the name of a device, which is stable for the life of the hardware
// because it is made from the GPU's UUID:
//
//	gpu-4f3a1b2c                      the whole GPU
//	gpu-4f3a1b2c-mig-1g-10gb-0        a partition: profile and placement start
//	gpu-4f3a1b2c-mig-1g-10gb-me-3
//
// Names are DNS labels, as the API asks of devices and counter sets.
type Name struct {
	// GPU is how the GPU's UUID starts: lower-case hexadecimal digits without
	// dashes, 8 of them or, where GPUs of the node share those, more.
	GPU string
	// Profile is the partition's MIG profile as NVML writes it ("1g.10gb+me"),
	// empty for the whole GPU.
	Profile string
	// Start is the first memory slice of the partition's placement.
	Start int
}

// PartitionName names the partition of a GPU with a MIG profile ("1g.10gb+me")
// at a placement start. It fails for a profile that cannot be written as part of
// a DNS label.
func PartitionName(gpu Name, profile string, start int) (Name, error) {
	if _, err := profileLabel(profile); err != nil {
		return Name{}, err
	}
	if start < 0 {
		return Name{}, fmt.Errorf("placement start %d of profile %s is negative", start, profile)
	}
	name := Name{GPU: gpu.GPU, Profile: profile, Start: start}
	if length := len(name.String()); length > validation.DNS1123LabelMaxLength {
		return Name{}, fmt.Errorf("device name %q has %d characters, at most %d are allowed", name, length, validation.DNS1123LabelMaxLength)
	}
	return name, nil
}

// IsPartition is false for a whole GPU.
func (n Name) IsPartition() bool { return n.Profile != "" }

// Whole returns the name of the GPU on which the device lies.
func (n Name) Whole() Name { return Name{GPU: n.GPU} }

// String returns the name as published. [Parse] inverts it for the names that
// [Build], [PartitionName] and Parse make.
func (n Name) String() string {
	if !n.IsPartition() {
		return namePrefix + n.GPU
	}
	label, err := profileLabel(n.Profile)
	if err != nil {
		// Not a name of ours; it is for a log line only.
		label = n.Profile
	}
	return namePrefix + n.GPU + partitionMarker + label + "-" + strconv.Itoa(n.Start)
}

var gpuDigits = regexp.MustCompile(`^[0-9a-f]{8,32}$`)

// Parse reads a device name. It accepts exactly what [Name.String] makes.
func Parse(s string) (Name, error) {
	name, err := parse(s)
	if err == nil && name.String() != s {
		err = fmt.Errorf("it would be written %s", name)
	}
	if err != nil {
		return Name{}, fmt.Errorf("%q is no device name of this driver (gpu-4f3a1b2c or gpu-4f3a1b2c-mig-1g-10gb-0): %w", s, err)
	}
	return name, nil
}

func parse(s string) (Name, error) {
	rest, ok := strings.CutPrefix(s, namePrefix)
	if !ok {
		return Name{}, fmt.Errorf("it does not start with %s", namePrefix)
	}
	digits, partition, isPartition := strings.Cut(rest, partitionMarker)
	if !gpuDigits.MatchString(digits) {
		return Name{}, fmt.Errorf("%q is not 8 to 32 hexadecimal digits in lower case", digits)
	}
	name := Name{GPU: digits}
	if !isPartition {
		return name, nil
	}
	dash := strings.LastIndexByte(partition, '-')
	if dash < 0 {
		return Name{}, errors.New("the placement start is missing")
	}
	var err error
	if name.Profile, err = profileFromLabel(partition[:dash]); err != nil {
		return Name{}, err
	}
	if name.Start, err = strconv.Atoi(partition[dash+1:]); err != nil || name.Start < 0 {
		return Name{}, fmt.Errorf("placement start %q is no number", partition[dash+1:])
	}
	return name, nil
}

// A MIG profile is written by NVML and nvidia-smi as compute slices and memory,
// and then attributes that are added with "+" or taken away with "-":
//
//	1g.10gb   1g.10gb+me   1g.10gb-me   1g.24gb+me.all   2g.48gb+gfx
//
// In a name, "." and "," become "-", "+" becomes "-" and "-" becomes "-no-".
// This can be inverted because attributes start with a letter and are never
// called "no" or "all", and a "." inside an attribute comes only as ".all".
var (
	profileForm   = regexp.MustCompile(`^([1-9][0-9]*g)\.([1-9][0-9]*gb)(?:([+-])(.+))?$`)
	attributeForm = regexp.MustCompile(`^([a-z][a-z0-9]*)(\.all)?$`)
)

const (
	labelWithout = "no"
	labelAll     = "all"
)

func profileLabel(profile string) (string, error) {
	parts := profileForm.FindStringSubmatch(profile)
	if parts == nil {
		return "", fmt.Errorf("MIG profile %q is not of the form 1g.10gb or 1g.10gb+me", profile)
	}
	label := []string{parts[1], parts[2]}
	if parts[3] == "-" {
		label = append(label, labelWithout)
	}
	if parts[4] == "" {
		return strings.Join(label, "-"), nil
	}
	for attribute := range strings.SplitSeq(parts[4], ",") {
		form := attributeForm.FindStringSubmatch(attribute)
		if form == nil || form[1] == labelWithout || form[1] == labelAll {
			return "", fmt.Errorf("MIG profile %q has an attribute %q of unknown form", profile, attribute)
		}
		label = append(label, form[1])
		if form[2] != "" {
			label = append(label, labelAll)
		}
	}
	return strings.Join(label, "-"), nil
}

func profileFromLabel(label string) (string, error) {
	words := strings.Split(label, "-")
	if len(words) < 2 {
		return "", fmt.Errorf("%q is no MIG profile", label)
	}
	profile, words := words[0]+"."+words[1], words[2:]
	sign := "+"
	if len(words) > 0 && words[0] == labelWithout {
		sign, words = "-", words[1:]
	}
	var attributes []string
	for _, word := range words {
		if word == labelAll && len(attributes) > 0 {
			attributes[len(attributes)-1] += "." + labelAll
			continue
		}
		attributes = append(attributes, word)
	}
	if len(attributes) > 0 {
		profile += sign + strings.Join(attributes, ",")
	}
	if back, err := profileLabel(profile); err != nil || back != label {
		return "", fmt.Errorf("%q is no MIG profile", label)
	}
	return profile, nil
}

var gpuUUID = regexp.MustCompile(`^(?i:gpu)-([0-9a-fA-F]{8})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{12})$`)

// uuidDigits returns the 32 hexadecimal digits of a GPU's UUID in lower case, or
// "" if it has not that form.
func uuidDigits(uuid string) string {
	parts := gpuUUID.FindStringSubmatch(uuid)
	if parts == nil {
		return ""
	}
	return strings.ToLower(strings.Join(parts[1:], ""))
}

// gpuNames returns the name of each GPU by the digits of its UUID. It looks at
// all GPUs of the node, also those that are not published, so that a policy does
// not change names. GPUs that would have the same name all get a longer one, of
// as many digits as tell them apart.
func gpuNames(gpus []inventory.GPU) map[string]Name {
	byPrefix := map[string][]string{}
	for _, gpu := range gpus {
		digits := uuidDigits(gpu.UUID)
		if digits == "" {
			continue
		}
		prefix := digits[:shortUUID]
		if !slices.Contains(byPrefix[prefix], digits) {
			byPrefix[prefix] = append(byPrefix[prefix], digits)
		}
	}
	names := map[string]Name{}
	for _, same := range byPrefix {
		length := shortUUID
		for !differAt(same, length) {
			length++
		}
		for _, digits := range same {
			names[digits] = Name{GPU: digits[:length]}
		}
	}
	return names
}

// differAt says whether all strings differ in their first length bytes.
func differAt(distinct []string, length int) bool {
	seen := map[string]bool{}
	for _, s := range distinct {
		if seen[s[:length]] {
			return false
		}
		seen[s[:length]] = true
	}
	return true
}
