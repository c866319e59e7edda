package inventory

import (
	"context"
	"io/fs"
	"strings"

	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/klog/v2"
)

const (
	problemLost  = "the GPU is lost: it fell off the bus or does not answer; reset it or reboot the node"
	problemReset = "the GPU needs a reset before it can be used: stop its users and reset it (nvidia-smi --gpu-reset), or reboot the node"
)

// reading is one pass over the hardware.
type reading struct {
	lib    nvml.Interface
	words  device.Interface
	sysfs  fs.ReadLinkFS
	logger klog.Logger
	// symbols remembers which of the library's functions exist.
	symbols map[string]bool
	// instances are the UUIDs of the GPUs whose MIG instances were all read.
	instances map[string]bool
}

func newReading(lib nvml.Interface, sysfs fs.ReadLinkFS, logger klog.Logger) *reading {
	return &reading{
		lib: lib, words: device.New(lib), sysfs: sysfs, logger: logger,
		symbols: map[string]bool{}, instances: map[string]bool{},
	}
}

// has says whether the library has one of some functions, which are names of one
// function at different versions. Calling a function that is missing would end
// the process, as the dynamic linker resolves it only then.
func (r *reading) has(symbols ...string) bool {
	for _, symbol := range symbols {
		found, seen := r.symbols[symbol]
		if !seen {
			found = r.lib.Extensions().LookupSymbol(symbol) == nil
			r.symbols[symbol] = found
		}
		if found {
			return true
		}
	}
	return false
}

func (r *reading) cudaDriverVersion() (int, nvml.Return) {
	switch {
	case r.has("nvmlSystemGetCudaDriverVersion_v2"):
		return r.lib.SystemGetCudaDriverVersion_v2()
	case r.has("nvmlSystemGetCudaDriverVersion"):
		return r.lib.SystemGetCudaDriverVersion()
	}
	return 0, nvml.ERROR_FUNCTION_NOT_FOUND
}

// gpuReading is the reading of one GPU.
type gpuReading struct {
	pass *reading
	dev  nvml.Device
	gpu  GPU
}

// ok says whether a property was read. Codes that concern the whole GPU are noted
// as its problem; all others mean that the property is absent.
func (g *gpuReading) ok(property string, ret nvml.Return) bool {
	switch ret {
	case nvml.SUCCESS:
		return true
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_FOUND:
		return false
	case nvml.ERROR_GPU_IS_LOST:
		g.gpu.Problem = problemLost
	case nvml.ERROR_RESET_REQUIRED:
		if g.gpu.Problem == "" {
			g.gpu.Problem = problemReset
		}
	}
	g.pass.logger.V(4).Info("Property of GPU cannot be read", "property", property, "index", g.gpu.Index, "gpu", g.gpu.UUID, "reason", ret.Error())
	return false
}

// gpus reads all GPUs, and separates those whose PCI address cannot be read.
func (r *reading) gpus(ctx context.Context, count int) (named, unnamed []GPU) {
	for i := range count {
		if ctx.Err() != nil {
			break
		}
		if gpu := r.gpu(i); gpu.PCIBusID != "" {
			named = append(named, gpu)
		} else {
			unnamed = append(unnamed, gpu)
		}
	}
	return named, unnamed
}

// gpu reads the GPU with an index.
func (r *reading) gpu(index int) GPU {
	g := &gpuReading{pass: r, gpu: GPU{Index: index}}
	var ret nvml.Return
	if g.dev, ret = r.lib.DeviceGetHandleByIndex(index); ret != nvml.SUCCESS {
		if !g.ok("handle", ret) && g.gpu.Problem == "" {
			g.gpu.Problem = handleProblem(ret)
		}
		return g.gpu
	}
	g.identity()
	g.product()
	g.platform()
	if g.gpu.Problem != problemLost {
		g.memoryLimits()
		g.mig()
		g.nvlink()
	}
	return g.gpu
}

func handleProblem(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_INSUFFICIENT_POWER:
		return "the GPU has not enough power: check its external power cables"
	case nvml.ERROR_IRQ_ISSUE:
		return "the kernel driver has an interrupt problem with the GPU: see the kernel's log"
	case nvml.ERROR_NO_PERMISSION:
		return "there is no permission to open the GPU: its device node must be readable and writable here"
	}
	return "the GPU cannot be opened: " + ret.Error()
}

// identity reads what says which GPU it is.
func (g *gpuReading) identity() {
	if info, ret := g.dev.GetPciInfo(); g.ok("PCI address", ret) {
		address := cString(info.BusId[:])
		if address == "" {
			address = cString(info.BusIdLegacy[:])
		}
		if normal, err := NormalizePCIBusID(address); err == nil {
			g.gpu.PCIBusID = normal
		}
	}
	uuid, ret := g.dev.GetUUID()
	switch {
	case g.ok("UUID", ret):
		g.gpu.UUID = uuid
	case g.gpu.Problem == "":
		g.gpu.Problem = "the GPU's UUID cannot be read: " + ret.Error()
	}
	if minor, ret := g.dev.GetMinorNumber(); g.ok("minor number", ret) {
		g.gpu.Minor = &minor
	}
}

// product reads what kind of GPU it is.
func (g *gpuReading) product() {
	if name, ret := g.dev.GetName(); g.ok("name", ret) {
		g.gpu.ProductName = strings.TrimSpace(name)
	}
	if words, err := g.pass.words.NewDevice(g.dev); err == nil {
		g.gpu.Brand = g.word("brand", words.GetBrandAsString)
		if g.pass.has("nvmlDeviceGetArchitecture") {
			g.gpu.Architecture = g.word("architecture", words.GetArchitectureAsString)
		}
	}
	if major, minor, ret := g.dev.GetCudaComputeCapability(); g.ok("compute capability", ret) {
		g.gpu.CUDAComputeCapability = computeCapability(major, minor)
	}
	if memory, ret := g.dev.GetMemoryInfo(); g.ok("memory", ret) && memory.Total > 0 {
		g.gpu.MemoryBytes = &memory.Total
	}
}

// cgroupRoot is where cgroup v2 is mounted on nodes that run on it. NVML's memory
// limits are those of a cgroup, and the root has none.
const cgroupRoot = "/sys/fs/cgroup"

// memoryLimits finds out whether NVML can limit the memory of this node's cgroups. Only
// the question is asked; no limit is set.
func (g *gpuReading) memoryLimits() {
	supported := false
	g.gpu.MemoryLimits = &supported
	if !g.pass.has("nvmlDeviceSetMemoryLimits_v1") || !g.pass.has("nvmlDeviceGetMemoryLimits_v1") {
		return
	}
	switch _, ret := g.dev.GetMemoryLimits_v1(cgroupRoot); ret {
	case nvml.SUCCESS, nvml.ERROR_NOT_FOUND:
		// It looked for limits, and there are none.
		supported = true
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_OPERATING_SYSTEM:
		// The GPU or the library cannot, or the folder is no cgroup that NVML can open:
		// the node does not run on cgroup v2.
	default:
		g.gpu.MemoryLimits = nil
		g.ok("memory limits", ret)
	}
}

// word reads a property that go-nvlib puts into a word.
func (g *gpuReading) word(property string, read func() (string, error)) string {
	word, err := read()
	if err != nil {
		g.pass.logger.V(4).Info("Property of GPU cannot be read", "property", property, "index", g.gpu.Index, "gpu", g.gpu.UUID, "reason", err.Error())
		return ""
	}
	switch word {
	case "Unknown":
		return ""
	case "Ada Lovelace":
		return "Ada"
	}
	return word
}

// platform reads where the GPU is in the machine.
func (g *gpuReading) platform() {
	if g.gpu.PCIBusID == "" || g.pass.sysfs == nil {
		return
	}
	root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(g.gpu.PCIBusID, deviceattribute.WithFS(g.pass.sysfs))
	if err == nil && root.Value.StringValue != nil {
		g.gpu.PCIeRoot = *root.Value.StringValue
	}
	numa, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(g.gpu.PCIBusID, deviceattribute.ScalarAttribute, deviceattribute.WithFS(g.pass.sysfs))
	if err == nil && numa.Value.IntValue != nil {
		node := int(*numa.Value.IntValue)
		g.gpu.NUMANode = &node
	}
}

// cString is the text of a C array up to its end.
func cString(chars []int8) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return strings.TrimSpace(b.String())
}
