package follow

import (
	"fmt"
	"slices"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/prepare"
)

// Event is something that happened: one of the types below that say so.
type Event interface{ event() }

// Started is the first event: the hardware was read for the first time, and then the
// records that the last process left.
type Started struct {
	Node    inventory.Node
	Records []prepare.HeldPartition
}

// Found is a node that the source found changed, and the records as they were after
// it. It was read at some moment while claims were being prepared.
type Found struct {
	Node    inventory.Node
	Records []prepare.HeldPartition
}

// Reread answers [ReadAgain]: the node was read between two looks at the records. After
// has also, without instances, the partitions that were released since Before: one may
// have been made and removed in between.
type Reread struct {
	Node          inventory.Node
	Before, After []prepare.HeldPartition
}

// ClaimsChanged says that claims were prepared or unprepared: a partition that was
// lost may exist again, or be nobody's any more.
type ClaimsChanged struct{}

// GatesLearned is what the API server said of the fields that it keeps.
type GatesLearned struct{ Gates Gates }

// FieldsDropped says that the API server dropped fields of published devices after
// all, as it was restarted with these feature gates off.
type FieldsDropped struct{ Features []string }

// Published answers [Publish]. Err is nil if the helper took the devices.
type Published struct{ Err error }

// Stop asks the driver to end: with context.Canceled because it was told to, or with
// the reason why it cannot go on.
type Stop struct{ Err error }

func (Started) event()       {}
func (Found) event()         {}
func (Reread) event()        {}
func (ClaimsChanged) event() {}
func (GatesLearned) event()  {}
func (FieldsDropped) event() {}
func (Published) event()     {}
func (Stop) event()          {}

// Effect is something to do: one of the types below that ask for it.
type Effect interface{ effect() }

// Show makes the view what everybody sees, and reports problems that are new in it.
type Show struct{ View View }

// ReadAgain reads the records, the hardware, and the records again. [Reread] is the
// next event then. No effect comes after it.
type ReadAgain struct{}

// Reconcile brings what the last process left on the node in line with the view.
type Reconcile struct{}

// Repair brings prepared claims in line with another version of the NVIDIA driver.
type Repair struct{ From, To string }

// RenewStatus writes the status of all prepared claims.
type RenewStatus struct{}

// Publish hands the devices to the helper and answers with [Published]. It may take
// until the helper is stopped, and nothing else waits for it.
type Publish struct{ Slices []devicemodel.Slice }

// Warn writes a Kubernetes event about the node.
type Warn struct{ Reason, Message string }

// End ends the driver.
type End struct{ Err error }

func (Show) effect()        {}
func (ReadAgain) effect()   {}
func (Reconcile) effect()   {}
func (Repair) effect()      {}
func (RenewStatus) effect() {}
func (Publish) effect()     {}
func (Warn) effect()        {}
func (End) effect()         {}

// Feature gates of the API server (k8s.io/kubernetes/pkg/features). Where one is off
// the API server drops the fields it is for and accepts the rest.
const (
	PartitionsGate = "DRAPartitionableDevices"
	SharesGate     = "DRAConsumableCapacity"
)

// Gates says which fields of a device the API server keeps.
type Gates struct {
	// Partitions is true if it keeps counters: without them overlapping devices
	// would be handed out. Shares is true if it keeps consumable capacity.
	Partitions, Shares bool
}

// without is what is left once some feature gates turned out to be off.
func (g Gates) without(off []string) Gates {
	return Gates{
		Partitions: g.Partitions && !slices.Contains(off, PartitionsGate),
		Shares:     g.Shares && !slices.Contains(off, SharesGate),
	}
}

func warnOff(reason, what, gate string) Warn {
	return Warn{Reason: reason, Message: fmt.Sprintf("%s are not offered: the API server's feature gate %s is off; turn it on and restart the driver", what, gate)}
}
