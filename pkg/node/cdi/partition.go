package cdi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/moby/sys/devices"
	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// partition returns the edits for a MIG device: the device node of its GPU, and
// the nodes of the capabilities that admit to its GPU instance and its compute
// instance. They are worked out each time, because the instances behind a UUID
// change when a partition is removed and made again.
//
// nvcdi could be asked too, but it looks for the capabilities' numbers in this
// process's /proc only, and leaves out nodes that are missing without a word.
func (i *installation) partition(ctx context.Context, uuid string) (*part, error) {
	place, err := i.locate(uuid)
	if err != nil {
		return nil, fmt.Errorf("find MIG device %s: %w; is it still there (nvidia-smi -L)?", uuid, err)
	}
	parent, err := i.whole(ctx, place.gpu, place.minor)
	if err != nil {
		return nil, fmt.Errorf("MIG device %s: %w", uuid, err)
	}
	nodes, err := i.capabilityNodes(place)
	if err != nil {
		return nil, fmt.Errorf("MIG device %s: %w", uuid, err)
	}
	edits := specs.ContainerEdits{
		DeviceNodes:    []*specs.DeviceNode{parent.part.edits.DeviceNodes[parent.node]},
		AdditionalGIDs: parent.part.edits.AdditionalGIDs,
	}
	// The other nodes and the hooks of a GPU are for graphics.
	if len(parent.part.edits.DeviceNodes) > 1 {
		graphics, err := i.hasGraphics(uuid)
		if err != nil {
			return nil, fmt.Errorf("read the profile of MIG device %s: %w", uuid, err)
		}
		if graphics {
			edits.DeviceNodes, edits.Hooks = slices.Clone(parent.part.edits.DeviceNodes), parent.part.edits.Hooks
		}
	}
	edits.DeviceNodes = append(edits.DeviceNodes, nodes...)
	return newPart(edits)
}

// migPlace is where a MIG device lies.
type migPlace struct {
	// gpu is the UUID of its GPU, minor the number of that one's device node.
	gpu   string
	minor int
	// gi and ci are the ids of its GPU instance and its compute instance.
	gi, ci int
}

// locate asks NVML where a MIG device lies.
func (i *installation) locate(uuid string) (place migPlace, err error) {
	handle, ret := inventory.Handle(i.options.Library, uuid)
	if ret != nvml.SUCCESS {
		return place, ret
	}
	gpu, ret := handle.GetDeviceHandleFromMigDeviceHandle()
	if ret != nvml.SUCCESS {
		return place, fmt.Errorf("find its GPU: %w", ret)
	}
	if place.gpu, ret = gpu.GetUUID(); ret != nvml.SUCCESS {
		return place, fmt.Errorf("read the UUID of its GPU: %w", ret)
	}
	if place.minor, ret = gpu.GetMinorNumber(); ret != nvml.SUCCESS {
		return place, fmt.Errorf("read the minor number of its GPU: %w", ret)
	}
	if place.gi, ret = handle.GetGpuInstanceId(); ret != nvml.SUCCESS {
		return place, fmt.Errorf("read its GPU instance: %w", ret)
	}
	if place.ci, ret = handle.GetComputeInstanceId(); ret != nvml.SUCCESS {
		return place, fmt.Errorf("read its compute instance: %w", ret)
	}
	return place, nil
}

// hasGraphics says whether the MIG device has a profile with graphics.
func (i *installation) hasGraphics(uuid string) (bool, error) {
	mig, err := device.New(i.options.Library).NewMigDeviceByUUID(uuid)
	if err != nil {
		return false, err
	}
	profile, err := mig.GetProfile()
	if err != nil {
		return false, err
	}
	return slices.Contains(profile.GetInfo().Attributes, device.AttributeGraphics), nil
}

// capabilityNodes are the device nodes of a MIG device's two capabilities.
func (i *installation) capabilityNodes(p migPlace) ([]*specs.DeviceNode, error) {
	minors, err := i.capabilityMinors()
	if err != nil {
		return nil, err
	}
	var edits specs.ContainerEdits
	for _, capability := range []string{
		fmt.Sprintf("gpu%d/gi%d/access", p.minor, p.gi),
		fmt.Sprintf("gpu%d/gi%d/ci%d/access", p.minor, p.gi, p.ci),
	} {
		minor, ok := minors.byName[capability]
		if !ok {
			return nil, fmt.Errorf("%s has no line for the MIG capability %s", minors.path(), capability)
		}
		node, err := i.capabilityNode(minors.proc, minor)
		if err != nil {
			return nil, fmt.Errorf("MIG capability %s: %w", capability, err)
		}
		edits.DeviceNodes = append(edits.DeviceNodes, node)
	}
	nodes, err := i.translated(&edits)
	if err != nil {
		return nil, err
	}
	return nodes.edits.DeviceNodes, nil
}

// capabilityNode is the device node of a capability. Where a partition is made
// from within a container, nobody may have made the node on the host; a container
// runtime needs only its numbers.
func (i *installation) capabilityNode(proc string, minor int) (*specs.DeviceNode, error) {
	node := &specs.DeviceNode{Path: "/dev/nvidia-caps/nvidia-cap" + strconv.Itoa(minor)}
	path := filepath.Join(i.devRoot, node.Path)
	if path != node.Path {
		node.HostPath = path
	}
	found, err := devices.DeviceFromPath(path, "rwm")
	switch {
	case errors.Is(err, devices.ErrNotADevice):
		// A link to one: the runtime sees for itself.
		return node, nil
	case errors.Is(err, fs.ErrNotExist):
		major, err := deviceMajor(filepath.Join(proc, "devices"), "nvidia-caps")
		if err != nil {
			return nil, fmt.Errorf("there is no device node %s, and none can be made up: %w", path, err)
		}
		mode := fs.FileMode(0o444)
		node.Type, node.Major, node.Minor, node.FileMode, node.Permissions = "c", major, int64(minor), &mode, "rwm"
		return node, nil
	case err != nil:
		return nil, fmt.Errorf("look at the device node: %w", err)
	}
	node.Major, node.Minor, node.Permissions = found.Major, found.Minor, string(found.Permissions)
	if found.FileMode != 0 {
		node.FileMode = &found.FileMode
	}
	return node, nil
}

// minors are the numbers that the driver gave to MIG capabilities. They stay the
// same for as long as it is loaded, also of instances that do not exist.
type minors struct {
	// proc is the proc folder that they come from.
	proc string
	// byName has keys such as "gpu0/gi7/ci0/access".
	byName map[string]int
}

const migMinors = "driver/nvidia-caps/mig-minors"

func (m *minors) path() string { return filepath.Join(m.proc, migMinors) }

// capabilityMinors reads the numbers when they are first needed. The proc below
// the driver root counts before this process's own, as its dev does.
func (i *installation) capabilityMinors() (*minors, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.minors != nil {
		return i.minors, nil
	}
	own := "/proc"
	m := &minors{proc: filepath.Join(i.options.DriverRoot, "proc")}
	data, err := os.ReadFile(m.path())
	if errors.Is(err, fs.ErrNotExist) && m.proc != own {
		m.proc = own
		data, err = os.ReadFile(m.path())
	}
	if err != nil {
		return nil, fmt.Errorf("read the numbers of MIG capabilities: %w; is the NVIDIA driver loaded?", err)
	}
	if m.byName, err = parseMinors(string(data)); err != nil {
		return nil, fmt.Errorf("%s: %w", m.path(), err)
	}
	i.minors = m
	return m, nil
}

// parseMinors reads lines such as "gpu0/gi7/access 66".
func parseMinors(text string) (map[string]int, error) {
	byName := map[string]int{}
	for line := range strings.Lines(text) {
		name, number, ok := strings.Cut(strings.TrimSpace(line), " ")
		minor, err := strconv.Atoi(number)
		if !ok || err != nil || minor < 0 {
			return nil, fmt.Errorf("line %q is not a capability and its number", strings.TrimSpace(line))
		}
		byName[name] = minor
	}
	return byName, nil
}

// deviceMajor looks up a character device's major number in the kernel's list.
func deviceMajor(path, name string) (major int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	lines := bufio.NewScanner(file)
	for lines.Scan() && lines.Text() != "Block devices:" {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 && fields[1] == name {
			return strconv.ParseInt(fields[0], 10, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("%s does not list %s", path, name)
}
