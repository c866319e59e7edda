package devicemodel

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"apportion.dev/apportion/pkg/inventory"
)

// Attributes in the driver's own domain. The standard attributes
// resource.kubernetes.io/pciBusID, pcieRoot and numaNode come beside them.
const (
	AttributeType                  = "type"
	AttributeUUID                  = "uuid"
	AttributeProductName           = "productName"
	AttributeBrand                 = "brand"
	AttributeArchitecture          = "architecture"
	AttributeCUDAComputeCapability = "cudaComputeCapability"
	AttributeDriverVersion         = "driverVersion"
	AttributeCUDADriverVersion     = "cudaDriverVersion"
	// AttributeNVLinkDomain is equal for the GPUs of a node that are linked by
	// NVLink, and absent for a GPU without; claims ask for linked GPUs with
	// matchAttribute.
	AttributeNVLinkDomain = "nvlinkDomain"
	AttributeMIGCapable   = "migCapable"
	// AttributeMemoryEnforcement is MemoryEnforcementNVML or MemoryEnforcementNone.
	AttributeMemoryEnforcement = "memoryEnforcement"
)

// Values of AttributeType.
const (
	TypeGPU = "gpu"
	TypeMIG = "mig"
)

// Capacities.
const (
	// CapacityMemory is in bytes. A claim that asks for none gets all.
	CapacityMemory = "memory"
	// CapacityComputePercent is of the GPU's compute, 0 to 100. A claim that asks
	// for none reserves none.
	CapacityComputePercent = "computePercent"
)

const (
	mebibyte = 1 << 20
	// maxStringValue is the API's limit for string and version values in bytes
	// (DeviceAttributeMaxValueLength).
	maxStringValue = resourceapi.DeviceAttributeMaxValueLength
)

// nodeFacts are the attributes of a GPU that do not come from the GPU alone.
type nodeFacts struct {
	driverVersion, cudaDriverVersion inventory.Version
	nvlinkDomain, memoryEnforcement  string
}

// wholeGPU makes the device that is one physical GPU.
func wholeGPU(name Name, gpu inventory.GPU, counters resourceapi.CounterSet, facts nodeFacts) Device {
	memory := publishedMemory(gpu.MemoryBytes)
	d := Device{
		Name:        name,
		GPUUUID:     gpu.UUID,
		PCIBusID:    gpu.PCIBusID,
		Minor:       gpu.Minor,
		MemoryBytes: memory,
		// Without a memory capacity nothing would tell a claim for the whole GPU
		// from a claim for a share, and any number would fit.
		Shareable: memory > 0,
		Problem:   gpu.Problem,
	}
	d.API = resourceapi.Device{
		Name:             name.String(),
		Attributes:       gpuAttributes(gpu, facts),
		ConsumesCounters: consumeAll(counters),
	}
	if d.Shareable {
		shareable := true
		d.API.AllowMultipleAllocations = &shareable
		d.API.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			CapacityMemory:         memoryCapacity(memory),
			CapacityComputePercent: computeCapacity(),
		}
	}
	return d
}

func gpuAttributes(gpu inventory.GPU, facts nodeFacts) attributes {
	a := attributes{}
	a.text(AttributeType, TypeGPU)
	a.text(AttributeUUID, gpu.UUID)
	a.text(AttributeProductName, gpu.ProductName)
	a.text(AttributeBrand, gpu.Brand)
	a.text(AttributeArchitecture, gpu.Architecture)
	a.version(AttributeCUDAComputeCapability, gpu.CUDAComputeCapability)
	a.version(AttributeDriverVersion, facts.driverVersion)
	a.version(AttributeCUDADriverVersion, facts.cudaDriverVersion)
	a.text(AttributeNVLinkDomain, facts.nvlinkDomain)
	a.text(AttributeMemoryEnforcement, facts.memoryEnforcement)
	if gpu.MIG.Capable != nil {
		capable := *gpu.MIG.Capable
		a[AttributeMIGCapable] = resourceapi.DeviceAttribute{BoolValue: &capable}
	}
	if standard, err := deviceattribute.GetPCIBusIDAttribute(gpu.PCIBusID); err == nil {
		a[standard.Name] = standard.Value
	}
	a.text(deviceattribute.StandardDeviceAttributePCIeRoot, gpu.PCIeRoot)
	if gpu.NUMANode != nil {
		// The scalar form is valid whatever the cluster's gate for list attributes.
		if standard, err := deviceattribute.GetNUMANodeAttribute(*gpu.NUMANode, deviceattribute.ScalarAttribute); err == nil {
			a[standard.Name] = standard.Value
		}
	}
	return a
}

// publishedMemory is a memory size in bytes, rounded down to whole MiB, as
// request policies count in MiB. It is 0 where the size is unknown or nothing
// that a policy can be made for.
func publishedMemory(bytes *uint64) int64 {
	const most = 1 << 62
	if bytes == nil || *bytes < 2*mebibyte || *bytes > most {
		return 0
	}
	return int64(*bytes / mebibyte * mebibyte)
}

// memoryCapacity gives the whole memory to a claim that asks for none, and any part
// of it, in MiB, to one that does. The least is nothing at all, for the sake of
// claims with admin access: kube-scheduler counts what they ask for too, so a
// claim that looks at a GPU in use must ask for none of its memory. Others that do
// are refused when they are prepared.
func memoryCapacity(bytes int64) resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{
		Value: *resource.NewQuantity(bytes, resource.BinarySI),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default: resource.NewQuantity(bytes, resource.BinarySI),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{
				Min:  resource.NewQuantity(0, resource.DecimalSI),
				Max:  resource.NewQuantity(bytes, resource.BinarySI),
				Step: resource.NewQuantity(mebibyte, resource.BinarySI),
			},
		},
	}
}

func computeCapacity() resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{
		Value: *resource.NewQuantity(100, resource.DecimalSI),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default: resource.NewQuantity(0, resource.DecimalSI),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{
				Min:  resource.NewQuantity(0, resource.DecimalSI),
				Max:  resource.NewQuantity(100, resource.DecimalSI),
				Step: resource.NewQuantity(1, resource.DecimalSI),
			},
		},
	}
}

// attributes are a device's. A fact that is absent or has no valid form sets
// none.
type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// text sets a string attribute. Values come from hardware and firmware, so they
// are cleaned and cut to the API's limit.
func (a attributes) text(name resourceapi.QualifiedName, value string) {
	if value = cleanText(value); value != "" {
		a[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}

// cleanText returns value without invalid UTF-8, control characters and outer
// space, and at most maxStringValue bytes of it, cut between characters.
func cleanText(value string) string {
	value = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return -1
		}
		return r
	}, value)
	value = strings.TrimSpace(value)
	if len(value) <= maxStringValue {
		return value
	}
	end := maxStringValue
	for !utf8.RuneStart(value[end]) {
		end--
	}
	return strings.TrimSpace(value[:end])
}

// releaseVersion is a semantic version without pre-release and build, which
// hardware versions never have.
var releaseVersion = regexp.MustCompile(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$`)

func (a attributes) version(name resourceapi.QualifiedName, v inventory.Version) {
	if value := v.Semver; len(value) <= maxStringValue && releaseVersion.MatchString(value) {
		a[name] = resourceapi.DeviceAttribute{VersionValue: &value}
	}
}
