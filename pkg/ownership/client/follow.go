package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	ownershipv1 "apportion.dev/apportion/api/ownership/v1"
	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/wire"
)

// follow watches the service over one connection until that fails or the context
// ends. heard says whether the service said anything.
func (c *Client) follow(ctx context.Context, changed func(ownership.Snapshot)) (heard bool, err error) {
	defer func() {
		if err != nil {
			err = c.wrap(err)
		}
	}()
	conn, err := c.connect()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(maxSilence, func() { cancel(errSilent) })
	defer silence.Stop()

	known := c.known()
	stream, err := ownershipv1.NewOwnershipClient(conn).Watch(ctx, &ownershipv1.WatchRequest{Instance: known.Instance, Generation: known.Generation})
	if err != nil {
		return false, cause(ctx, err)
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return heard, cause(ctx, err)
		}
		// What changed does takes time that is not the service's.
		silence.Stop()
		if known, err = apply(known, event); err != nil {
			c.resume = false
			return heard, err
		}
		heard, c.resume = true, true
		if c.heard(ctx, known) {
			changed(known)
		}
		silence.Reset(maxSilence)
	}
}

// known is what the service can send changes to.
func (c *Client) known() ownership.Snapshot {
	if !c.resume {
		return ownership.Snapshot{}
	}
	snapshot, _ := c.Current()
	return snapshot
}

// apply is what is known after an event. A change is only applied to a snapshot that
// the same process of the driver sent: the service starts with a snapshot unless it
// was asked by the name of its own instance.
func apply(known ownership.Snapshot, event *ownershipv1.WatchResponse) (ownership.Snapshot, error) {
	switch e := event.GetEvent().(type) {
	case *ownershipv1.WatchResponse_Snapshot:
		after, err := wire.SnapshotFromProto(e.Snapshot)
		if err == nil && (after.Instance == "" || after.Generation == 0) {
			err = errors.New("it sent a snapshot without an instance or generation")
		}
		return after, err
	case *ownershipv1.WatchResponse_Change:
		if known.Generation == 0 {
			return known, errors.New("it sent a change before a snapshot")
		}
		return wire.ApplyChange(known, e.Change)
	case *ownershipv1.WatchResponse_Verified:
		if known.Generation == 0 {
			return known, errors.New("it said that a snapshot is true before it sent one")
		}
		return wire.ApplyVerified(known, e.Verified)
	default:
		return known, fmt.Errorf("it sent an event that this version does not know (%T)", e)
	}
}

// cause is why a call ended, where this side ended it.
func cause(ctx context.Context, err error) error {
	if reason := context.Cause(ctx); errors.Is(reason, errSilent) {
		return reason
	}
	return err
}
