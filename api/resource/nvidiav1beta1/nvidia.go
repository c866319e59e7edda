// Package nvidiav1beta1 reads the opaque device configs of NVIDIA's own DRA driver,
// GpuConfig and MigDeviceConfig of resource.nvidia.com/v1beta1, as configs of
// v1alpha1, so that manifests written for that driver work here. It knows how the one
// API says what the other does; what it cannot say, it refuses.
package nvidiav1beta1

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"apportion.dev/apportion/api/internal/strict"
	"apportion.dev/apportion/api/resource/v1alpha1"
)

// Group is the API group, and APIVersion the version that is read.
const (
	Group      = "resource.nvidia.com"
	APIVersion = Group + "/v1beta1"
)

// The kinds that are read.
const (
	KindGpuConfig       = "GpuConfig"
	KindMigDeviceConfig = "MigDeviceConfig"
)

// The strategies. One excludes the other.
const (
	strategyTimeSlicing = "TimeSlicing"
	strategyMPS         = "MPS"
)

// config is of either kind; they differ in what they allow.
type config struct {
	metav1.TypeMeta `json:",inline"`
	Sharing         *sharing `json:"sharing"`
}

type sharing struct {
	Strategy          string             `json:"strategy"`
	TimeSlicingConfig *timeSlicingConfig `json:"timeSlicingConfig"`
	MPSConfig         *mpsConfig         `json:"mpsConfig"`
}

type timeSlicingConfig struct {
	Interval v1alpha1.TimeSliceInterval `json:"interval"`
}

type mpsConfig struct {
	DefaultActiveThreadPercentage     *int32             `json:"defaultActiveThreadPercentage"`
	DefaultPinnedDeviceMemoryLimit    *resource.Quantity `json:"defaultPinnedDeviceMemoryLimit"`
	DefaultPerDevicePinnedMemoryLimit map[string]any     `json:"defaultPerDevicePinnedMemoryLimit"`
	MultiUser                         bool               `json:"multiUser"`
}

// Decode reads a config from JSON of at most 10 KiB, as strictly as v1alpha1.Decode.
// It also fails on values that are not allowed and on what v1alpha1 cannot say; the
// error has the paths of the fields as they were written. A GpuConfig becomes a
// GPUConfig, a MigDeviceConfig a MIGConfig.
//
// The strategies exclude each other, so TimeSlicing switches MPS off. MPS is
// preferred, not required: this API has no word for either.
func Decode(data []byte) (v1alpha1.Config, error) {
	meta, err := strict.TypeOf(data)
	if err != nil {
		return nil, err
	}
	if meta.APIVersion != APIVersion || meta.Kind != KindGpuConfig && meta.Kind != KindMigDeviceConfig {
		return nil, fmt.Errorf("unknown config: apiVersion %q, kind %q; known are the kinds %s and %s of %s",
			strict.Clip(meta.APIVersion), strict.Clip(meta.Kind), KindGpuConfig, KindMigDeviceConfig, APIVersion)
	}
	var from config
	if err := strict.Decode(data, &from, "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit"); err != nil {
		return nil, fmt.Errorf("%s: %w", meta.Kind, err)
	}
	sharing, errs := convert(from.Sharing)
	var to v1alpha1.Config
	if meta.Kind == KindGpuConfig {
		to = &v1alpha1.GPUConfig{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindGPUConfig}, Sharing: sharing}
	} else {
		to = &v1alpha1.MIGConfig{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindMIGConfig}, Sharing: sharing}
		if from.Sharing != nil && from.Sharing.TimeSlicingConfig != nil {
			errs = append(errs, field.Forbidden(field.NewPath("sharing", "timeSlicingConfig"), "a partition has no time slice of its own; leave it out"))
		}
	}
	for _, err := range to.Validate() {
		err.Field = asWritten.Replace(err.Field)
		errs = append(errs, err)
	}
	if err := errs.ToAggregate(); err != nil {
		return nil, fmt.Errorf("%s: %w", meta.Kind, err)
	}
	return to, nil
}

// asWritten turns the paths of v1alpha1's fields into those of this API.
var asWritten = strings.NewReplacer(
	"sharing.timeSlicing.interval", "sharing.timeSlicingConfig.interval",
	"sharing.mps.activeThreadPercentage", "sharing.mpsConfig.defaultActiveThreadPercentage",
	"sharing.mps.pinnedDeviceMemoryLimit", "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
)

// convert says the same in v1alpha1's words, and lists what they cannot say.
func convert(from *sharing) (*v1alpha1.Sharing, field.ErrorList) {
	if from == nil {
		return nil, nil
	}
	path := field.NewPath("sharing")
	switch from.Strategy {
	case strategyTimeSlicing:
		to := &v1alpha1.Sharing{MPS: &v1alpha1.MPS{Enforcement: v1alpha1.EnforcementNone}}
		if from.TimeSlicingConfig != nil {
			to.TimeSlicing = &v1alpha1.TimeSlicing{Interval: from.TimeSlicingConfig.Interval}
		}
		if from.MPSConfig != nil {
			return to, field.ErrorList{field.Forbidden(path.Child("mpsConfig"), "the strategy is TimeSlicing; leave it out")}
		}
		return to, nil
	case strategyMPS:
		mps, errs := convertMPS(path.Child("mpsConfig"), from.MPSConfig)
		if from.TimeSlicingConfig != nil {
			errs = append(errs, field.Forbidden(path.Child("timeSlicingConfig"), "the strategy is MPS; leave it out"))
		}
		return &v1alpha1.Sharing{MPS: mps}, errs
	case "":
		return nil, field.ErrorList{field.Required(path.Child("strategy"), "must be TimeSlicing or MPS")}
	default:
		return nil, field.ErrorList{field.NotSupported(path.Child("strategy"), strict.Clip(from.Strategy), []string{strategyTimeSlicing, strategyMPS})}
	}
}

func convertMPS(path *field.Path, from *mpsConfig) (*v1alpha1.MPS, field.ErrorList) {
	to := &v1alpha1.MPS{Enforcement: v1alpha1.EnforcementPreferred}
	if from == nil {
		return to, nil
	}
	to.ActiveThreadPercentage = from.DefaultActiveThreadPercentage
	to.PinnedDeviceMemoryLimit = from.DefaultPinnedDeviceMemoryLimit
	var errs field.ErrorList
	if len(from.DefaultPerDevicePinnedMemoryLimit) > 0 {
		errs = append(errs, field.Forbidden(path.Child("defaultPerDevicePinnedMemoryLimit"),
			"limits by a device's index or UUID are not supported; give the devices requests of their own, each with a config with defaultPinnedDeviceMemoryLimit"))
	}
	if from.MultiUser {
		errs = append(errs, field.Forbidden(path.Child("multiUser"), "whether users share a daemon is the driver's setting, not a claim's; leave it out"))
	}
	return to, errs
}
