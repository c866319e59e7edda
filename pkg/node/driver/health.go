package driver

import (
	"context"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// healthInterval is how often health is sent again when nothing changed: well
// within the 30 s after which the kubelet takes it for unknown.
const healthInterval = 10 * time.Second

// WatchHealthStatus sends the health of every published device at once, after
// each change, and again well before the kubelet would take it for unknown. While
// reading the hardware hangs it sends nothing, so that it does become unknown.
func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	again := time.NewTicker(healthInterval)
	defer again.Stop()
	for {
		report, changed := d.health(time.Now())
		if d.Source.Current() {
			select {
			case reports <- report:
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// health returns the health of all devices, and a channel that is closed when it
// may have changed.
func (d *Driver) health(now time.Time) (kubeletplugin.DeviceHealthReport, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var report kubeletplugin.DeviceHealthReport
	for _, device := range d.model.Devices {
		health := kubeletplugin.DeviceHealth{
			PoolName: d.config.NodeName, DeviceName: device.API.Name,
			Health: kubeletplugin.HealthStatusHealthy, LastUpdated: now, HealthCheckTimeout: 3 * healthInterval,
		}
		if device.Problem != "" {
			health.Health, health.Message = kubeletplugin.HealthStatusUnhealthy, device.Problem
		}
		report.Devices = append(report.Devices, health)
	}
	return report, d.changed
}
