// Package resource reads opaque device configs of all the APIs that a driver name
// stands for. It knows which API belongs to which name, and nothing of what configs
// say.
package resource

import (
	"fmt"
	"strings"

	"apportion.dev/apportion/api/internal/strict"
	"apportion.dev/apportion/api/resource/nvidiav1beta1"
	"apportion.dev/apportion/api/resource/v1alpha1"
)

// CompatibleDriver is the driver name under which the configs of NVIDIA's own DRA
// driver are read too, so that its manifests work unchanged.
const CompatibleDriver = "gpu.nvidia.com"

// DecodeFor reads a config that was written for the driver of that name. It fails as
// v1alpha1.Decode and nvidiav1beta1.Decode do.
func DecodeFor(driverName string, data []byte) (v1alpha1.Config, error) {
	meta, err := strict.TypeOf(data)
	if err != nil {
		return nil, err
	}
	nvidia := strings.HasPrefix(meta.APIVersion, nvidiav1beta1.Group+"/")
	if nvidia && driverName == CompatibleDriver {
		return nvidiav1beta1.Decode(data)
	}
	config, err := v1alpha1.Decode(data)
	switch {
	case err == nil:
		return config, nil
	case nvidia:
		return nil, fmt.Errorf("%w; those of %s are read where the driver's name is %s", err, nvidiav1beta1.APIVersion, CompatibleDriver)
	case driverName == CompatibleDriver && meta.APIVersion != v1alpha1.APIVersion:
		return nil, fmt.Errorf("%w, and %s and %s of %s", err, nvidiav1beta1.KindGpuConfig, nvidiav1beta1.KindMigDeviceConfig, nvidiav1beta1.APIVersion)
	default:
		return nil, err
	}
}
