package driver

import (
	"context"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
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
		seen := d.seen.Load()
		report := d.health(seen.Model, time.Now())
		if d.Source.Current() {
			select {
			case reports <- report:
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-seen.replaced:
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// health returns the health of all devices.
func (d *Driver) health(model *devicemodel.Model, now time.Time) kubeletplugin.DeviceHealthReport {
	var report kubeletplugin.DeviceHealthReport
	for _, device := range model.Devices {
		health := kubeletplugin.DeviceHealth{
			PoolName: d.config.NodeName, DeviceName: device.API.Name,
			Health: kubeletplugin.HealthStatusHealthy, LastUpdated: now, HealthCheckTimeout: 3 * healthInterval,
		}
		if device.Problem != "" {
			health.Health, health.Message = kubeletplugin.HealthStatusUnhealthy, device.Problem
		}
		report.Devices = append(report.Devices, health)
	}
	return report
}
