package exporter

import (
	"slices"
	"time"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// accountKey is whom time and energy of a GPU is charged to: a claim's hold, for as
// long as the same pod has it. The zero owner is nobody, who has the GPU's rest.
type accountKey struct {
	gpu   string
	owner ownership.Key
	claim ownership.ClaimRef
	pod   podKey
	// workload has a kind and a name alone, as labels do.
	workload ownership.Workload
}

type podKey struct{ namespace, name, uid string }

// account is what was charged so far. It only grows.
type account struct {
	key    accountKey
	device ownership.Device
	gpu    gpumetrics.GPUIdentity

	seconds, joules float64
	// timed and metered say whether seconds and joules were measured at all.
	timed, metered bool
	// holds is how many holds that have not ended it has; ended is when the last did.
	holds int
	ended time.Time
}

// nobody says whether it is the GPU's rest.
func (a *account) nobody() bool { return a.key.owner == ownership.Key{} }

// hold is the part of a GPU that somebody holds for some time. An account has
// several, one after the other, if it ended and came back.
type hold struct {
	account *account
	owner   *ownership.Owner
	// from is when it began, to when it ended, zero for one that has not.
	from, to time.Time
}

// gpuCharge is the charging of one GPU.
type gpuCharge struct {
	uuid string
	// rest is what nobody holds.
	rest *account
	// holds are those that have not been charged to their end, in the order of the
	// owners at the time when each began.
	holds []hold
	// timed is when its time was charged last, metered when its energy was and its
	// counter was at millijoules; zero before the first.
	timed, metered time.Time
	millijoules    uint64
}

// charger keeps the accounts.
type charger struct {
	retain   time.Duration
	accounts map[accountKey]*account
	gpus     map[string]*gpuCharge
	// changed is when the owners changed last; zero as long as they are not known.
	changed time.Time
}

func newCharger(retain time.Duration) *charger {
	return &charger{retain: retain, accounts: map[accountKey]*account{}, gpus: map[string]*gpuCharge{}}
}

func (c *charger) gpu(uuid string) *gpuCharge {
	g := c.gpus[uuid]
	if g == nil {
		g = &gpuCharge{uuid: uuid}
		c.gpus[uuid] = g
	}
	return g
}

func (c *charger) account(key accountKey, device ownership.Device) *account {
	a := c.accounts[key]
	if a == nil {
		a = &account{key: key, device: device, gpu: gpumetrics.GPUIdentity{UUID: key.gpu}}
		c.accounts[key] = a
	}
	return a
}

// setOwners notes who holds what from a time on. Owners that are new began when their
// claims were prepared, unless that was before the previous change.
func (c *charger) setOwners(owners []ownership.Owner, at time.Time) {
	held := map[string]map[accountKey]*ownership.Owner{}
	order := map[string][]accountKey{}
	for i := range owners {
		o := &owners[i]
		gpu := o.Device.GPUUUID()
		if o.AdminAccess || gpu == "" {
			continue
		}
		key := c.gpu(gpu).goingOn(keyOf(gpu, o))
		if held[gpu] == nil {
			held[gpu] = map[accountKey]*ownership.Owner{}
		}
		if held[gpu][key] == nil {
			held[gpu][key] = o
			order[gpu] = append(order[gpu], key)
		}
	}
	for uuid, g := range c.gpus {
		c.setHolds(g, order[uuid], held[uuid], at)
	}
	c.changed = at
}

func (c *charger) setHolds(g *gpuCharge, order []accountKey, held map[accountKey]*ownership.Owner, at time.Time) {
	going, staying := map[ownership.Key]bool{}, map[accountKey]bool{}
	for i := range g.holds {
		h := &g.holds[i]
		if !h.to.IsZero() {
			continue
		}
		if o := held[h.account.key]; o != nil {
			h.owner = o
			h.account.device = o.Device
			staying[h.account.key] = true
			continue
		}
		h.to = at
		h.account.holds--
		if h.account.holds == 0 {
			h.account.ended = at
		}
		going[h.account.key.owner] = true
	}
	before := len(g.holds)
	for _, key := range order {
		if staying[key] {
			continue
		}
		o, from := held[key], at
		// A hold that goes on for another pod does so from the change on.
		if since := o.Since; !going[key.owner] && !since.IsZero() && since.Before(at) {
			from = latest(since, c.changed, g.timed)
		}
		a := c.account(key, o.Device)
		a.holds++
		a.ended = time.Time{}
		g.holds = append(g.holds, hold{account: a, owner: o, from: earliest(from, at)})
	}
	g.makeRoom(before, at)
}

// makeRoom ends holds that were seen to end with this change where those that began
// earlier leave no room for them: several changes may be seen at once.
func (g *gpuCharge) makeRoom(began int, at time.Time) {
	total, first, goOn := 0.0, at, map[ownership.Key]bool{}
	for _, h := range g.holds {
		if h.to.IsZero() {
			total += h.owner.Device.PartOfGPU()
		}
	}
	for _, h := range g.holds[began:] {
		first = earliest(first, h.from)
		goOn[h.account.key.owner] = true
	}
	for i := range g.holds[:began] {
		h := &g.holds[i]
		if h.to.Equal(at) && !goOn[h.account.key.owner] && total+h.owner.Device.PartOfGPU() > 1+tolerance {
			h.to = latest(first, h.from)
		}
	}
}

// goingOn is the key by which a hold is charged already if all that differs is that the
// pod's workload is not known any more: of a pod that has gone little is.
func (g *gpuCharge) goingOn(key accountKey) accountKey {
	if key.pod == (podKey{}) || key.workload != (ownership.Workload{}) {
		return key
	}
	for _, h := range g.holds {
		known := h.account.key
		if known.workload = (ownership.Workload{}); h.to.IsZero() && known == key {
			return h.account.key
		}
	}
	return key
}

// tolerance is for sums of fractions.
const tolerance = 1e-9

// keyOf is the account of an owner. The pod is part of it if there is one alone.
func keyOf(gpu string, o *ownership.Owner) accountKey {
	key := accountKey{gpu: gpu, owner: o.Key(), claim: o.Claim}
	consumers := ownership.Present(o.Consumers)
	for i := range consumers {
		w := ownership.Workload{}
		if consumers[i].Workload != nil {
			w.Kind, w.Name = consumers[i].Workload.Kind, consumers[i].Workload.Name
		}
		if i == 0 {
			key.workload = w
		} else if key.workload != w {
			key.workload = ownership.Workload{}
			break
		}
	}
	if len(consumers) == 1 {
		c := &consumers[0]
		key.pod = podKey{c.Namespace, c.Name, string(c.UID)}
	}
	return key
}

// sweep forgets GPUs that are not there any more and, after some time, accounts that
// have ended.
func (c *charger) sweep(there map[string]bool, now time.Time) {
	for uuid, g := range c.gpus {
		if there[uuid] || now.Sub(g.timed) <= maxGap {
			continue
		}
		// It is not known whether it is there. What is held of it remains.
		g.timed, g.metered = time.Time{}, time.Time{}
		g.settle()
		if g.rest != nil && g.rest.holds > 0 {
			g.rest.holds, g.rest.ended = 0, now
		}
		if len(g.holds) == 0 && g.rest == nil {
			delete(c.gpus, uuid)
		}
	}
	for key, a := range c.accounts {
		if a.holds == 0 && now.Sub(a.ended) > c.retain {
			delete(c.accounts, key)
			if g := c.gpus[key.gpu]; g != nil && g.rest == a {
				g.rest = nil
			}
		}
	}
}

// settle drops holds that have been charged to their end.
func (g *gpuCharge) settle() {
	charged := g.timed
	if !g.metered.IsZero() {
		charged = earliest(charged, g.metered)
	}
	g.holds = slices.DeleteFunc(g.holds, func(h hold) bool {
		return !h.to.IsZero() && (charged.IsZero() || !h.to.After(charged))
	})
}

func latest(times ...time.Time) time.Time {
	result := times[0]
	for _, t := range times[1:] {
		if t.After(result) {
			result = t
		}
	}
	return result
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
