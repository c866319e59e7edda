package exporter

import (
	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// usage is what a container's processes use of one device.
type usage struct {
	// bytes is their memory.
	bytes uint64
	// busy is the part of the device's time in which it worked for them, 0 to 1, if
	// measured.
	busy     float64
	measured bool
}

// deviceUsage is what was measured of a device by container id.
type deviceUsage struct {
	containers map[string]usage
	// complete is true if a container that is not listed has no process on the device.
	complete bool
	// measurable is true if it can be told how busy an idle container kept the device:
	// not at all.
	measurable bool
}

// measure sums up the processes on a device by their containers.
func measure(d *gpumetrics.Device, containerOf func(pid int) (string, bool)) deviceUsage {
	u := deviceUsage{
		containers: map[string]usage{}, complete: d.Processes != nil,
		measurable: d.Kind == gpumetrics.GPU && d.SMUtil != nil,
	}
	for _, p := range d.Processes {
		id, ok := containerOf(p.PID)
		u.complete = u.complete && ok
		if id == "" {
			continue
		}
		c := u.containers[id]
		c.bytes += p.UsedBytes
		if p.SMUtil != nil {
			c.busy += *p.SMUtil
			c.measured = true
		}
		u.containers[id] = c
	}
	return u
}

// of is what a container uses, if that can be told. One that does not run uses nothing
// that can be measured.
func (u deviceUsage) of(containerID string) (usage, bool) {
	if containerID == "" {
		return usage{}, false
	}
	if c, ok := u.containers[containerID]; ok {
		return c, true
	}
	return usage{measured: u.measurable}, u.complete
}

// busyOwner is how busy the containers of an owner kept the device, 0 to 1. One that
// uses it by several claims counts for each in equal parts.
func (u deviceUsage) busyOwner(a *attribution, key ownership.Key) (busy float64, ok bool) {
	for i := range a.users {
		user := &a.users[i]
		for _, o := range user.owners {
			if o.Key() != key {
				continue
			}
			if c, known := u.of(user.container.ID); known && c.measured {
				busy += c.busy / float64(len(user.owners))
				ok = true
			}
		}
	}
	return busy, ok
}
