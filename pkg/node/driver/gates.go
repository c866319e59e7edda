package driver

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/node/follow"
)

// learnGates finds out what the cluster keeps of a device. It tries until the API
// server answers or ctx ends.
func (d *Driver) learnGates(ctx context.Context) {
	logger := klog.FromContext(ctx)
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 7, Cap: 30 * time.Second}
	err := backoff.DelayWithReset(clock.RealClock{}, time.Hour).Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		found, err := d.askGates(ctx)
		if err != nil {
			logger.Error(err, "Devices are not published yet: the API server did not say which fields it keeps")
			return false, nil
		}
		send[follow.Event](ctx, d.happened, follow.GatesLearned{Gates: found})
		return true, nil
	})
	if err != nil {
		logger.V(3).Info("The driver stops before it published its devices", "reason", err)
	}
}

// askGates has the API server look at a slice without keeping it (a dry run), and
// looks at what it left of it.
func (d *Driver) askGates(ctx context.Context) (follow.Gates, error) {
	slice, err := d.Client.ResourceV1().ResourceSlices().Create(ctx, d.gateProbe(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return follow.Gates{}, err
	}
	if len(slice.Spec.Devices) == 0 {
		return follow.Gates{}, nil
	}
	device := slice.Spec.Devices[0]
	return follow.Gates{
		Partitions: len(device.ConsumesCounters) > 0,
		Shares:     device.AllowMultipleAllocations != nil && device.Capacity["probe"].RequestPolicy != nil,
	}, nil
}

func (d *Driver) gateProbe() *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "apportion-probe-"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: d.config.DriverName, NodeName: &d.config.NodeName,
			Pool: resourceapi.ResourcePool{Name: d.config.NodeName, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{
				Name: "probe", AllowMultipleAllocations: ptr.To(true),
				Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"probe": {
					Value:         *resource.NewQuantity(1, resource.DecimalSI),
					RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: resource.NewQuantity(1, resource.DecimalSI), ValidValues: []resource.Quantity{*resource.NewQuantity(1, resource.DecimalSI)}},
				}},
				ConsumesCounters: []resourceapi.DeviceCounterConsumption{{
					CounterSet: "probe",
					Counters:   map[string]resourceapi.Counter{"probe": {Value: *resource.NewQuantity(1, resource.DecimalSI)}},
				}},
			}},
		},
	}
}
