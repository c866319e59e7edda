package mig

import (
	"errors"
	"fmt"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

var errCrash = errors.New("crash")

// crashes runs f and says whether it ended by errCrash.
func crashes(t *testing.T, f func()) (crashed bool) {
	t.Helper()
	defer func() {
		switch r := recover(); r {
		case nil:
		case errCrash:
			crashed = true
		default:
			panic(r)
		}
	}()
	f()
	return false
}

// situation is how a GPU is before a call. Other is an instance of somebody else
// that must be the same afterwards, as it reads in a layout.
type situation struct {
	name    string
	product string
	prepare func(t *testing.T, m *fakegpu.Machine, p inventory.Partition)
	other   string
	// empty is the layout without the partition, before what it is at first.
	empty, before string
}

var situations = []situation{
	{"a whole GPU", "h100-sxm5-80gb", func(*testing.T, *fakegpu.Machine, inventory.Partition) {}, "", "off", "off"},
	{"a GPU with another's partition", "h100-sxm5-80gb", func(t *testing.T, m *fakegpu.Machine, p inventory.Partition) {
		_, err := m.CreateMIG(p.GPU, "3g.40gb", 4)
		must(t, err)
	}, " 3g.40gb@4", "on", "on 3g.40gb@4"},
	{"a half-made partition", "h100-sxm5-80gb", makeHalf, "", "off", "on 2g.20gb@2(half)"},
	{"Ampere", "a100-sxm4-80gb", func(t *testing.T, m *fakegpu.Machine, p inventory.Partition) {
		must(t, m.SetMIGMode(p.GPU, true))
	}, "", "on", "on"},
}

func (s situation) machine(t *testing.T) (*fakegpu.Machine, inventory.Partition) {
	t.Helper()
	m, uuids := newMachine(t, s.product)
	p := inventory.Partition{GPU: uuids[0], Profile: "2g.20gb", Start: 2}
	s.prepare(t, m, p)
	return m, p
}

func (s situation) withPartition() string    { return "on 2g.20gb@2" + s.other }
func (s situation) withoutPartition() string { return s.empty + s.other }

// operations are the calls that change something.
var operations = map[string]func(t *testing.T, m *Manager, p inventory.Partition) error{
	"Ensure": func(t *testing.T, m *Manager, p inventory.Partition) error {
		_, err := m.Ensure(t.Context(), p)
		return err
	},
	"Remove": func(t *testing.T, m *Manager, p inventory.Partition) error { return m.Remove(t.Context(), p) },
}

// ready is a situation right before an operation: Remove has something to remove.
func ready(t *testing.T, s situation, operation string) (*fakegpu.Machine, inventory.Partition) {
	t.Helper()
	m, p := s.machine(t)
	if operation == "Remove" {
		_, err := New(m.NVML()).Ensure(t.Context(), p)
		must(t, err)
	}
	return m, p
}

// calls lists the NVML calls of an operation.
func calls(t *testing.T, s situation, operation string) []string {
	t.Helper()
	m, p := ready(t, s, operation)
	var list []string
	must(t, operations[operation](t, New(&spy{Interface: m.NVML(), before: func(call string) nvml.Return {
		list = append(list, call)
		return nvml.SUCCESS
	}}), p))
	return list
}

// changes says whether a call changes the machine; a crash before or after another
// one leaves the same.
func changes(call string) bool {
	switch call {
	case "SetMigMode", "CreateGpuInstance", "CreateComputeInstance", "Destroy GPU instance", "Destroy compute instance":
		return true
	}
	return false
}

func TestACrashAnywhereIsRepairedByEnsureAndCleanedByRemove(t *testing.T) {
	for _, s := range situations {
		for operation, do := range operations {
			for k, call := range calls(t, s, operation) {
				if !changes(call) {
					continue
				}
				for _, next := range []string{"Ensure", "Remove"} {
					t.Run(fmt.Sprintf("%s/%s/%d %s/%s", s.name, operation, k, call, next), func(t *testing.T) {
						m, p := ready(t, s, operation)
						n := 0
						lib := &spy{Interface: m.NVML(), after: func(string) {
							if n++; n == k+1 {
								panic(errCrash)
							}
						}}
						if !crashes(t, func() { _ = do(t, New(lib), p) }) {
							t.Fatal("did not crash")
						}
						must(t, operations[next](t, New(m.NVML()), p))
						want := s.withPartition()
						if next == "Remove" {
							want = s.withoutPartition()
						}
						wantLayout(t, m, p.GPU, "after the crash and "+next, want)
					})
				}
			}
		}
	}
}

// few says whether a call is worth a test of its own: it changes something, or was
// made at most once before.
func few(list []string, k int) bool {
	before := 0
	for _, call := range list[:k] {
		if call == list[k] {
			before++
		}
	}
	return before < 2 || changes(list[k])
}

// A call fails once. Ensure leaves nothing behind, and a repetition works.
func TestACallThatFailsLeavesNothingBehind(t *testing.T) {
	for _, s := range situations {
		for operation, do := range operations {
			list := calls(t, s, operation)
			for k, call := range list {
				if !few(list, k) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d %s", s.name, operation, k, call), func(t *testing.T) {
					m, p := ready(t, s, operation)
					n := 0
					lib := &spy{Interface: m.NVML(), before: func(string) nvml.Return {
						if n++; n == k+1 {
							return nvml.ERROR_UNKNOWN
						}
						return nvml.SUCCESS
					}}
					err := do(t, New(lib), p)
					if operation == "Ensure" && err != nil {
						wantError(t, err, p.String())
						if !errors.Is(err, nvml.ERROR_UNKNOWN) {
							t.Errorf("error %v does not say NVML's code", err)
						}
						wantLayout(t, m, p.GPU, "after the failure", s.before)
					}
					must(t, do(t, New(m.NVML()), p))
					want := s.withPartition()
					if operation == "Remove" {
						want = s.withoutPartition()
					}
					wantLayout(t, m, p.GPU, "after the repetition", want)
				})
			}
		}
	}
}

// From some call on everything fails, so nothing can be taken back either.
func TestWhatCannotBeTakenBackIsFinishedLater(t *testing.T) {
	for _, s := range situations {
		for operation, do := range operations {
			for k, call := range calls(t, s, operation) {
				if !changes(call) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d %s", s.name, operation, k, call), func(t *testing.T) {
					m, p := ready(t, s, operation)
					n := 0
					lib := &spy{Interface: m.NVML(), before: func(string) nvml.Return {
						if n++; n > k+1 {
							return nvml.ERROR_TIMEOUT
						}
						return nvml.SUCCESS
					}}
					if err := do(t, New(lib), p); err != nil && !errors.Is(err, nvml.ERROR_TIMEOUT) {
						t.Errorf("error %v does not say NVML's code", err)
					}
					_, err := New(m.NVML()).Ensure(t.Context(), p)
					must(t, err)
					wantLayout(t, m, p.GPU, "after Ensure", s.withPartition())
					must(t, New(m.NVML()).Remove(t.Context(), p))
					wantLayout(t, m, p.GPU, "after Remove", s.withoutPartition())
				})
			}
		}
	}
}

// The fake's faults, which an administrator can inject, of each property.
func TestInjectedFaults(t *testing.T) {
	for _, property := range []string{"architecture", "memory", "mig-create", "mig-destroy", "mig-devices", "mig-instances", "mig-mode", "mig-profiles"} {
		for _, code := range []string{"unknown", "timeout", "no-permission", "in-use", "not-found", "not-supported", "invalid-argument"} {
			t.Run(property+"/"+code, func(t *testing.T) {
				s := situations[0]
				m, p := s.machine(t)
				manager := New(m.NVML())
				must(t, m.Fail(p.GPU, property, code))
				if _, err := manager.Ensure(t.Context(), p); err != nil {
					wantError(t, err, p.String())
				}
				must(t, m.Heal(p.GPU, property))
				_, err := manager.Ensure(t.Context(), p)
				must(t, err)
				wantLayout(t, m, p.GPU, "after Ensure", s.withPartition())
				must(t, m.Fail(p.GPU, property, code))
				if err := manager.Remove(t.Context(), p); err != nil {
					wantError(t, err, p.String())
				}
				must(t, m.Heal(p.GPU, property))
				must(t, manager.Remove(t.Context(), p))
				wantLayout(t, m, p.GPU, "after Remove", s.withoutPartition())
			})
		}
	}
}

// The driver makes and removes partitions while pods wait.
func TestFewCalls(t *testing.T) {
	for operation, most := range map[string]int{"Ensure": 30, "Remove": 60} {
		if list := calls(t, situations[0], operation); len(list) > most {
			t.Errorf("%s makes %d calls of NVML, want at most %d: %q", operation, len(list), most, list)
		}
	}
}
