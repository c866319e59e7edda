package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"apportion.dev/apportion/api/internal/strict"
)

// Limits of amounts of memory. The upper one is more than any GPU has, and catches
// what was meant in another unit.
var (
	leastMemory = resource.NewQuantity(1<<20, resource.BinarySI)
	mostMemory  = resource.NewQuantity(1<<50, resource.BinarySI)
)

// Validate lists the values that are not allowed, with the paths of their fields.
func (c *GPUConfig) Validate() field.ErrorList {
	return append(validateSharing(c.Sharing), validateMemory(c.Memory)...)
}

// Validate lists the values that are not allowed, with the paths of their fields.
func (c *MIGConfig) Validate() field.ErrorList {
	errs := append(validateSharing(c.Sharing), validateMemory(c.Memory)...)
	if c.Sharing == nil || c.Sharing.TimeSlicing == nil {
		return errs
	}
	switch interval := c.Sharing.TimeSlicing.Interval; interval {
	case TimeSliceShort, TimeSliceMedium, TimeSliceLong:
		errs = append(errs, field.Invalid(field.NewPath("sharing", "timeSlicing", "interval"), interval,
			"a partition has no time slice of its own; leave it out, or ask for Default"))
	}
	return errs
}

func validateSharing(s *Sharing) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("sharing")
	if s != nil && s.TimeSlicing != nil {
		errs = append(errs, validateEnum(path.Child("timeSlicing", "interval"), s.TimeSlicing.Interval,
			TimeSliceDefault, TimeSliceShort, TimeSliceMedium, TimeSliceLong)...)
	}
	if s != nil && s.MPS != nil {
		path := path.Child("mps")
		errs = append(errs, validateEnforcement(path.Child("enforcement"), s.MPS.Enforcement)...)
		if p := s.MPS.ActiveThreadPercentage; p != nil && (*p < 1 || *p > 100) {
			errs = append(errs, field.Invalid(path.Child("activeThreadPercentage"), *p, "must be from 1 to 100"))
		}
		errs = append(errs, validateBytes(path.Child("pinnedDeviceMemoryLimit"), s.MPS.PinnedDeviceMemoryLimit)...)
	}
	return errs
}

func validateMemory(m *Memory) field.ErrorList {
	if m == nil {
		return nil
	}
	path := field.NewPath("memory")
	return append(validateEnforcement(path.Child("enforcement"), m.Enforcement),
		validateBytes(path.Child("softLimit"), m.SoftLimit)...)
}

func validateEnforcement(path *field.Path, e Enforcement) field.ErrorList {
	return validateEnum(path, e, EnforcementRequired, EnforcementPreferred, EnforcementNone)
}

// validateEnum allows the known values, and that none is set.
func validateEnum[T ~string](path *field.Path, value T, known ...T) field.ErrorList {
	if value == "" || slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, T(strict.Clip(string(value))), known)}
}

func validateBytes(path *field.Path, q *resource.Quantity) field.ErrorList {
	if q == nil || q.Cmp(*leastMemory) >= 0 && q.Cmp(*mostMemory) <= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, strict.Clip(q.String()), "must be from 1Mi to 1Pi")}
}

// ValidateForClaim lists what a claim's config says that only a DeviceClass may say,
// beside what Validate lists: who writes claims must not widen what the share may take
// of its neighbours.
func ValidateForClaim(config Config) field.ErrorList {
	gpu, ok := config.(*GPUConfig)
	if !ok || gpu.Memory == nil || gpu.Memory.Enforcement != EnforcementNone {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("memory", "enforcement"),
		"None would let the share take its neighbours' memory, so only a DeviceClass can set it; set Preferred")}
}
