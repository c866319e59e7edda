package inventory

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

func TestXIDsStayUntilSomethingCuresThem(t *testing.T) {
	machine, err := fakegpu.Create(filepath.Join(t.TempDir(), "machine"), fakegpu.Spec{Node: "node-a", DriverVersion: "580.95.05", GPUs: []string{"h100-sxm5-80gb", "h100-sxm5-80gb"}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := machine.CreateMIG("0", "1g.10gb", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := machine.CreateMIG("0", "1g.10gb", 1); err != nil {
		t.Fatal(err)
	}
	source := NewNVML(Options{Library: machine.NVML(), SysFS: machine.SysFS(), PollInterval: 20 * time.Millisecond, IgnoreXIDs: []int{92}})
	ctx, cancel := context.WithCancel(t.Context())
	nodes, ended := make(chan Node), make(chan struct{})
	go func() {
		defer close(ended)
		source.Watch(ctx, func(node Node) {
			select {
			case nodes <- node:
			case <-ctx.Done():
			}
		})
	}()
	defer func() {
		cancel()
		<-ended
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	}()
	<-nodes
	// The source listens to events only after its first report, and an event before
	// that is heard by nobody.
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for listening := false; !listening; {
		select {
		case node := <-nodes:
			listening = len(node.GPUs[0].XIDs) > 0
		case <-again.C:
			if err := machine.RaiseInstanceXID("0", 94, 7); err != nil {
				t.Fatal(err)
			}
		}
	}
	// GPU instances of an eighth are numbered from 7.
	steps := []struct {
		name string
		do   func() error
		// want are the XIDs of both GPUs.
		want [2][]XID
	}{
		{"of the other GPU", func() error { return machine.RaiseXID("1", 48) }, [2][]XID{{{94, ptr(7)}}, {{48, nil}}}},
		{"an application's own, a known one again, and another", func() error {
			for _, xid := range []uint64{31, 92, 48, 64} {
				if err := machine.RaiseXID("1", xid); err != nil {
					return err
				}
			}
			return nil
		}, [2][]XID{{{94, ptr(7)}}, {{48, nil}, {64, nil}}}},
		{"the partition is destroyed", func() error { return machine.DestroyMIG("", first) }, [2][]XID{nil, {{48, nil}, {64, nil}}}},
		{"the driver is replaced", func() error { return machine.SetDriverVersion("580.105.08") }, [2][]XID{nil, nil}},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		timeout := time.After(30 * time.Second)
		for diff := "never seen"; diff != ""; {
			select {
			case node := <-nodes:
				diff = cmp.Diff(step.want, [2][]XID{node.GPUs[0].XIDs, node.GPUs[1].XIDs})
			case <-timeout:
				t.Fatalf("%s: XIDs (-want +got):\n%s", step.name, diff)
			}
		}
	}
}
