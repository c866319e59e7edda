package inventory

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/klog/v2"
)

// applicationXIDs are those that a faulty application causes by itself, after
// which the GPU is as good as before (NVIDIA's Xid catalog): graphics engine
// exception, memory page fault, stopped processing, preemptive cleanup, video
// processor exception, context switch timeout.
var applicationXIDs = []int{13, 31, 43, 45, 68, 109}

// noInstance is NVML's number for "no MIG instance".
const noInstance = ^uint32(0)

// xidLog holds the XIDs that nothing has cured, by the GPU's UUID. Events come in
// while the hardware is read, so it has a lock of its own.
type xidLog struct {
	ignored map[int]bool

	mu   sync.Mutex
	seen map[string]map[xidKey]bool
}

// xidKey is an XID that can be compared; instance is noInstance for the GPU.
type xidKey struct {
	code     int
	instance uint32
}

func newXIDLog(ignored []int) *xidLog {
	l := &xidLog{ignored: map[int]bool{}, seen: map[string]map[xidKey]bool{}}
	for _, code := range slices.Concat(applicationXIDs, ignored) {
		l.ignored[code] = true
	}
	return l
}

// add notes an XID and says whether it is one that counts.
func (l *xidLog) add(uuid string, key xidKey) bool {
	if l.ignored[key.code] {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[uuid] == nil {
		l.seen[uuid] = map[xidKey]bool{}
	}
	l.seen[uuid][key] = true
	return true
}

// forgetAll drops everything.
func (l *xidLog) forgetAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.seen)
}

// all is a copy of what was noted so far.
func (l *xidLog) all() map[string]map[xidKey]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[string]map[xidKey]bool, len(l.seen))
	for uuid, xids := range l.seen {
		seen[uuid] = maps.Clone(xids)
	}
	return seen
}

// forget drops XIDs of a GPU; what is noted meanwhile stays.
func (l *xidLog) forget(uuid string, cured map[xidKey]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range cured {
		delete(l.seen[uuid], key)
	}
	if len(l.seen[uuid]) == 0 {
		delete(l.seen, uuid)
	}
}

// cures is what one reading of the hardware found out about XIDs.
type cures struct {
	// driver is true if the driver was replaced or unloaded since the last reading.
	driver bool
	// unbound are the PCI addresses that left the driver since then.
	unbound []string
	// back are the UUIDs of GPUs that were lost before and are not now.
	back map[string]bool
	// instances are the UUIDs of GPUs whose MIG instances are all known.
	instances map[string]bool
}

// settle drops what a reading cured, out of what was noted before it began, and
// puts the rest into the GPUs.
func (l *xidLog) settle(logger klog.Logger, before map[string]map[xidKey]bool, gpus []GPU, c cures) {
	for uuid, xids := range before {
		i := slices.IndexFunc(gpus, func(gpu GPU) bool { return gpu.UUID == uuid })
		cured := map[xidKey]bool{}
		for key := range xids {
			// A GPU that is not there any more comes back anew.
			if i < 0 || c.cured(&gpus[i], key) {
				cured[key] = true
			}
		}
		if len(cured) > 0 {
			logger.Info("GPU errors are cured", "gpu", uuid, "xids", sortedXIDs(cured))
			l.forget(uuid, cured)
		}
	}
	l.fill(gpus)
}

func (c cures) cured(gpu *GPU, key xidKey) bool {
	if c.driver || c.back[gpu.UUID] || slices.Contains(c.unbound, gpu.PCIBusID) {
		return true
	}
	if key.instance == noInstance || !c.instances[gpu.UUID] {
		return false
	}
	return !slices.ContainsFunc(gpu.MIG.Instances, func(i MIGInstance) bool { return i.ID == int(key.instance) })
}

// fill puts the XIDs into the GPUs.
func (l *xidLog) fill(gpus []GPU) {
	seen := l.all()
	for i := range gpus {
		gpus[i].XIDs = sortedXIDs(seen[gpus[i].UUID])
	}
}

func sortedXIDs(keys map[xidKey]bool) []XID {
	sorted := slices.SortedFunc(maps.Keys(keys), func(a, b xidKey) int {
		// Those of the whole GPU come first: noInstance + 1 is 0.
		return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(a.instance+1, b.instance+1))
	})
	var xids []XID
	for _, key := range sorted {
		xid := XID{Code: key.code}
		if key.instance != noInstance {
			instance := int(key.instance)
			xid.GPUInstance = &instance
		}
		xids = append(xids, xid)
	}
	return xids
}
