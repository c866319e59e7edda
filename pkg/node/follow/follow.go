// Package follow decides what a node's driver does about what happens to it: the
// hardware changed, the cluster said which fields it keeps, devices could not be
// published, the driver is told to stop.
//
// It is one pure function. [Step] takes the [State] and an [Event] and returns the
// next State and the [Effect]s to be done, in order. Nothing here does I/O, reads a
// clock, locks or waits. The driver has one goroutine that owns the State, feeds
// Step one event after the other, and does the effects of one before it takes the
// next. So a table of events and effects says everything there is to say about the
// order in which things happen: see the tests.
//
// What always holds:
//
//   - The State changes only by an event. What callers of the driver see is the last
//     [Show], which always has the model of the State's node.
//   - Nothing is published before the gates are known, nor the same twice in a row,
//     unless publishing it failed. One publication at a time is under way; what is
//     built meanwhile is published once it is over, and only the latest.
//   - The answer to [ReadAgain] is the next event: what the source found meanwhile is
//     taken over after it, and not undone by an older reading.
//   - Every reading is taken over in the same way, whoever asked for it. Where it
//     shows another NVIDIA driver, the prepared claims are repaired.
//   - After [End] there are no effects.
package follow

import (
	"errors"
	"reflect"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// State is what the driver knows. [New] makes the first one.
type State struct {
	policy devicemodel.Policy
	// gates is nil until the cluster has said what it keeps of a device.
	gates *Gates
	// view is the last one shown, and owned says whose its partitions are.
	view  View
	owned partitions
	// published are the devices that the helper has or, while publishing is true, is
	// being given; nil if that failed.
	published  []devicemodel.Slice
	publishing bool
	ended      bool
}

// New is the state of a driver that has not read its hardware yet. The policy is the
// administrator's.
func New(policy devicemodel.Policy) State {
	return State{policy: policy, view: View{Model: devicemodel.Build(inventory.Node{}, policy)}}
}

// View is what everybody else sees of the state. It must not be modified.
func (s State) View() View { return s.view }

// View is the hardware as it was last read, and the devices that it has.
type View struct {
	Node  inventory.Node
	Model *devicemodel.Model
}

var errReplaced = errors.New("the NVIDIA driver was replaced, and only a new process can load its library")

// Step says what comes of an event.
func Step(s State, e Event) (State, []Effect) {
	if s.ended {
		return s, nil
	}
	switch e := e.(type) {
	case Started:
		s, show := s.show(e.Node, compare(e.Node, nil, e.Records))
		return s, []Effect{show, Reconcile{}, RenewStatus{}}
	case Found:
		owned := compare(e.Node, nil, e.Records)
		if !e.Node.RestartNeeded && s.surprising(e.Node, owned) {
			return s, []Effect{ReadAgain{}}
		}
		owned.lost = s.stillLost(e.Node, owned)
		return s.takeOver(e.Node, owned)
	case Reread:
		return s.takeOver(e.Node, compare(e.Node, e.Before, e.After))
	case ClaimsChanged:
		if len(s.owned.lost) > 0 {
			return s, []Effect{ReadAgain{}}
		}
	case GatesLearned:
		return s.setGates(e.Gates)
	case FieldsDropped:
		if s.gates != nil {
			if left := s.gates.without(e.Features); left != *s.gates {
				return s.setGates(left)
			}
		}
	case Published:
		return s.afterPublishing(e.Err)
	case Stop:
		return s.end(e.Err)
	}
	return s, nil
}

func (s State) end(err error) (State, []Effect) {
	s.ended = true
	return s, []Effect{End{Err: err}}
}

// takeOver makes a reading what everybody sees, publishes it, and brings the claims
// in line with another NVIDIA driver.
func (s State) takeOver(node inventory.Node, owned partitions) (State, []Effect) {
	if node.RestartNeeded {
		return s.end(errReplaced)
	}
	before, now := s.view.Node.DriverVersion.Raw, node.DriverVersion.Raw
	s, show := s.show(node, owned)
	s, effects := s.publish([]Effect{show})
	if now != before && now != "" {
		effects = append(effects, Repair{From: before, To: now}, RenewStatus{})
	}
	return s, effects
}

// show builds the devices of a node anew.
func (s State) show(node inventory.Node, owned partitions) (State, Effect) {
	policy := s.policy
	if s.gates != nil {
		policy.NoPartitions = policy.NoPartitions || !s.gates.Partitions
		policy.NoShares = policy.NoShares || !s.gates.Shares
	}
	policy.Held, policy.Missing = owned.held(), owned.missing()
	s.owned = owned
	s.view = View{Node: node, Model: devicemodel.Build(owned.foreignOnly(node), policy)}
	return s, Show{View: s.view}
}

// publish has the devices published after other effects, if that is possible and they
// are not yet.
func (s State) publish(effects []Effect) (State, []Effect) {
	if s.gates == nil || s.publishing {
		return s, effects
	}
	slices := s.view.Model.Slices()
	if reflect.DeepEqual(slices, s.published) {
		return s, effects
	}
	s.published, s.publishing = slices, true
	return s, append(effects, Publish{Slices: slices})
}

// afterPublishing publishes what was built meanwhile. Devices that could not be
// published wait for the next event that would publish, changed or not.
func (s State) afterPublishing(err error) (State, []Effect) {
	s.publishing = false
	if err == nil || !reflect.DeepEqual(s.view.Model.Slices(), s.published) {
		return s.publish(nil)
	}
	s.published = nil
	return s, nil
}

// setGates builds the devices with what the cluster keeps, and publishes them.
func (s State) setGates(found Gates) (State, []Effect) {
	var effects []Effect
	if !found.Partitions && !s.policy.NoPartitions {
		effects = append(effects, warnOff("PartitionsNotOffered", "MIG partitions", PartitionsGate))
	}
	if !found.Shares && !s.policy.NoShares {
		effects = append(effects, warnOff("SharesNotOffered", "Shares of GPUs", SharesGate))
	}
	s.gates = &found
	s, show := s.show(s.view.Node, s.owned)
	return s.publish(append(effects, show))
}
