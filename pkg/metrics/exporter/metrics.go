package exporter

import dto "github.com/prometheus/client_model/go"

// metric is a metric of this package's own, beside DCGM's fields.
type metric struct {
	name string
	kind dto.MetricType
	help string
}

// series is a value of the metric.
func (m *metric) series(labels []*dto.LabelPair, value float64) *dto.Metric {
	if m.kind == dto.MetricType_COUNTER {
		return &dto.Metric{Label: labels, Counter: &dto.Counter{Value: &value}}
	}
	return &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &value}}
}

// family is the metric with series.
func (m *metric) family(series ...*dto.Metric) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: m.kind.Enum(), Metric: series}
}

var (
	ownerInfo        = metric{"apportion_device_owner_info", dto.MetricType_GAUGE, "A hold of a claim on a device or a share of it, for each container that uses it by that; always 1."}
	shareMemoryUsed  = metric{"apportion_share_memory_used_bytes", dto.MetricType_GAUGE, "Memory of the device that the container's processes have, in bytes."}
	shareMemoryLimit = metric{"apportion_share_memory_limit_bytes", dto.MetricType_GAUGE, "Memory of the device that the container can have at most, in bytes; absent where nothing limits it."}
	shareSMUtil      = metric{"apportion_share_sm_utilization_ratio", dto.MetricType_GAUGE, "Part of the device's time in which its multiprocessors worked for the container's processes, 0 to 1."}
	allocatedTime    = metric{"apportion_allocated_gpu_seconds_total", dto.MetricType_COUNTER, "Time for which the claim has held the device, in seconds of a whole GPU: a share counts by its part of the memory, a partition by its memory slices."}
	unallocatedTime  = metric{"apportion_unallocated_gpu_seconds_total", dto.MetricType_COUNTER, "Time of the GPU that no claim has held, in seconds of a whole GPU."}
	energy           = metric{"apportion_energy_joules_total", dto.MetricType_COUNTER, "Energy that the GPU has drawn for the claim, in joules; without a claim, the rest of the GPU's."}

	ownershipAge        = metric{"apportion_ownership_age_seconds", dto.MetricType_GAUGE, "Time since it was last known that the owners are right, in seconds; since the start if it never was."}
	ownershipErrors     = metric{"apportion_ownership_errors_total", dto.MetricType_COUNTER, "How often the driver's ownership service could not be followed."}
	ownershipGeneration = metric{"apportion_ownership_generation", dto.MetricType_GAUGE, "Generation of the owners that the series are made of; it begins anew with the driver. 0 before the driver has answered."}
	sampleAge           = metric{"apportion_exporter_sample_age_seconds", dto.MetricType_GAUGE, "Time since the values were read, in seconds; since the start if they never were."}
)

// Labels. Those of DCGM's fields are as dcgm-exporter writes them.
const (
	labelGPU             = "gpu"
	labelUUID            = "UUID"
	labelPCIBusID        = "pci_bus_id"
	labelDevice          = "device"
	labelModelName       = "modelName"
	labelInstanceProfile = "GPU_I_PROFILE"
	labelInstanceID      = "GPU_I_ID"
	labelHostname        = "Hostname"

	labelNamespace = "namespace"
	labelPod       = "pod"
	labelContainer = "container"

	labelDeviceUUID   = "uuid"
	labelShareID      = "share_id"
	labelClaim        = "claim"
	labelClaimUID     = "claim_uid"
	labelRequest      = "request"
	labelAdminAccess  = "admin_access"
	labelPodUID       = "pod_uid"
	labelWorkloadKind = "workload_kind"
	labelWorkload     = "workload"
)
