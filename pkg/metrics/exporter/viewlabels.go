package exporter

import (
	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// deviceIdentity is all that the labels of a device's series are made of.
type deviceIdentity struct {
	uuid, profile   string
	instance, minor int
	gpu             gpumetrics.GPUIdentity
	texts           string
	attribution     *attribution
}

func (e *Exporter) identify(v *view) deviceIdentity {
	d := &v.device
	id := deviceIdentity{uuid: d.UUID, profile: d.Profile, instance: -1, minor: -1, gpu: d.GPU, attribution: v.attribution}
	if d.GPUInstanceID != nil {
		id.instance = *d.GPUInstanceID
	}
	if d.GPU.Minor != nil {
		id.minor = *d.GPU.Minor
	}
	id.gpu.Minor = nil
	for i, f := range e.o.Fields {
		if f.Type == gpumetrics.Label && i < len(d.Values) && d.Values[i].Present {
			id.texts += f.Name + "\x00" + d.Values[i].Text + "\x00"
		}
	}
	return id
}

// viewLabels are the labels of a device's series.
type viewLabels struct {
	fields labelSet
	users  []userLabels
	infos  []labelSet
}

// userLabels are those of a container that uses the device: of what it uses, and of
// the limits by its claims.
type userLabels struct {
	measured labelSet
	limits   []labelSet
}

func (e *Exporter) viewLabels(v *view) *viewLabels {
	known := &viewLabels{fields: e.deviceLabels(&v.device, v.attribution).set()}
	for i := range v.attribution.users {
		known.users = append(known.users, e.userLabels(&v.device, &v.attribution.users[i]))
	}
	for _, o := range v.attribution.owners {
		known.infos = append(known.infos, e.infoLabels(o, &v.device)...)
	}
	return known
}

func (e *Exporter) userLabels(d *gpumetrics.Device, u *user) userLabels {
	of := func(o *ownership.Owner) labelSet {
		l := e.gpuLabels(&d.GPU)
		if o != nil {
			l.hold(o)
		}
		l[labelDeviceUUID] = d.UUID
		l.place(d.Profile, d.GPUInstanceID)
		e.consumerLabels(l, u.consumer)
		l[labelContainer] = u.container.Name
		return l.set()
	}
	var known userLabels
	for _, o := range u.owners {
		known.limits = append(known.limits, of(o))
	}
	// What a container uses by several claims cannot be told apart.
	known.measured = known.limits[0]
	if len(u.owners) > 1 {
		known.measured = of(nil)
	}
	return known
}

// infoLabels are one set for each container that uses a device by a claim, or one for a
// claim that no pod uses. A device whose GPU was not read (nil) has fewer labels.
func (e *Exporter) infoLabels(o *ownership.Owner, d *gpumetrics.Device) []labelSet {
	var sets []labelSet
	add := func(c *ownership.Consumer, container string) {
		l := e.gpuLabels(&gpumetrics.GPUIdentity{UUID: o.Device.GPUUUID()})
		l.place(o.Device.Profile, o.Device.GPUInstanceID)
		if d != nil {
			l = e.gpuLabels(&d.GPU)
			l.place(d.Profile, d.GPUInstanceID)
		}
		l.hold(o)
		if c != nil {
			e.consumerLabels(l, c)
		}
		l[labelContainer] = container
		sets = append(sets, l.set())
	}
	for i := range o.Consumers {
		c := &o.Consumers[i]
		if c.State == ownership.Gone {
			continue
		}
		for _, container := range c.Containers {
			add(c, container.Name)
		}
		if len(c.Containers) == 0 {
			add(c, "")
		}
	}
	if len(sets) == 0 {
		add(nil, "")
	}
	return sets
}

// accountLabels are those of an account's counters, made anew when what they are made
// of has changed.
func (e *Exporter) accountLabels(a *account) labelSet {
	if a.labels != nil {
		return *a.labels
	}
	l := e.gpuLabels(&a.gpu)
	if !a.nobody() {
		l.place(a.device.Profile, a.device.GPUInstanceID)
		l.hold(&ownership.Owner{Device: a.device, Claim: a.key.claim, Request: a.key.owner.Request})
		if p := a.key.pod; p != (podKey{}) {
			l.pod(p.namespace, p.name, p.uid, nil)
		}
		l[labelWorkloadKind], l[labelWorkload] = a.key.workload.Kind, a.key.workload.Name
	}
	set := l.set()
	a.labels = &set
	return set
}
