package fakegpu

import (
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"strings"
	"sync"
)

// libraryDir is the library folder of Debian's layout for this architecture.
var libraryDir = func() string {
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

// addLibraries adds the versioned libraries and the links that ldconfig and a
// driver's installer make. A library without a number in its soname is known by
// its full version.
func addLibraries(entries map[string]rootEntry, version string) {
	for _, l := range libraries {
		file := l.name + ".so." + version
		soname := file
		if l.soname != "" {
			soname = l.name + ".so." + l.soname
			entries[path.Join(libraryDir, soname)] = symlink(file)
		}
		entries[path.Join(libraryDir, file)] = regular(string(sharedObject(soname)), 0o755)
	}
	entries[path.Join(libraryDir, "libcuda.so")] = symlink("libcuda.so.1")
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
func addDevices(entries map[string]rootEntry, st *state) {
	entries["proc/driver/nvidia/version"] = regular(fmt.Sprintf(
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build\n", st.DriverVersion), 0o444)
	entries["proc/driver/nvidia/params"] = regular(
		"ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n", 0o444)
	gpus := st.present()
	if len(gpus) == 0 {
		return
	}
	entries["dev/nvidiactl"] = charDevice(nvidiaMajor, ctlMinor)
	entries["dev/nvidia-modeset"] = charDevice(nvidiaMajor, modesetMinor)
	entries["dev/nvidia-uvm"] = charDevice(nvidiaMajor, uvmMinor)
	entries["dev/nvidia-uvm-tools"] = charDevice(nvidiaMajor, uvmToolsMinor)
	var minors strings.Builder
	for _, v := range gpus {
		entries[fmt.Sprintf("dev/nvidia%d", v.slot.number)] = charDevice(nvidiaMajor, uint32(v.slot.number))
		entries["proc/driver/nvidia/gpus/"+v.slot.pciBusID()+"/information"] = regular(fmt.Sprintf(
			"Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\n",
			v.product.ProductName, v.uuid, v.slot.pciBusID(), v.slot.number), 0o444)
		v.addCapabilities(entries, &minors)
	}
	if minors.Len() > 0 {
		addCapability(entries, "mig/config", capabilityConfig)
		addCapability(entries, "mig/monitor", capabilityMonitor)
		entries["proc/driver/nvidia-caps/mig-minors"] = regular(
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

// giCapability is the capability of a GPU instance; those of its compute
// instances follow it.
func giCapability(minor, gi int) int {
	return 3 + (minor*instancesPerGPU+gi)*(computePerInstance+1)
}

// addCapabilities adds the capabilities of the instances that exist, and to
// minors those of all that could.
func (v view) addCapabilities(entries map[string]rootEntry, minors *strings.Builder) {
	if v.product.MIG == nil {
		return
	}
	gpu := v.slot.number
	minors.WriteString(possibleCapabilities()[gpu])
	for _, gi := range v.Instances {
		number := giCapability(gpu, gi.ID)
		addCapability(entries, fmt.Sprintf("gpu%d/mig/gi%d/access", gpu, gi.ID), number)
		for _, ci := range gi.Compute {
			addCapability(entries, fmt.Sprintf("gpu%d/mig/gi%d/ci%d/access", gpu, gi.ID, ci.ID), number+1+ci.ID)
		}
	}
}

// possibleCapabilities are the lines of mig-minors for each GPU, by minor number.
var possibleCapabilities = sync.OnceValue(func() [MaxGPUs]string {
	var all [MaxGPUs]string
	for gpu := range all {
		var lines strings.Builder
		for gi := range instancesPerGPU {
			number := giCapability(gpu, gi)
			fmt.Fprintf(&lines, "gpu%d/gi%d/access %d\n", gpu, gi, number)
			for ci := range computePerInstance {
				fmt.Fprintf(&lines, "gpu%d/gi%d/ci%d/access %d\n", gpu, gi, ci, number+1+ci)
			}
		}
		all[gpu] = lines.String()
	}
	return all
})

func addCapability(entries map[string]rootEntry, name string, number int) {
	entries["proc/driver/nvidia/capabilities/"+name] = regular(
		fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 292\nDeviceFileModify: 1\n", number), 0o444)
	e := charDevice(nvidiaMajor, uint32(capabilityMinors+number))
	e.mode = e.mode&^fs.ModePerm | 0o444
	entries[fmt.Sprintf("dev/nvidia-caps/nvidia-cap%d", number)] = e
}

// addSysfs adds the PCI devices with their place in the hierarchy: each GPU is
// behind a bridge of its root complex.
func addSysfs(entries map[string]rootEntry, st *state) {
	for _, v := range st.present() {
		address := v.slot.pciBusID()
		root := v.slot.root()
		device := fmt.Sprintf("devices/pci0000:%02x/0000:%02x:01.0/%s", root, root, address)
		entries["sys/bus/pci/devices/"+address] = symlink("../../../" + device)
		if st.DriverVersion != "" {
			entries["sys/bus/pci/drivers/nvidia/"+address] = symlink("../../../../" + device)
		}
		for name, value := range map[string]string{
			"numa_node": fmt.Sprint(v.slot.numaNode()),
			"class":     "0x030200",
			"vendor":    fmt.Sprintf("0x%04x", v.product.PCI.DeviceID&0xffff),
			"device":    fmt.Sprintf("0x%04x", v.product.PCI.DeviceID>>16),
		} {
			entries["sys/"+device+"/"+name] = regular(value+"\n", 0o444)
		}
	}
}

// addPrograms adds nvidia-smi and the control of MPS. nvidia-smi is a link to a
// file elsewhere: it is another one after each change of the GPUs, and a driver's
// programs do not change without the driver.
func addPrograms(entries map[string]rootEntry, st *state) {
	entries["usr/lib/nvidia/nvidia-smi"] = regular(smiScript(st), 0o755)
	entries["usr/bin/nvidia-smi"] = symlink("../lib/nvidia/nvidia-smi")
	entries["usr/bin/nvidia-cuda-mps-control"] = regular(mpsControlScript, 0o755)
}

// smiLines are the GPUs and MIG devices as smi.sh reads them.
func smiLines(st *state) string {
	var lines strings.Builder
	for _, v := range st.present() {
		state := "ok"
		if v.Lost {
			state = "lost"
		}
		fmt.Fprintf(&lines, "gpu|%d|%s|%s|%s|%d|%s\n",
			v.slot.number, v.uuid, v.product.ProductName, v.slot.pciBusID(), v.product.Memory.TotalMiB, state)
		for _, m := range v.migDevices() {
			fmt.Fprintf(&lines, "mig|%d|%s|%s|%d\n",
				giCapability(v.slot.number, m.gi.ID)+1+m.ci.ID, m.uuid, m.name(), m.index)
		}
	}
	return lines.String()
}
