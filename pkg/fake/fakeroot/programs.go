package fakeroot

import (
	_ "embed"
	"fmt"
	"strings"
)

// smiTemplate is nvidia-smi as a shell script: it must run in any container that
// has a shell.
//
//go:embed smi.sh
var smiTemplate string

// mpsControlScript is nvidia-cuda-mps-control as a shell script, for the same reason.
//
//go:embed mps-control.sh
var mpsControlScript string

// addPrograms adds nvidia-smi and the control of MPS. nvidia-smi is a link to a
// file elsewhere: that file changes with the GPUs, and a driver's programs do not
// change without the driver.
func addPrograms(files Files, m Machine) {
	files["usr/lib/nvidia/nvidia-smi"] = regular(smiScript(m), 0o755)
	files["usr/bin/nvidia-smi"] = symlink("../lib/nvidia/nvidia-smi")
	files["usr/bin/nvidia-cuda-mps-control"] = regular(mpsControlScript, 0o755)
}

// smiScript is the machine's nvidia-smi.
func smiScript(m Machine) string {
	cuda := CUDAVersion(m.DriverVersion)
	return strings.NewReplacer(
		"@DRIVER@", m.DriverVersion,
		"@CUDA@", fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10),
		"@DEVICES@\n", smiLines(m),
	).Replace(smiTemplate)
}

// smiLines are the GPUs and MIG devices as smi.sh reads them.
func smiLines(m Machine) string {
	var lines strings.Builder
	for _, g := range m.GPUs {
		state := "ok"
		if g.Lost {
			state = "lost"
		}
		fmt.Fprintf(&lines, "gpu|%d|%s|%s|%s|%d|%s\n", g.Minor, g.UUID, g.ProductName, g.PCIBusID, g.MemoryMiB, state)
		for _, gi := range g.Instances {
			for _, ci := range gi.Compute {
				fmt.Fprintf(&lines, "mig|%d|%s|%s|%d\n", ComputeCapability(g.Minor, gi.ID, ci.ID), ci.UUID, ci.Name, ci.Index)
			}
		}
	}
	return lines.String()
}
