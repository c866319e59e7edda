package cdi

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"tags.cncf.io/container-device-interface/specs-go"
)

// ownNodes are the paths of the edits' device nodes, in their order, without those
// for graphics, which depend on the machine that the test runs on.
func ownNodes(edits specs.ContainerEdits) []string {
	var own []string
	for _, node := range edits.DeviceNodes {
		if !strings.HasPrefix(node.Path, "/dev/dri/") {
			own = append(own, node.Path)
		}
	}
	return own
}

// The capabilities of GPU 0 have the numbers 3 to 137, and those of GPU 1 follow:
// GPU instance n has 138+9n, and its compute instance 0 one more. A 1g.10gb at
// start s is GPU instance 7+s on an H100.
func TestPartitionHasItsGPUsNodeAndItsOwnCapabilities(t *testing.T) {
	f := newFixture(t, "h100-sxm5-80gb", "h100-sxm5-80gb")
	a, b := f.createMIG(t, 1, "1g.10gb", 3), f.createMIG(t, 1, "1g.10gb", 5)
	spec, _ := f.writeDevices(t, []Device{
		{Name: "a", GPU: a, Edits: specs.ContainerEdits{Env: []string{"A=1"}}}, {Name: "b", GPU: b}, {Name: "other", GPU: f.gpus[0]},
	})
	for i, want := range [][]string{
		{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap228", "/dev/nvidia-caps/nvidia-cap229"},
		{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap246", "/dev/nvidia-caps/nvidia-cap247"},
		{"/dev/nvidia0"},
	} {
		edits := spec.Devices[i].ContainerEdits
		if diff := cmp.Diff(want, ownNodes(edits)); diff != "" {
			t.Errorf("%s: %s", spec.Devices[i].Name, diff)
		}
		for _, node := range edits.DeviceNodes {
			if node.HostPath != "/host/driver"+node.Path {
				t.Errorf("the container runtime finds %s at %s", node.Path, node.HostPath)
			}
			if node.Permissions != "rwm" {
				t.Errorf("a container has %q on %s", node.Permissions, node.Path)
			}
		}
	}
	for _, device := range spec.Devices[:2] {
		if hooks := device.ContainerEdits.Hooks; len(hooks) > 0 {
			t.Errorf("%s has the hook %v", device.Name, hooks[0].Args)
		}
	}
	if env := spec.Devices[0].ContainerEdits.Env; !slices.Equal(env, []string{"A=1"}) {
		t.Errorf("environment is %q", env)
	}
}

func TestPartitionThatIsMadeAgain(t *testing.T) {
	f := newFixture(t, "h100-sxm5-80gb", "h100-sxm5-80gb")
	lib := newOddLibrary(f.machine.NVML())
	f.Writer = f.newWriter(t, lib)
	nodes := func(uuid string) []string {
		t.Helper()
		spec, _ := f.write(t, uuid)
		return ownNodes(spec.Devices[0].ContainerEdits)
	}
	uuid := f.createMIG(t, 1, "1g.10gb", 3)
	want := []string{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap228", "/dev/nvidia-caps/nvidia-cap229"}
	if diff := cmp.Diff(want, nodes(uuid)); diff != "" {
		t.Error(diff)
	}
	if err := f.machine.DestroyMIG("", uuid); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Render(t.Context(), []Device{{Name: "a", GPU: uuid}}); err == nil || !strings.Contains(err.Error(), uuid) {
		t.Errorf("the partition is gone, error is %v", err)
	}
	if again := f.createMIG(t, 1, "1g.10gb", 3); again != uuid {
		t.Fatalf("the partition is %s, was %s", again, uuid)
	}
	if diff := cmp.Diff(want, nodes(uuid)); diff != "" {
		t.Error(diff)
	}

	// The same UUID elsewhere: GPU instance 12 of GPU 0, 3 + 12*9 = 111.
	lib.setAliases(map[string]string{uuid: f.createMIG(t, 0, "1g.10gb", 5)})
	want = []string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap111", "/dev/nvidia-caps/nvidia-cap112"}
	if diff := cmp.Diff(want, nodes(uuid)); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyPartitionsWithGraphicsHaveTheGPUsGraphics(t *testing.T) {
	f := newFixture(t, "rtx-pro-6000-96gb")
	f.write(t, f.gpus[0])
	if ret := f.machine.NVML().Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	// As nvcdi answers where the kernel has a display device for the GPU.
	known := f.edits.known.Load()
	render := &specs.DeviceNode{Path: "/dev/dri/renderD128"}
	links := &specs.Hook{HookName: "createContainer", Path: "/hook", Args: []string{"nvidia-cdi-hook", "create-symlinks"}}
	for profile, want := range map[string]bool{"1g.24gb+gfx": true, "1g.24gb": false} {
		partition := f.createMIG(t, 0, profile, 0)
		before := *known.gpus[f.gpus[0]]
		answer := before
		edits := before.part.edits
		edits.DeviceNodes = append(slices.Clone(edits.DeviceNodes[before.node:before.node+1]), render)
		edits.Hooks = []*specs.Hook{links}
		answer.part, answer.node, answer.folders = &part{edits: edits}, 0, nil
		known.gpus[f.gpus[0]] = &answer
		got, err := known.partition(t.Context(), partition)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(got.edits.DeviceNodes, render) != want || slices.Contains(got.edits.Hooks, links) != want {
			t.Errorf("%s: nodes %v, %d hooks", profile, nodePaths(got.edits), len(got.edits.Hooks))
		}
		if len(ownNodes(got.edits)) != 3 || len(answer.part.edits.DeviceNodes) != 2 {
			t.Errorf("%s: nodes %v, those of the GPU %v", profile, ownNodes(got.edits), nodePaths(answer.part.edits))
		}
		if err := f.machine.DestroyMIG("", partition); err != nil {
			t.Fatal(err)
		}
	}
}

// A process in a container that makes a partition leaves no node on the host.
func TestCapabilityWithoutADeviceNode(t *testing.T) {
	f := newFixture(t, "h100-sxm5-80gb")
	partition := f.createMIG(t, 0, "1g.10gb", 0) // Capabilities 66 and 67.
	if err := os.Remove(filepath.Join(f.machine.DriverRoot(), "dev/nvidia-caps/nvidia-cap67")); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(f.machine.DriverRoot(), "proc/devices")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(list, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wantError := func(want ...string) {
		t.Helper()
		_, err := f.Render(t.Context(), []Device{{Name: "a", GPU: partition}})
		for _, text := range append(want, partition, "gpu0/gi7/ci0/access", "nvidia-cap67") {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("error is %v, want %q in it", err, text)
			}
		}
	}
	wantError("no such file")
	put("Character devices:\n  1 mem\n195 nvidia\n\nBlock devices:\n237 nvidia-caps\n")
	wantError("does not list nvidia-caps")
	put("Character devices:\n  1 mem\n195 nvidia\n236 nvidia-caps-imex-channels\n237 nvidia-caps\n\nBlock devices:\n  8 sd\n")
	spec, _ := f.write(t, partition)
	nodes := spec.Devices[0].ContainerEdits.DeviceNodes
	want := &specs.DeviceNode{
		Path: "/dev/nvidia-caps/nvidia-cap67", HostPath: "/host/driver/dev/nvidia-caps/nvidia-cap67",
		Type: "c", Major: 237, Minor: 67, FileMode: ptr.To(fs.FileMode(0o444)), Permissions: "rwm",
	}
	if diff := cmp.Diff(want, nodes[len(nodes)-1]); diff != "" {
		t.Error(diff)
	}
}

func TestMIGMinors(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"no such line", "config 1\nmonitor 2\ngpu1/gi7/access 66\n", "no line for the MIG capability gpu0/gi7/access"},
		{"torn", "config 1\ngpu0/gi7/access", `"gpu0/gi7/access"`},
		{"no number", "gpu0/gi7/access x\n", `"gpu0/gi7/access x"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, "h100-sxm5-80gb")
			partition := f.createMIG(t, 0, "1g.10gb", 0)
			path := filepath.Join(f.machine.DriverRoot(), "proc/driver/nvidia-caps/mig-minors")
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(test.text), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err = f.Render(t.Context(), []Device{{Name: "a", GPU: partition}})
			for _, want := range []string{test.want, partition, path} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want %q in it", err, want)
				}
			}
			if test.name == "no such line" {
				return // The numbers of a loaded driver do not change.
			}
			if err := os.WriteFile(path, whole, 0o644); err != nil {
				t.Fatal(err)
			}
			f.write(t, partition)
		})
	}
}

func TestFoldersThatMayStillChangeAreLookedAtAgain(t *testing.T) {
	folder := t.TempDir()
	edits := &specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: filepath.Join(folder, "lib.so")}}}
	for _, test := range []struct {
		name  string
		asked time.Time
		want  bool
	}{
		{"changed before it was read", time.Now().Add(time.Hour), true},
		{"changed after it was read", time.Now().Add(-time.Hour), false},
	} {
		found, err := foldersOf(edits, test.asked, nil)
		if err != nil || found.unchanged() != test.want {
			t.Errorf("%s: unchanged %t, %v", test.name, found.unchanged(), err)
		}
	}
}
