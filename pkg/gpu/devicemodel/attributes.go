package devicemodel

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// Attributes in the driver's own domain. The standard attributes
// resource.kubernetes.io/pciBusID, pcieRoot and numaNode come beside them.
const (
	AttributeType = "type"
	// AttributeUUID is NVML's identifier. A partition that is made on demand has
	// none, as it gets another one each time.
	AttributeUUID = "uuid"
	// AttributeParentUUID is the UUID of the GPU on which a partition lies.
	AttributeParentUUID = "parentUUID"
	// AttributeProfile is the MIG profile of a partition, as NVML writes it.
	AttributeProfile               = "profile"
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

// maxStringValue is the API's limit for string and version values in bytes.
const maxStringValue = resourceapi.DeviceAttributeMaxValueLength

// nodeFacts are the attributes of a GPU that do not come from the GPU alone.
type nodeFacts struct {
	driverVersion, cudaDriverVersion inventory.Version
	nvlinkDomain                     string
}

// attributes are a device's. A fact that is absent or has no valid form sets
// none.
type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// commonAttributes are those that a GPU shares with its partitions.
func commonAttributes(gpu inventory.GPU, facts nodeFacts) attributes {
	a := attributes{}
	a.text(AttributeProductName, gpu.ProductName)
	a.text(AttributeBrand, gpu.Brand)
	a.text(AttributeArchitecture, gpu.Architecture)
	a.version(AttributeCUDAComputeCapability, gpu.CUDAComputeCapability)
	a.version(AttributeDriverVersion, facts.driverVersion)
	a.version(AttributeCUDADriverVersion, facts.cudaDriverVersion)
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
	return strings.TrimSpace(strings.ToValidUTF8(value[:min(len(value), maxStringValue)], ""))
}

// releaseVersion is a semantic version without pre-release and build, which
// hardware versions never have.
var releaseVersion = regexp.MustCompile(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$`)

func (a attributes) version(name resourceapi.QualifiedName, v inventory.Version) {
	if value := v.Semver; len(value) <= maxStringValue && releaseVersion.MatchString(value) {
		a[name] = resourceapi.DeviceAttribute{VersionValue: &value}
	}
}

func (a attributes) boolean(name resourceapi.QualifiedName, value *bool) {
	if value != nil {
		v := *value
		a[name] = resourceapi.DeviceAttribute{BoolValue: &v}
	}
}
