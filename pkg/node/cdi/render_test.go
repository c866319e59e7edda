package cdi

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"tags.cncf.io/container-device-interface/specs-go"
)

func TestEachDeviceHasItsOwnEdits(t *testing.T) {
	f := newFixture(t)
	limit := func(soft string) *specs.Hook {
		return &specs.Hook{HookName: "createRuntime", Path: "/plugins/apportion-cdi-hook", Args: []string{"apportion-cdi-hook", "limit-memory", "--soft", soft}}
	}
	pipe := &specs.Mount{HostPath: "/run/apportion/mps", ContainerPath: "/run/mps", Options: []string{"bind"}}
	devices := []Device{
		{Name: "share-a", GPU: f.gpus[0], Edits: specs.ContainerEdits{Env: []string{"A=1"}, Hooks: []*specs.Hook{limit("1")}}},
		{Name: "share-b", GPU: f.gpus[0], Edits: specs.ContainerEdits{Hooks: []*specs.Hook{limit("2")}, Mounts: []*specs.Mount{pipe}}},
		{Name: "whole", GPU: f.gpus[1]},
		{Name: "share-c", GPU: f.gpus[0]},
	}
	for range 2 { // What is known by then has no edits of a claim.
		spec, _ := f.writeDevices(t, devices)
		for i, want := range []specs.ContainerEdits{
			{Env: []string{"A=1"}, Hooks: []*specs.Hook{limit("1")}},
			{Hooks: []*specs.Hook{limit("2")}, Mounts: []*specs.Mount{pipe}},
			{},
			{},
		} {
			got := spec.Devices[i].ContainerEdits
			if nodes := ownNodes(got); len(nodes) != 1 || nodes[0] != []string{"/dev/nvidia0", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia0"}[i] {
				t.Errorf("%s has the nodes %v", devices[i].Name, nodes)
			}
			got.DeviceNodes = nil
			// nvcdi's own hook makes folders accessible.
			got.Hooks = slices.DeleteFunc(got.Hooks, func(h *specs.Hook) bool { return strings.HasSuffix(h.Path, "/nvidia-cdi-hook") })
			if len(got.Hooks) == 0 {
				got.Hooks = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", devices[i].Name, diff)
			}
		}
	}
}

func TestInvalidDevicesAreRefused(t *testing.T) {
	f := newFixture(t)
	tests := []struct {
		name    string
		devices []Device
		want    []string
	}{
		{"none", nil, []string{"no devices"}},
		{"no name", []Device{{GPU: f.gpus[0]}}, []string{"name"}},
		{"name twice", []Device{{Name: "a", GPU: f.gpus[0]}, {Name: "a", GPU: f.gpus[1]}}, []string{`"a"`, "twice"}},
		{"environment", []Device{{Name: "a", GPU: f.gpus[0], Edits: specs.ContainerEdits{Env: []string{"no value"}}}}, []string{`"a"`, "no value"}},
		{"hook", []Device{{Name: "a", GPU: f.gpus[0], Edits: specs.ContainerEdits{Hooks: []*specs.Hook{{HookName: "sometime", Path: "/x"}}}}}, []string{`"a"`, "sometime"}},
		{"mount", []Device{{Name: "a", GPU: f.gpus[0], Edits: specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: "/x"}}}}}, []string{`"a"`, "mount"}},
		{"unknown GPU", []Device{{Name: "a", GPU: "GPU-00000000-0000-0000-0000-000000000000"}}, []string{"GPU-00000000-0000-0000-0000-000000000000", "still there"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := f.Render(t.Context(), test.devices)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestSpecIsWhatJSONMakesOfIt(t *testing.T) {
	f := newFixture(t, "h100-sxm5-80gb", "h100-sxm5-80gb")
	partition := f.createMIG(t, 1, "1g.10gb", 3)
	for _, devices := range [][]Device{
		{{Name: "gpu-a", GPU: f.gpus[0]}},
		{{Name: "1-gpu.a", GPU: f.gpus[0]}, {Name: "2-gpu:a", GPU: partition, Edits: specs.ContainerEdits{Env: []string{`QUOTED="<&>\n"`}, AdditionalGIDs: []uint32{44}}}},
	} {
		rendered, err := f.Render(t.Context(), devices)
		if err != nil {
			t.Fatal(err)
		}
		decoder := json.NewDecoder(bytes.NewReader(rendered.Data))
		decoder.DisallowUnknownFields()
		var spec specs.Spec
		if err := decoder.Decode(&spec); err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(rendered.Data)); diff != "" {
			t.Error(diff)
		}
		if version, err := specs.MinimumRequiredVersion(&spec); err != nil || version != spec.Version {
			t.Errorf("the version is %s, needed is %s, %v", spec.Version, version, err)
		}
	}
}

func TestClaimsAtTheSameTimeGetWhatTheyGetOneByOne(t *testing.T) {
	f := newFixture(t, slices.Repeat([]string{"h100-sxm5-80gb"}, 8)...)
	partition := f.createMIG(t, 7, "1g.10gb", 3)
	devices := func(i int) []Device {
		own := specs.ContainerEdits{Env: []string{"CLAIM=" + string(rune('a'+i))}}
		return []Device{{Name: "own", GPU: f.gpus[i%7], Edits: own}, {Name: "same", GPU: f.gpus[0]}, {Name: "part", GPU: partition, Edits: own}}
	}
	const claims = 16
	var digests, errs [claims]string
	var all sync.WaitGroup
	for i := range claims {
		all.Go(func() {
			rendered, err := f.Render(t.Context(), devices(i))
			if err != nil {
				errs[i] = err.Error()
			}
			digests[i] = rendered.Digest
		})
	}
	all.Wait()
	for i := range claims {
		rendered, err := f.Render(t.Context(), devices(i))
		if err != nil || errs[i] != "" || rendered.Digest != digests[i] {
			t.Errorf("claim %d: %s %s, alone %s %v", i, digests[i], errs[i], rendered.Digest, err)
		}
	}
}
