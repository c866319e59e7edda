package cdi

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"tags.cncf.io/container-device-interface/specs-go"
)

// migPrefix starts the UUID of a MIG device.
const migPrefix = "MIG-"

// migDevice is a MIG device as the capability nodes name it.
type migDevice struct {
	parent string // UUID of the GPU
	minor  int    // of /dev/nvidia<minor>
	gi, ci int    // GPU instance and compute instance
	gfx    bool
}

// findMIGDevice asks NVML where a MIG device lies. The caller has initialized it.
func findMIGDevice(lib nvml.Interface, uuid string) (m migDevice, err error) {
	fail := func(what string, ret nvml.Return) (migDevice, error) {
		return migDevice{}, fmt.Errorf("%s MIG device %s: %w", what, uuid, ret)
	}
	device, ret := lib.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return fail("find", ret)
	}
	parent, ret := device.GetDeviceHandleFromMigDeviceHandle()
	if ret != nvml.SUCCESS {
		return fail("find the GPU of", ret)
	}
	if m.parent, ret = parent.GetUUID(); ret != nvml.SUCCESS {
		return fail("read the UUID of the GPU of", ret)
	}
	if m.minor, ret = parent.GetMinorNumber(); ret != nvml.SUCCESS {
		return fail("read the minor number of the GPU of", ret)
	}
	if m.gi, ret = device.GetGpuInstanceId(); ret != nvml.SUCCESS {
		return fail("read the GPU instance of", ret)
	}
	if m.ci, ret = device.GetComputeInstanceId(); ret != nvml.SUCCESS {
		return fail("read the compute instance of", ret)
	}
	if name, ret := device.GetName(); ret == nvml.SUCCESS {
		m.gfx = strings.Contains(name, "gfx")
	}
	return m, nil
}

// partitionEdits are those of a MIG device: the nodes of its GPU, which grant nothing
// by themselves, and the two capability nodes that grant the partition. They are not
// kept: a partition that is made again may lie elsewhere.
func (s *editSource) partitionEdits(m migDevice, gpu specs.ContainerEdits) (specs.ContainerEdits, error) {
	edits := gpu
	if !m.gfx {
		// Display nodes are the GPU's, and of no use without graphics.
		edits.Hooks = nil
		edits.DeviceNodes = slices.DeleteFunc(slices.Clone(gpu.DeviceNodes), func(n *specs.DeviceNode) bool {
			return !strings.HasPrefix(n.Path, "/dev/nvidia")
		})
	}
	for _, capability := range []string{
		fmt.Sprintf("gpu%d/gi%d/access", m.minor, m.gi),
		fmt.Sprintf("gpu%d/gi%d/ci%d/access", m.minor, m.gi, m.ci),
	} {
		minor, err := s.capabilityMinor(capability)
		if err != nil {
			return specs.ContainerEdits{}, err
		}
		path := fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor)
		node := &specs.DeviceNode{Path: path}
		if dev := devRoot(s.options.DriverRoot); dev != "/" {
			node.HostPath = filepath.Join(s.options.HostDriverRoot, path)
		}
		edits.DeviceNodes = append(slices.Clone(edits.DeviceNodes), node)
	}
	return edits, nil
}

// migMinors lists the minor number of each capability's device node, one a line:
// "gpu0/gi7/access 66" (NVIDIA's MIG user guide, "Device Nodes and Capabilities").
const migMinors = "proc/driver/nvidia-caps/mig-minors"

// capabilityMinor reads the minor number of a capability's node. It is in the procfs
// of the driver's own root where that has one, else of the machine.
func (s *editSource) capabilityMinor(capability string) (int, error) {
	file, err := os.Open(filepath.Join(s.options.DriverRoot, migMinors))
	if errors.Is(err, fs.ErrNotExist) {
		file, err = os.Open("/" + migMinors)
	}
	if err != nil {
		return 0, fmt.Errorf("find the device node of MIG capability %s: %w", capability, err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, minor, ok := strings.Cut(lines.Text(), " "); ok && name == capability {
			return strconv.Atoi(strings.TrimSpace(minor))
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("find the device node of MIG capability %s: %w", capability, err)
	}
	return 0, fmt.Errorf("MIG capability %s is not in %s; is the driver loaded?", capability, file.Name())
}
