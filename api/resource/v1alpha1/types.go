package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion is that of the kinds in this package.
const APIVersion = "resource.apportion.dev/v1alpha1"

// The kinds in this package.
const (
	KindGPUConfig = "GPUConfig"
	KindMIGConfig = "MIGConfig"
)

// GPUConfig configures GPUs that are used whole, and shares of GPUs.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type GPUConfig struct {
	metav1.TypeMeta `json:",inline"`

	// sharing says how containers that use the same GPU take turns.
	// +optional
	Sharing *Sharing `json:"sharing,omitempty"`
	// memory says how the memory of a share is kept to what was asked for. It is of no
	// effect for who has a GPU whole.
	// +optional
	Memory *Memory `json:"memory,omitempty"`
}

// MIGConfig configures MIG partitions, and shares of them.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type MIGConfig struct {
	metav1.TypeMeta `json:",inline"`

	// sharing says how containers that use the same partition take turns. A partition
	// has no time slice of its own, so sharing.timeSlicing.interval can only be Default.
	// MPS is not offered in partitions: Required fails, Preferred is reported.
	// +optional
	Sharing *Sharing `json:"sharing,omitempty"`
	// memory says how the memory of a share of a partition is kept to what was asked
	// for. No NVIDIA driver can limit it yet: Required fails, Preferred is reported.
	// +optional
	Memory *Memory `json:"memory,omitempty"`
}

// Sharing says how containers that use the same device take turns.
type Sharing struct {
	// timeSlicing is how the device changes from one process to the next.
	// +optional
	TimeSlicing *TimeSlicing `json:"timeSlicing,omitempty"`
	// mps asks for the Multi-Process Service, with which the processes of several
	// containers compute at the same time. An empty object asks for it too. A claim with
	// several GPUs cannot have it, as MPS lets a process use one GPU only.
	// +optional
	MPS *MPS `json:"mps,omitempty"`
}

// TimeSlicing is how a device changes from one process to the next.
type TimeSlicing struct {
	// interval is how long a process computes before the next one's turn. It is a
	// setting of the whole GPU: two claims that ask for different ones cannot use the
	// same GPU, and the second one fails. Unset leaves it to others.
	// +optional
	Interval TimeSliceInterval `json:"interval,omitempty"`
}

// TimeSliceInterval is one of the lengths that nvidia-smi compute-policy knows. How
// many milliseconds they are depends on the GPU.
//
// +kubebuilder:validation:Enum=Default;Short;Medium;Long
type TimeSliceInterval string

// The intervals.
const (
	TimeSliceDefault TimeSliceInterval = "Default"
	TimeSliceShort   TimeSliceInterval = "Short"
	TimeSliceMedium  TimeSliceInterval = "Medium"
	TimeSliceLong    TimeSliceInterval = "Long"
)

// MPS asks for the Multi-Process Service.
type MPS struct {
	// enforcement says what happens where a node has no MPS. None switches MPS off,
	// even for a share that reserves computePercent.
	// +optional
	// +kubebuilder:default=Preferred
	Enforcement Enforcement `json:"enforcement,omitempty"`
	// activeThreadPercentage is how much of the device's compute a process may use at
	// most, in percent. A share that reserves computePercent has that instead.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	ActiveThreadPercentage *int32 `json:"activeThreadPercentage,omitempty"`
	// pinnedDeviceMemoryLimit is how much of the device's memory a process may allocate
	// at most, from 1Mi to 1Pi.
	// +optional
	// +kubebuilder:validation:Minimum=1048576
	// +kubebuilder:validation:Maximum=1125899906842624
	PinnedDeviceMemoryLimit *resource.Quantity `json:"pinnedDeviceMemoryLimit,omitempty"`
}

// Memory says how the memory of a share is kept to what was asked for.
type Memory struct {
	// enforcement says what happens where a node cannot limit memory. None leaves a
	// share unlimited, free to take its neighbours' memory, so for shares of GPUs only a
	// DeviceClass may say it.
	// +optional
	// +kubebuilder:default=Preferred
	Enforcement Enforcement `json:"enforcement,omitempty"`
	// softLimit is how much of the share's memory is guaranteed: above it, allocations
	// may fail when the GPU runs short of memory. From 1Mi to 1Pi, and at most the
	// share's memory. Unset, it is all of the share's memory.
	// +optional
	// +kubebuilder:validation:Minimum=1048576
	// +kubebuilder:validation:Maximum=1125899906842624
	SoftLimit *resource.Quantity `json:"softLimit,omitempty"`
}

// Enforcement is what happens where a node cannot do what is asked for: with Required
// the claim fails, with Preferred it is prepared without, and its status says so. None
// does not ask.
//
// +kubebuilder:validation:Enum=Required;Preferred;None
type Enforcement string

// The enforcements.
const (
	EnforcementRequired  Enforcement = "Required"
	EnforcementPreferred Enforcement = "Preferred"
	EnforcementNone      Enforcement = "None"
)
