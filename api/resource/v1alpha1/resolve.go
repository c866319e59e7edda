package v1alpha1

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Settings are what the configs for a device say, all in all.
type Settings struct {
	Memory MemorySettings
	// TimeSlice is the interval that was asked for, or "" if none was.
	TimeSlice TimeSliceInterval
	// MPS is nil if no config mentions it.
	MPS *MPSSettings
}

// MemorySettings say how a share's memory is limited.
type MemorySettings struct {
	// Enforcement is never empty. With EnforcementNone the limit means nothing.
	Enforcement Enforcement
	// SoftLimit is in bytes, or nil for all of the share's memory.
	SoftLimit *resource.Quantity
}

// MPSSettings say how processes use MPS.
type MPSSettings struct {
	// Enforcement is never empty. With EnforcementNone the limits mean nothing.
	Enforcement Enforcement
	// ActiveThreadPercentage is from 1 to 100, or nil for no limit.
	ActiveThreadPercentage *int32
	// PinnedDeviceMemoryLimit is in bytes for each process, or nil for no limit.
	PinnedDeviceMemoryLimit *resource.Quantity
}

// Resolve puts the configs for one device together. They come in order of precedence,
// those of the DeviceClass before those of the claim: what a later one sets, field by
// field, wins over an earlier one, and what none sets gets its default. Configs with
// values that are not allowed, and configs of different kinds, are errors.
func Resolve(configs ...Config) (Settings, error) {
	var s Settings
	firstKind := ""
	for _, config := range configs {
		kind, sharing, memory := config.content()
		if err := config.Validate().ToAggregate(); err != nil {
			return Settings{}, fmt.Errorf("%s: %w", kind, err)
		}
		firstKind = cmp.Or(firstKind, kind)
		if kind != firstKind {
			return Settings{}, fmt.Errorf("a %s and a %s cannot configure the same device", firstKind, kind)
		}
		if memory != nil {
			s.Memory.Enforcement = cmp.Or(memory.Enforcement, s.Memory.Enforcement)
			s.Memory.SoftLimit = cmp.Or(memory.SoftLimit, s.Memory.SoftLimit)
		}
		if sharing != nil && sharing.TimeSlicing != nil {
			s.TimeSlice = cmp.Or(sharing.TimeSlicing.Interval, s.TimeSlice)
		}
		if sharing != nil && sharing.MPS != nil {
			earlier := cmp.Or(s.MPS, &MPSSettings{})
			s.MPS = &MPSSettings{
				Enforcement:             cmp.Or(sharing.MPS.Enforcement, earlier.Enforcement),
				ActiveThreadPercentage:  cmp.Or(sharing.MPS.ActiveThreadPercentage, earlier.ActiveThreadPercentage),
				PinnedDeviceMemoryLimit: cmp.Or(sharing.MPS.PinnedDeviceMemoryLimit, earlier.PinnedDeviceMemoryLimit),
			}
		}
	}
	s.Memory.Enforcement = cmp.Or(s.Memory.Enforcement, EnforcementPreferred)
	if s.MPS != nil {
		s.MPS.Enforcement = cmp.Or(s.MPS.Enforcement, EnforcementPreferred)
	}
	return *s.DeepCopy(), nil // shares nothing with the configs
}
