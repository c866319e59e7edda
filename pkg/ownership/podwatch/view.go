package podwatch

import (
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// view is what one source says of the node's pods. What it said last is kept when
// the source is lost.
type view struct {
	name string

	mu   sync.Mutex
	pods podsByUID
	// complete is true once the source has said all since it was begun with. live is
	// true while it is also heard; problem says why not.
	complete, live bool
	problem        string
	// verified is when the source was last heard.
	verified time.Time
	// events counts changes; touched is the count at the last one of a pod, also of
	// one that is gone, since the last merge.
	events  uint64
	touched map[types.UID]uint64
}

// reading is a view at one moment. The map is a copy, the pods are shared.
type reading struct {
	name     string
	pods     podsByUID
	live     bool
	problem  string
	verified time.Time
}

func newView(name string) *view { return &view{name: name, pods: podsByUID{}} }

// merging returns a view of which merge may be used.
func (v *view) merging() *view {
	v.touched = map[types.UID]uint64{}
	return v
}

func (v *view) read() reading {
	v.mu.Lock()
	defer v.mu.Unlock()
	pods := make(podsByUID, len(v.pods))
	for uid, pod := range v.pods {
		pods[uid] = pod
	}
	return reading{name: v.name, pods: pods, live: v.live, problem: v.problem, verified: v.verified}
}

// heard notes that the source speaks. The caller holds v.mu.
func (v *view) heard() {
	v.verified = time.Now()
	v.live, v.problem = v.complete, ""
}

// confirm notes that the source has nothing new to say.
func (v *view) confirm() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard()
}

// replace takes over all that there is. The map is the view's from then on.
func (v *view) replace(pods podsByUID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods, v.complete = pods, true
	clear(v.touched)
	v.heard()
}

// set takes over one pod, or that it is not there if pod is nil. It returns whether
// that is new.
func (v *view) set(uid types.UID, pod *corev1.Pod) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.events++
	if v.touched != nil {
		v.touched[uid] = v.events
	}
	v.heard()
	return v.put(uid, pod)
}

func (v *view) put(uid types.UID, pod *corev1.Pod) bool {
	before, there := v.pods[uid]
	switch {
	case pod == nil && !there:
		return false
	case pod == nil:
		delete(v.pods, uid)
		return true
	case there && reflect.DeepEqual(before, pod):
		return false
	}
	v.pods[uid] = pod
	return true
}

// mark returns the moment from which changes are newer than a list that is asked for
// after it.
func (v *view) mark() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.events
}

// merge takes over a list of all pods that was asked for after the mark. What changed
// since then is as new as the list, or newer, and stays.
func (v *view) merge(mark uint64, pods podsByUID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for uid, pod := range pods {
		if v.touched[uid] <= mark {
			v.put(uid, pod)
		}
	}
	for uid := range v.pods {
		if pods[uid] == nil && v.touched[uid] <= mark {
			delete(v.pods, uid)
		}
	}
	for uid, at := range v.touched {
		if at <= mark {
			delete(v.touched, uid)
		}
	}
	v.heard()
}

// lose notes that the source is not heard any more.
func (v *view) lose(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.live, v.problem = false, err.Error()
}

// end notes that the source is not listened to any more. When it is again, what it
// said before does not count.
func (v *view) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.live, v.complete, v.problem = false, false, ""
}
