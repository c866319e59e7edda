package fakeroot

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"apportion.dev/apportion/internal/atomicfile"
)

// LibraryDir is the library folder of Debian's layout for this architecture.
var LibraryDir = func() string {
	switch runtime.GOARCH {
	case "arm64":
		return "usr/lib/aarch64-linux-gnu"
	default:
		return "usr/lib/x86_64-linux-gnu"
	}
}()

// libraries are those of a driver that containers need, with the suffix of their
// soname.
var libraries = []struct{ name, soname string }{
	{"libcuda", "1"},
	{"libcudadebugger", "1"},
	{"libnvcuvid", "1"},
	{"libnvidia-allocator", "1"},
	{"libnvidia-cfg", "1"},
	{"libnvidia-encode", "1"},
	{"libnvidia-gpucomp", ""},
	{"libnvidia-ml", "1"},
	{"libnvidia-nvvm", "4"},
	{"libnvidia-opencl", "1"},
	{"libnvidia-opticalflow", "1"},
	{"libnvidia-ptxjitcompiler", "1"},
}

// libraryFile is, in the machine's folder, its own copy of the library that its drivers
// have as libnvidia-ml: whatever version is installed next gets a copy of it. Without it
// theirs has no code, like the other libraries.
const libraryFile = "libnvidia-ml.so"

// KeepLibrary copies a library, as the one of all its drivers, to a machine's folder.
func KeepLibrary(dir, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("NVML library for the fake machine: %w", err)
	}
	to := filepath.Join(dir, libraryFile)
	if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return atomicfile.WriteVolatile(to, data, 0o755)
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// machineLibrary is the name of the library that names the machine's folder.
const machineLibrary = "libnvidia-fake-machine"

// addLibraries adds the versioned libraries and the links that ldconfig and a
// driver's installer make. A library without a number in its soname is known by
// its full version.
//
// One more names the machine's folder, by which NVML's library finds its machine: behind
// the shared object follow, as text, the folder's path from the library and the one where
// it was made. It looks like a library of the driver, so that what takes those into a
// container takes it too.
func addLibraries(files Files, m Machine) {
	version := m.DriverVersion
	machine := machineLibrary + ".so." + version
	files[path.Join(LibraryDir, machine)] = regular(string(sharedObject(machine))+"../../../..:"+m.Dir, 0o755)
	for _, l := range libraries {
		file := l.name + ".so." + version
		soname := file
		if l.soname != "" {
			soname = l.name + ".so." + l.soname
			files[path.Join(LibraryDir, soname)] = symlink(file)
		}
		files[path.Join(LibraryDir, file)] = regular(string(sharedObject(soname)), 0o755)
	}
	if library := filepath.Join(m.Dir, libraryFile); isThere(library) {
		files[path.Join(LibraryDir, "libnvidia-ml.so."+version)] = copyOf(library, 0o755)
	}
	files[path.Join(LibraryDir, "libcuda.so")] = symlink("libcuda.so.1")
}

// Device numbers. 195 is NVIDIA's own major number. The driver takes dynamic ones
// for nvidia-uvm and the MIG capabilities; here they are minors of 195 that the
// driver does not use, so that a fake node never stands for a device of somebody
// else.
const (
	nvidiaMajor      = 195
	ctlMinor         = 255
	modesetMinor     = 254
	uvmMinor         = 1000
	uvmToolsMinor    = 1001
	capabilityMinors = 2000
)

// addDevices adds the device nodes and what procfs says of them.
func addDevices(files Files, m Machine) {
	files["proc/driver/nvidia/version"] = regular(fmt.Sprintf(
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build\n", m.DriverVersion), 0o444)
	files["proc/driver/nvidia/params"] = regular(
		"ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n", 0o444)
	if len(m.GPUs) == 0 {
		return
	}
	files["dev/nvidiactl"] = charDevice(nvidiaMajor, ctlMinor)
	files["dev/nvidia-modeset"] = charDevice(nvidiaMajor, modesetMinor)
	files["dev/nvidia-uvm"] = charDevice(nvidiaMajor, uvmMinor)
	files["dev/nvidia-uvm-tools"] = charDevice(nvidiaMajor, uvmToolsMinor)
	var minors strings.Builder
	for _, g := range m.GPUs {
		files[fmt.Sprintf("dev/nvidia%d", g.Minor)] = charDevice(nvidiaMajor, uint32(g.Minor))
		files["proc/driver/nvidia/gpus/"+g.PCIBusID+"/information"] = regular(fmt.Sprintf(
			"Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\n",
			g.ProductName, g.UUID, g.PCIBusID, g.Minor), 0o444)
		g.addCapabilities(files, &minors)
	}
	if minors.Len() > 0 {
		addCapability(files, "mig/config", capabilityConfig)
		addCapability(files, "mig/monitor", capabilityMonitor)
		files["proc/driver/nvidia-caps/mig-minors"] = regular(
			fmt.Sprintf("config %d\nmonitor %d\n", capabilityConfig, capabilityMonitor)+minors.String(), 0o444)
	}
}

// Numbers of the MIG capabilities, as the driver gives them.
const (
	capabilityConfig   = 1
	capabilityMonitor  = 2
	instancesPerGPU    = 15
	computePerInstance = 8
)

// InstanceCapability is the capability of a GPU instance of the GPU with a minor
// number: the minor of its node in /dev/nvidia-caps.
func InstanceCapability(minor, gi int) int {
	return 3 + (minor*instancesPerGPU+gi)*(computePerInstance+1)
}

// ComputeCapability is the capability of a compute instance of a GPU instance.
func ComputeCapability(minor, gi, ci int) int { return InstanceCapability(minor, gi) + 1 + ci }

// addCapabilities adds the capabilities of the instances that exist, and to
// minors those of all that could.
func (g GPU) addCapabilities(files Files, minors *strings.Builder) {
	if !g.MIGCapable {
		return
	}
	gpu := g.Minor
	minors.WriteString(possibleCapabilities()[gpu])
	for _, gi := range g.Instances {
		addCapability(files, fmt.Sprintf("gpu%d/mig/gi%d/access", gpu, gi.ID), InstanceCapability(gpu, gi.ID))
		for _, ci := range gi.Compute {
			addCapability(files, fmt.Sprintf("gpu%d/mig/gi%d/ci%d/access", gpu, gi.ID, ci.ID), ComputeCapability(gpu, gi.ID, ci.ID))
		}
	}
}

// possibleCapabilities are the lines of mig-minors for each GPU, by minor number.
var possibleCapabilities = sync.OnceValue(func() [MaxGPUs]string {
	var all [MaxGPUs]string
	for gpu := range all {
		var lines strings.Builder
		for gi := range instancesPerGPU {
			fmt.Fprintf(&lines, "gpu%d/gi%d/access %d\n", gpu, gi, InstanceCapability(gpu, gi))
			for ci := range computePerInstance {
				fmt.Fprintf(&lines, "gpu%d/gi%d/ci%d/access %d\n", gpu, gi, ci, ComputeCapability(gpu, gi, ci))
			}
		}
		all[gpu] = lines.String()
	}
	return all
})

func addCapability(files Files, name string, number int) {
	files["proc/driver/nvidia/capabilities/"+name] = regular(
		fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 292\nDeviceFileModify: 1\n", number), 0o444)
	e := charDevice(nvidiaMajor, uint32(capabilityMinors+number))
	e.mode = e.mode&^fs.ModePerm | 0o444
	files[fmt.Sprintf("dev/nvidia-caps/nvidia-cap%d", number)] = e
}

// addSysfs adds the PCI devices with their place in the hierarchy: each GPU is
// behind a bridge of its root complex.
func addSysfs(files Files, m Machine) {
	for _, g := range m.GPUs {
		address := g.PCIBusID
		root := g.PCIRoot
		device := fmt.Sprintf("devices/pci0000:%02x/0000:%02x:01.0/%s", root, root, address)
		files["sys/bus/pci/devices/"+address] = symlink("../../../" + device)
		if m.DriverVersion != "" {
			files["sys/bus/pci/drivers/nvidia/"+address] = symlink("../../../../" + device)
		}
		for name, value := range map[string]string{
			"numa_node": fmt.Sprint(g.NUMANode),
			"class":     "0x030200",
			"vendor":    fmt.Sprintf("0x%04x", g.PCIDeviceID&0xffff),
			"device":    fmt.Sprintf("0x%04x", g.PCIDeviceID>>16),
		} {
			files["sys/"+device+"/"+name] = regular(value+"\n", 0o444)
		}
	}
}
