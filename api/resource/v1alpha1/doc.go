// Package v1alpha1 is version v1alpha1 of the opaque device configs that users write
// in DeviceClasses and ResourceClaims: GPUConfig for GPUs and shares of them,
// MIGConfig for MIG partitions.
//
// Decode reads one, Validate says what is wrong with its values, and Resolve turns
// those that apply to a device into the settings that the driver carries out. The
// package knows what may be asked for; it must not know what a node can do.
//
// +k8s:deepcopy-gen=package
// +groupName=resource.apportion.dev
package v1alpha1
