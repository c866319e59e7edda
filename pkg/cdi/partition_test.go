package cdi

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/pkg/fakegpu"
)

func TestPartitionHasItsGPUsNodeAndItsOwnCapabilities(t *testing.T) {
	machine, err := fakegpu.Create(filepath.Join(t.TempDir(), "machine"), fakegpu.Spec{Node: "node-a", DriverVersion: "580.95.05", GPUs: []string{"h100-sxm5-80gb", "h100-sxm5-80gb"}})
	if err != nil {
		t.Fatal(err)
	}
	// The second GPU is /dev/nvidia1. A partition of an eighth at 3 is GPU instance
	// 10 of an H100 (nvidia-smi numbers the eighths 7 to 14).
	library := machine.NVML()
	if ret := library.Init(); ret != 0 {
		t.Fatal(ret)
	}
	gpu, ret := library.DeviceGetHandleByIndex(1)
	if ret != 0 {
		t.Fatal(ret)
	}
	parent, ret := gpu.GetUUID()
	if ret != 0 {
		t.Fatal(ret)
	}
	uuid, err := machine.CreateMIG(parent, "1g.10gb", 3)
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Options{
		Vendor: "gpu.apportion.dev", Dir: t.TempDir(), Library: library,
		DriverRoot: machine.DriverRoot(), HostDriverRoot: "/host/driver", HookPath: "/hook",
	})
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := w.Render(t.Context(), []Device{{Name: "part", GPU: uuid, Edits: specs.ContainerEdits{Env: []string{"A=1"}}}, {Name: "whole", GPU: parent}})
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(rendered.Data, &spec); err != nil {
		t.Fatal(err)
	}
	var paths, hosts []string
	for _, n := range spec.Devices[0].ContainerEdits.DeviceNodes {
		paths, hosts = append(paths, n.Path), append(hosts, n.HostPath)
	}
	// mig-minors of a driver: GPU 0 has the numbers 3 to 137, and GPU 1 those from
	// 138; GPU instance n of it 138+9n, its compute instance 0 one more.
	want := []string{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap228", "/dev/nvidia-caps/nvidia-cap229"}
	if !slices.Equal(paths, want) {
		t.Errorf("nodes are %q, want %q", paths, want)
	}
	if len(hosts) != 3 || hosts[1] != "/host/driver/dev/nvidia-caps/nvidia-cap228" {
		t.Errorf("on the host the nodes are %q", hosts)
	}
	if env := spec.Devices[0].ContainerEdits.Env; !slices.Equal(env, []string{"A=1"}) {
		t.Errorf("environment is %q", env)
	}
	if len(spec.Devices[1].ContainerEdits.Env) != 0 || spec.Devices[1].ContainerEdits.DeviceNodes[0].Path != "/dev/nvidia1" {
		t.Errorf("the whole GPU has %+v", spec.Devices[1].ContainerEdits)
	}
}
