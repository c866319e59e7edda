package follow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/mig"
	"apportion.dev/apportion/pkg/node/prepare"
)

const uuid = "GPU-4f3a1b2c-0000-4000-8000-000000000001"

// node has one GPU with MIG mode on, room for one partition, and these instances.
func node(instances ...inventory.MIGInstance) inventory.Node {
	return inventory.Node{
		DriverVersion: inventory.Version{Raw: "580.95.05", Semver: "580.95.5"},
		GPUs: []inventory.GPU{{
			UUID: uuid, PCIBusID: "0000:07:00.0", ProductName: "NVIDIA H100", MemoryBytes: ptr.To[uint64](80 << 30),
			MIG: inventory.MIG{
				Capable: ptr.To(true), Enabled: ptr.To(true), Instances: instances,
				Profiles: []inventory.MIGProfile{{
					Name: "1g.10gb", ID: 19, Slices: 1, MemoryMiB: 9984, Multiprocessors: 16, CopyEngines: 1, MaxInstances: 1,
					Placements: []inventory.MIGPlacement{{Start: 0, Size: 1}},
				}},
			},
		}},
	}
}

// made is the partition's instance with this id; with a UUID, as a partition that
// somebody else made is a device of its own.
func made(id int) inventory.MIGInstance {
	return inventory.MIGInstance{
		ID: id, UUID: fmt.Sprintf("MIG-4f3a1b2c-0000-4000-8000-00000000000%d", id), ProfileID: 19,
		Placement: inventory.MIGPlacement{Start: 0, Size: 1},
	}
}

// record is the claim's partition; its id is 0 while it is being made.
func record(id int) []prepare.HeldPartition {
	p := prepare.HeldPartition{Partition: inventory.Partition{GPU: uuid, Profile: "1g.10gb", Start: 0}}
	if id != 0 {
		p.Instance = &mig.Instance{GPUInstance: id}
	}
	return []prepare.HeldPartition{p}
}

func with(n inventory.Node, change func(*inventory.Node)) inventory.Node {
	n.GPUs = slices.Clone(n.GPUs)
	change(&n)
	return n
}

func lost(n *inventory.Node)     { n.GPUs[0].Problem = "it is lost" }
func replaced(n *inventory.Node) { n.RestartNeeded = true }
func upgraded(n *inventory.Node) {
	n.DriverVersion = inventory.Version{Raw: "590.44.01", Semver: "590.44.1"}
}
func unloaded(n *inventory.Node) { n.DriverVersion, n.GPUs = inventory.Version{}, nil }

// brief is an effect in a few words. Devices are the whole GPU and its partition,
// which is "given" if somebody else made it.
func brief(e Effect) string {
	switch e := e.(type) {
	case Show:
		return "show " + devices(e.View.Model)
	case Publish:
		n := 0
		for _, slice := range e.Slices {
			n += len(slice.Devices)
		}
		return fmt.Sprintf("publish %d", n)
	case Repair:
		return "repair " + e.From + ">" + e.To
	case Warn:
		return "warn " + e.Reason
	case End:
		return fmt.Sprint("end: ", e.Err)
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "follow."))
}

func devices(m *devicemodel.Model) string {
	out := []string{}
	for _, d := range m.Devices {
		name := "gpu"
		if d.Name.IsPartition() {
			name = "part"
		}
		if d.MIGDevice != "" {
			name = "given"
		}
		switch {
		case d.Missing:
			name += "(missing)"
		case d.Problem != "":
			name += "(problem)"
		}
		out = append(out, name)
	}
	return strings.Join(out, "+")
}

type row struct {
	event Event
	want  []string
}

var (
	all     = GatesLearned{Gates{Partitions: true, Shares: true}}
	started = row{Started{Node: node()}, []string{"show part+gpu", "reconcile", "renewstatus"}}
	learned = row{all, []string{"show part+gpu", "publish 2"}}
	done    = row{Published{}, nil}
)

var errAway = errors.New("the API server is away")

func TestSteps(t *testing.T) {
	tests := []struct {
		name string
		rows []row
	}{
		{"at start nothing is published before the gates are known", []row{
			started, {Found{Node: node()}, []string{"show part+gpu"}}, learned, done, {Found{Node: node()}, []string{"show part+gpu"}},
		}},
		{"a driver that is told to end before the API server said what it keeps", []row{
			{Started{Node: node(), Records: record(1)}, []string{"show part+gpu", "reconcile", "renewstatus"}},
			{Found{Node: node(), Records: record(1)}, []string{"readagain"}},
			{Reread{Node: node(), Before: record(1), After: record(1)}, []string{"show part(missing)+gpu"}},
			{ClaimsChanged{}, []string{"readagain"}},
			{FieldsDropped{[]string{SharesGate}}, nil},
			{Stop{errAway}, []string{"end: the API server is away"}},
			{all, nil},
			{Found{Node: with(node(), replaced)}, nil},
		}},
		{"the hardware is followed while publishing waits for the API server, and the latest is published once", []row{
			started, learned,
			{Found{Node: with(node(), lost)}, []string{"show part(problem)+gpu(problem)"}},
			{Found{Node: with(node(), unloaded)}, []string{"show "}},
			{Published{}, []string{"publish 0"}},
			done,
		}},
		{"what changed and changed back while it was published is not published again", []row{
			started, learned,
			{Found{Node: with(node(), lost)}, []string{"show part(problem)+gpu(problem)"}},
			{Found{Node: node()}, []string{"show part+gpu"}},
			done,
		}},
		{"devices that could not be published are published the next time, changed or not", []row{
			started, learned, {Published{errAway}, nil},
			{Found{Node: node()}, []string{"show part+gpu", "publish 2"}}, done,
			{Found{Node: node()}, []string{"show part+gpu"}},
		}},
		{"what was built while publishing failed is published at once", []row{
			started, learned, {Found{Node: with(node(), unloaded)}, []string{"show "}},
			{Published{errAway}, []string{"publish 0"}}, done,
		}},
		{"an upgrade reaches prepared claims, whoever read it", []row{
			started, learned, done,
			{Found{Node: with(node(), upgraded)}, []string{"show part+gpu", "publish 2", "repair 580.95.05>590.44.01", "renewstatus"}}, done,
			{Reread{Node: node()}, []string{"show part+gpu", "publish 2", "repair 590.44.01>580.95.05", "renewstatus"}},
		}},
		{"a driver that is unloaded and comes back, as another one or the same", []row{
			started, {Found{Node: with(node(), unloaded)}, []string{"show "}},
			{Found{Node: with(node(), upgraded)}, []string{"show part+gpu", "repair >590.44.01", "renewstatus"}},
		}},
		{"a library that was replaced ends the process, whoever read it", []row{
			started, {Found{Node: with(node(made(1)), replaced)}, []string{"end: " + errReplaced.Error()}}, {Found{Node: node()}, nil},
		}},
		{"a library that was replaced while the driver looked again", []row{
			started, {Reread{Node: with(node(), replaced)}, []string{"end: " + errReplaced.Error()}},
		}},
		{"a GPU that is lost while the driver looks again stays so", []row{
			started, {Reread{Node: node()}, []string{"show part+gpu"}},
			{Found{Node: with(node(), lost)}, []string{"show part(problem)+gpu(problem)"}},
		}},
		{"a reading of a moment in which a claim's partition was made or removed is read again and no surprise", []row{
			started, learned, done,
			{Found{Node: node(made(1))}, []string{"readagain"}},
			{Reread{Node: node(made(1)), After: record(1)}, []string{"show part+gpu"}},
			{Found{Node: node(made(1)), Records: record(1)}, []string{"show part+gpu"}},
			{Found{Node: node(), Records: record(0)}, []string{"show part+gpu"}},
			{ClaimsChanged{}, nil},
		}},
		{"an administrator's partition is offered after a second look, and no third", []row{
			started, learned, done,
			{Found{Node: node(made(1))}, []string{"readagain"}},
			{Reread{Node: node(made(1))}, []string{"show given", "publish 1"}}, done,
			{Found{Node: node(made(1))}, []string{"show given"}},
			{Found{Node: node(made(2))}, []string{"readagain"}},
		}},
		{"a partition that somebody destroyed is tainted until its claim made it again", []row{
			{Started{Node: node(made(1)), Records: record(1)}, []string{"show part+gpu", "reconcile", "renewstatus"}},
			learned, done, {ClaimsChanged{}, nil},
			{Found{Node: node(), Records: record(1)}, []string{"readagain"}},
			{Reread{Node: node(), Before: record(1), After: record(1)}, []string{"show part(missing)+gpu", "publish 2"}}, done,
			{Found{Node: node(), Records: record(1)}, []string{"show part(missing)+gpu"}},
			{ClaimsChanged{}, []string{"readagain"}},
			{Reread{Node: node(made(2)), Before: record(2), After: record(2)}, []string{"show part+gpu", "publish 2"}}, done,
			{ClaimsChanged{}, nil},
		}},
		{"a partition that somebody destroyed is no longer missing once no claim holds it, or it is there", []row{
			{Started{Node: node(), Records: record(1)}, []string{"show part+gpu", "reconcile", "renewstatus"}},
			{Reread{Node: node(), Before: record(1), After: record(1)}, []string{"show part(missing)+gpu"}},
			{Found{Node: node(made(1)), Records: record(1)}, []string{"show part+gpu"}},
			{Reread{Node: node(), Before: record(1), After: record(1)}, []string{"show part(missing)+gpu"}},
			{Found{Node: node()}, []string{"show part+gpu"}},
		}},
		{"without counters partitions are not offered", []row{
			started, {GatesLearned{Gates{Shares: true}}, []string{"warn PartitionsNotOffered", "show gpu", "publish 1"}},
		}},
		{"without consumable capacity GPUs are offered whole", []row{
			started, {GatesLearned{Gates{Partitions: true}}, []string{"warn SharesNotOffered", "show part+gpu", "publish 2"}},
		}},
		{"an API server that was restarted with a gate off, and says so twice", []row{
			started, learned, done,
			{FieldsDropped{[]string{PartitionsGate, "DRAOther"}}, []string{"warn PartitionsNotOffered", "show gpu", "publish 1"}},
			{FieldsDropped{[]string{PartitionsGate}}, nil},
			{FieldsDropped{[]string{SharesGate}}, []string{"warn PartitionsNotOffered", "warn SharesNotOffered", "show gpu"}},
			{Published{}, []string{"publish 1"}},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			walk(t, New(devicemodel.Policy{TaintDomain: "gpu.apportion.dev"}), test.rows)
		})
	}
}

func TestWhatAnAdministratorDoesNotOfferNeedsNoGate(t *testing.T) {
	walk(t, New(devicemodel.Policy{NoPartitions: true, NoShares: true}), []row{
		{Started{Node: node()}, []string{"show gpu", "reconcile", "renewstatus"}},
		{GatesLearned{}, []string{"show gpu", "publish 1"}},
	})
}

// walk takes the steps.
func walk(t *testing.T, s State, rows []row) {
	t.Helper()
	for i, row := range rows {
		var effects []Effect
		before := s
		s, effects = Step(s, row.event)
		var got []string
		for _, e := range effects {
			got = append(got, brief(e))
			if show, ok := e.(Show); ok && s.View().Model != show.View.Model {
				t.Errorf("row %d: what is shown is not the state's", i)
			}
		}
		if !slices.Equal(got, row.want) {
			t.Fatalf("row %d, %T: effects are %q, want %q", i, row.event, got, row.want)
		}
		if _, again := Step(before, row.event); len(again) != len(effects) {
			t.Errorf("row %d: the same step gives %d effects, then %d", i, len(effects), len(again))
		}
	}
}
