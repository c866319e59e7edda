package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"apportion.dev/apportion/api/internal/strict"
)

// Config is a *GPUConfig or a *MIGConfig.
type Config interface {
	runtime.Object
	// Validate lists the values that are not allowed, with the paths of their fields.
	Validate() field.ErrorList
	// content is what the kinds have in common: the kind, and its fields or nil.
	content() (kind string, sharing *Sharing, memory *Memory)
}

func (c *GPUConfig) content() (string, *Sharing, *Memory) { return KindGPUConfig, c.Sharing, c.Memory }
func (c *MIGConfig) content() (string, *Sharing, *Memory) { return KindMIGConfig, c.Sharing, c.Memory }

// Decode reads a config from JSON of at most 10 KiB, and leaves what is unset unset. It
// fails on an unknown version or kind, and on unknown and duplicate fields and values
// of a wrong type, whose paths the error has. It does not check which values are
// allowed: that is what Validate does.
func Decode(data []byte) (Config, error) {
	meta, err := strict.TypeOf(data)
	if err != nil {
		return nil, err
	}
	var config Config
	switch {
	case meta.APIVersion == APIVersion && meta.Kind == KindGPUConfig:
		config = &GPUConfig{}
	case meta.APIVersion == APIVersion && meta.Kind == KindMIGConfig:
		config = &MIGConfig{}
	default:
		return nil, fmt.Errorf("unknown config: apiVersion %q, kind %q; known are the kinds %s and %s of %s",
			strict.Clip(meta.APIVersion), strict.Clip(meta.Kind), KindGPUConfig, KindMIGConfig, APIVersion)
	}
	if err := strict.Decode(data, config, "sharing.mps.pinnedDeviceMemoryLimit", "memory.softLimit"); err != nil {
		return nil, fmt.Errorf("%s: %w", meta.Kind, err)
	}
	return config, nil
}
