package follow

import (
	"slices"
	"testing"

	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/mig"
	"apportion.dev/apportion/pkg/node/prepare"
)

func TestWhosePartitionIsIt(t *testing.T) {
	gpu := inventory.GPU{UUID: "GPU-a", MIG: inventory.MIG{Enabled: new(bool), Profiles: []inventory.MIGProfile{{Name: "1g.10gb", ID: 19}, {Name: "3g.40gb", ID: 9}}}}
	ready := func(start, id int) prepare.HeldPartition {
		return prepare.HeldPartition{
			Partition: inventory.Partition{GPU: "GPU-a", Profile: "1g.10gb", Start: start}, Instance: &mig.Instance{GPUInstance: id},
		}
	}
	making := func(start int) prepare.HeldPartition {
		p := ready(start, 0)
		p.Instance = nil
		return p
	}
	instance := func(profile, start int) inventory.MIGInstance {
		return inventory.MIGInstance{ID: start, ProfileID: profile, Placement: inventory.MIGPlacement{Start: start, Size: 1}}
	}
	tests := []struct {
		name          string
		before, after []prepare.HeldPartition
		there         []inventory.MIGInstance
		wantForeign   []int // By placement start.
		wantLost      []int
	}{
		{"nobody's", nil, nil, []inventory.MIGInstance{instance(19, 0)}, []int{0}, nil},
		{"ours", []prepare.HeldPartition{ready(0, 7)}, []prepare.HeldPartition{ready(0, 7)}, []inventory.MIGInstance{instance(19, 0)}, nil, nil},
		{"same place, other profile", []prepare.HeldPartition{ready(0, 7)}, []prepare.HeldPartition{ready(0, 7)}, []inventory.MIGInstance{instance(9, 0)}, []int{0}, []int{0}},
		{"made while the hardware was read", nil, []prepare.HeldPartition{making(0)}, []inventory.MIGInstance{instance(19, 0)}, nil, nil},
		{"undone while the hardware was read", []prepare.HeldPartition{ready(0, 7)}, nil, []inventory.MIGInstance{instance(19, 0)}, nil, nil},
		{"being made, and not there yet", []prepare.HeldPartition{making(0)}, []prepare.HeldPartition{ready(0, 7)}, nil, nil, nil},
		{"undone and not there any more", []prepare.HeldPartition{ready(0, 7)}, nil, nil, nil, nil},
		{"destroyed by somebody", []prepare.HeldPartition{ready(0, 7), ready(1, 8)}, []prepare.HeldPartition{ready(0, 7), ready(1, 8)}, []inventory.MIGInstance{instance(19, 1)}, nil, []int{0}},
		{"made and removed between the looks", nil, []prepare.HeldPartition{making(0)}, []inventory.MIGInstance{instance(19, 0)}, nil, nil},
		{"removed and made for another claim between the looks", []prepare.HeldPartition{ready(0, 7)}, []prepare.HeldPartition{ready(0, 7), making(0)}, nil, nil, nil},
		{"made again meanwhile", []prepare.HeldPartition{ready(0, 7)}, []prepare.HeldPartition{ready(0, 8)}, nil, nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			gpu.MIG.Instances = test.there
			node := inventory.Node{GPUs: []inventory.GPU{gpu}}
			owned := compare(node, test.before, test.after)
			var foreign, lost []int
			for _, i := range owned.foreignOnly(node).GPUs[0].MIG.Instances {
				foreign = append(foreign, i.Placement.Start)
			}
			for _, p := range owned.lost {
				lost = append(lost, p.Start)
			}
			if !slices.Equal(foreign, test.wantForeign) || !slices.Equal(lost, test.wantLost) {
				t.Errorf("foreign at %v, lost at %v; want %v and %v", foreign, lost, test.wantForeign, test.wantLost)
			}
			if len(node.GPUs[0].MIG.Instances) != len(test.there) {
				t.Error("the node was changed")
			}
		})
	}
}
