package exporter

import (
	"slices"
	"strconv"
	"time"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// holdings is one answer of the ownership service, by device.
type holdings struct {
	owners   []ownership.Owner
	byDevice map[string]*attribution
}

// attribution says who holds and uses one device. It is never changed.
type attribution struct {
	// owners hold the device, or look at it with admin access.
	owners []*ownership.Owner
	// users are the containers that use it.
	users []user
	// alone is set if nobody else can be using the device.
	alone *user
	// changed is when it became so. aloneSince is when alone became who it is, or nobody:
	// of a device that several use, those may have changed since.
	changed, aloneSince time.Time
}

// user is a container that uses a device, by one claim or by several.
type user struct {
	consumer  *ownership.Consumer
	container *ownership.Container
	owners    []*ownership.Owner
}

// nobody is the attribution of a device that was never held.
var nobody = &attribution{}

// forgetReleased is how long the time of a device's release is remembered. Samples are
// never that old.
const forgetReleased = time.Minute

// newHoldings sorts owners by device. A device whose owners are as before keeps its
// attribution; all others have changed at that time. If all are as before, so are the
// holdings.
func newHoldings(before *holdings, s ownership.Snapshot, at time.Time) *holdings {
	h := &holdings{owners: s.Owners, byDevice: map[string]*attribution{}}
	if before != nil {
		if s.Problem != "" {
			h.owners = keepConsumers(before.owners, s.Owners)
		}
		if ownership.Equal(before.owners, h.owners) {
			return before
		}
	}
	held := map[string][]*ownership.Owner{}
	for i := range h.owners {
		key := deviceOfOwner(&h.owners[i])
		held[key] = append(held[key], &h.owners[i])
	}
	for key, owners := range held {
		h.byDevice[key] = newAttribution(owners, at)
	}
	if before == nil {
		return h
	}
	for key, now := range h.byDevice {
		now.follow(before.byDevice[key])
	}
	for key, old := range before.byDevice {
		now, ok := h.byDevice[key]
		switch {
		case ok && slices.EqualFunc(old.owners, now.owners, (*ownership.Owner).EqualTo):
			h.byDevice[key] = old
		case !ok && len(old.owners) > 0:
			h.byDevice[key] = newAttribution(nil, at)
			h.byDevice[key].follow(old)
		case !ok && at.Sub(old.changed) < forgetReleased:
			h.byDevice[key] = old
		}
	}
	return h
}

// keepConsumers fills in the last known consumers of claims that are still held and
// whose pods are not known at the moment: the service says that it lacks some.
func keepConsumers(before, now []ownership.Owner) []ownership.Owner {
	known := map[ownership.Key][]ownership.Consumer{}
	for i := range before {
		known[before[i].Key()] = before[i].Consumers
	}
	kept := make([]ownership.Owner, len(now))
	for i, o := range now {
		if len(o.Consumers) == 0 {
			o.Consumers = known[o.Key()]
		}
		kept[i] = o
	}
	return kept
}

// deviceOfOwner is what a device is found by: its UUID or, for a partition whose UUID
// the owner does not have, its place.
func deviceOfOwner(o *ownership.Owner) string {
	d := &o.Device
	if d.UUID == "" && d.ParentUUID != "" && d.GPUInstanceID != nil {
		return placeOf(d.ParentUUID, *d.GPUInstanceID)
	}
	return d.UUID
}

func placeOf(gpu string, instance int) string { return gpu + "/" + strconv.Itoa(instance) }

// of is who holds a device. It is nobody's before the first answer.
func (h *holdings) of(d *gpumetrics.Device) *attribution {
	if h == nil {
		return nobody
	}
	a := h.byDevice[d.UUID]
	if d.GPUInstanceID != nil && (a == nil || len(a.owners) == 0) {
		if b := h.byDevice[placeOf(d.GPU.UUID, *d.GPUInstanceID)]; b != nil {
			return b
		}
	}
	if a == nil {
		return nobody
	}
	return a
}

// follow takes over since when the same container, or none, has been alone with the
// device, from the attribution before; nil for that of nobody.
func (a *attribution) follow(before *attribution) {
	if before == nil {
		before = nobody
	}
	if (a.alone == nil) != (before.alone == nil) {
		return
	}
	if a.alone == nil || a.alone.container.Name == before.alone.container.Name && a.alone.consumer.UID == before.alone.consumer.UID {
		a.aloneSince = before.aloneSince
	}
}

func newAttribution(owners []*ownership.Owner, at time.Time) *attribution {
	a := &attribution{owners: owners, changed: at, aloneSince: at}
	unknown := false
	type container struct{ pod, name string }
	index := map[container]int{}
	for _, o := range owners {
		if o.AdminAccess {
			continue
		}
		// A claim is held whatever pods are known: its pod may be about to appear.
		unknown = unknown || len(o.Consumers) == 0
		for i := range o.Consumers {
			consumer := &o.Consumers[i]
			for _, c := range using(consumer) {
				key := container{consumer.Namespace + "/" + consumer.Name + "/" + string(consumer.UID), c.Name}
				n, ok := index[key]
				if !ok {
					n = len(a.users)
					index[key] = n
					a.users = append(a.users, user{consumer: consumer, container: c})
				}
				a.users[n].owners = append(a.users[n].owners, o)
			}
		}
	}
	if len(a.users) == 1 && !unknown {
		a.alone = &a.users[0]
	}
	return a
}

// using are the containers of a pod that use its device: until others have started, its
// init containers and sidecars while they run, and then the others for good. A device is
// its pod's before the pod starts, too, and until it has ended.
func using(consumer *ownership.Consumer) []*ownership.Container {
	if consumer.State == ownership.Gone {
		return nil
	}
	var all, lasting, running []*ownership.Container
	initializing, started := false, false
	for i := range consumer.Containers {
		c := &consumer.Containers[i]
		all = append(all, c)
		if c.ID != "" {
			running = append(running, c)
		}
		switch c.Kind {
		case ownership.InitContainer:
			initializing = true
			continue
		case ownership.Sidecar:
			// It starts among the init containers.
		default:
			started = started || c.Started
		}
		lasting = append(lasting, c)
	}
	switch {
	case len(lasting) == 0:
		return all
	case initializing && !started:
		return running
	}
	return lasting
}
