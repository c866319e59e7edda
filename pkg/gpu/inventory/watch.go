package inventory

import (
	"context"
	"reflect"
	"slices"
	"time"
)

// Watch implements [Source]. It reads at each poll, and when NVML reports events
// (an XID, a change of the MIG layout) where it does so. An XID is reported before
// the hardware is read.
func (n *NVML) Watch(ctx context.Context, changed func(Node)) {
	ticker := time.NewTicker(n.poll)
	defer ticker.Stop()
	events := &eventListener{}
	defer func() { events.stop() }()

	var last *Node
	polled := true
	for {
		if n.hardwareChanged() {
			// The listener's Init would keep NVML from looking for GPUs anew.
			events.stop()
		}
		node, news, err := n.look(ctx, last)
		if err != nil {
			return
		}
		if news {
			changed(node)
			last = &node
		}
		if key := eventKey(node); events.key != key || polled && events.failed() {
			events.stop()
			events = n.listen(ctx, key)
			if events.active() {
				// What happened between the snapshot and now woke nobody.
				polled = false
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			polled = true
		case <-events.wake:
			polled = false
			last = n.burst(ctx, events.wake, last, changed)
		}
	}
}

// look reads the node, and says whether it differs from what is known of it: what
// Watch reported last, or what Snapshot returned since.
func (n *NVML) look(ctx context.Context, last *Node) (node Node, news bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked = nil
	if node, err = n.snapshot(ctx); err != nil {
		return node, false, err
	}
	news = last == nil || !reflect.DeepEqual(*last, node) || asked != nil && !reflect.DeepEqual(*asked, node)
	return node, news, nil
}

// One change of a GPU comes with several events, and a node that makes partitions
// has many. One reading shows what all of them changed: it waits until there was no
// event for quietTime, but at most burstTime.
const (
	quietTime = 50 * time.Millisecond
	burstTime = 500 * time.Millisecond
)

// burst waits until a burst of events is over. The XIDs among them are reported at
// once: reading a GPU that has just failed may take long. It returns the last node
// that was reported.
func (n *NVML) burst(ctx context.Context, wake <-chan struct{}, last *Node, changed func(Node)) *Node {
	over := time.NewTimer(burstTime)
	defer over.Stop()
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		if node := n.withXIDs(*last); !reflect.DeepEqual(*last, node) {
			changed(node)
			last = &node
		}
		select {
		case <-ctx.Done():
			return last
		case <-over.C:
			return last
		case <-quiet.C:
			return last
		case <-wake:
			quiet.Reset(quietTime)
		}
	}
}

// withXIDs is a node with the XIDs that are known now.
func (n *NVML) withXIDs(node Node) Node {
	node.GPUs = slices.Clone(node.GPUs)
	n.xids.fill(node.GPUs)
	return node
}

// hardwareChanged says whether GPUs came or went at the kernel driver since NVML
// was initialised.
func (n *NVML) hardwareChanged() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.initialized && !slices.Equal(n.bound, n.boundAddresses())
}
