package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/e2e/standalone"
)

// warmUp is how many rounds are not measured.
const warmUp = 5

// timings are how long each call took.
type timings struct {
	prepare, unprepare []time.Duration
	// plugin and caller are how long processors were busy with preparing all claims:
	// for the plugin, and for this program, which stands for the kubelet and the API
	// server.
	plugin, caller time.Duration
}

// busy is how long processors are busy with preparing one claim.
func (t timings) busy(total time.Duration) time.Duration {
	return (total / time.Duration(len(t.prepare))).Round(10 * time.Microsecond)
}

// bench measures one running plugin.
type bench struct {
	*standalone.Plugin
	claims int
}

// measure prepares and unprepares claims for the devices at once, one for each,
// and that rounds times. Each claim is a call of its own, as the kubelet makes one
// per pod.
func (b *bench) measure(ctx context.Context, rounds int, devices []resourceapi.Device) (timings, error) {
	var result timings
	for round := range rounds + warmUp {
		claims := make([]*resourceapi.ResourceClaim, len(devices))
		for i, device := range devices {
			b.claims++
			var err error
			if claims[i], err = b.Allocate(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", b.claims)), device); err != nil {
				return result, err
			}
		}
		plugin, caller, err := b.processorTimes()
		if err != nil {
			return result, err
		}
		prepared, err := together(claims, func(c *resourceapi.ResourceClaim) error { return b.Prepare(ctx, c) })
		if err != nil {
			return result, err
		}
		pluginAfter, callerAfter, err := b.processorTimes()
		if err != nil {
			return result, err
		}
		unprepared, err := together(claims, func(c *resourceapi.ResourceClaim) error { return b.Unprepare(ctx, c) })
		if err != nil {
			return result, err
		}
		if round < warmUp {
			continue
		}
		result.plugin += pluginAfter - plugin
		result.caller += callerAfter - caller
		result.prepare = append(result.prepare, prepared...)
		result.unprepare = append(result.unprepare, unprepared...)
	}
	return result, nil
}

func (b *bench) processorTimes() (plugin, caller time.Duration, err error) {
	if plugin, err = b.ProcessorTime(); err == nil {
		caller, err = standalone.OwnProcessorTime()
	}
	return plugin, caller, err
}

// together makes all calls at once and returns how long each took.
func together(claims []*resourceapi.ResourceClaim, call func(*resourceapi.ResourceClaim) error) ([]time.Duration, error) {
	took, errs := make([]time.Duration, len(claims)), make([]error, len(claims))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() {
			<-start
			began := time.Now()
			errs[i] = call(c)
			took[i] = time.Since(began)
		})
	}
	close(start)
	wg.Wait()
	return took, errors.Join(errs...)
}

// wholeGPUs are the published devices that are a GPU.
func (b *bench) wholeGPUs() []resourceapi.Device {
	var whole []resourceapi.Device
	for _, d := range b.Devices() {
		if text(d, "type") == "gpu" {
			whole = append(whole, d)
		}
	}
	return whole
}

// partitions are the smallest partition of each GPU: the first that is published.
func (b *bench) partitions() []resourceapi.Device {
	var smallest []resourceapi.Device
	seen := map[string]bool{}
	for _, d := range b.Devices() {
		if gpu := text(d, "parentUUID"); text(d, "type") == "mig" && !seen[gpu] {
			seen[gpu] = true
			smallest = append(smallest, d)
		}
	}
	return smallest
}

func text(d resourceapi.Device, attribute resourceapi.QualifiedName) string {
	if value := d.Attributes[attribute].StringValue; value != nil {
		return *value
	}
	return ""
}
