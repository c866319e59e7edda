package driver

import (
	"context"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// Feature gates of the API server (k8s.io/kubernetes/pkg/features). Where one is
// off the API server drops the fields it is for and accepts the rest.
const (
	gatePartitions = "DRAPartitionableDevices"
	gateShares     = "DRAConsumableCapacity"
)

// gates says which fields the API server keeps.
type gates struct {
	// partitions is true if it keeps counters: without them overlapping devices
	// would be handed out. shares is true if it keeps consumable capacity.
	partitions, shares bool
}

// learnGates finds out what the cluster keeps of a device, and then publishes. It
// tries until the API server answers or ctx ends.
func (d *Driver) learnGates(ctx context.Context) {
	logger := klog.FromContext(ctx)
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 7, Cap: 30 * time.Second}
	err := backoff.DelayWithReset(clock.RealClock{}, time.Hour).Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		found, err := d.askGates(ctx)
		if err != nil {
			logger.Error(err, "Devices are not published yet: the API server did not say which fields it keeps")
			return false, nil
		}
		d.setGates(ctx, found)
		return true, nil
	})
	if err != nil {
		logger.V(3).Info("The driver stops before it published its devices", "reason", err)
	}
}

// askGates has the API server look at a slice without keeping it (a dry run), and
// looks at what it left of it.
func (d *Driver) askGates(ctx context.Context) (gates, error) {
	slice, err := d.Client.ResourceV1().ResourceSlices().Create(ctx, d.gateProbe(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return gates{}, err
	}
	if len(slice.Spec.Devices) == 0 {
		return gates{}, nil
	}
	device := slice.Spec.Devices[0]
	return gates{
		partitions: len(device.ConsumesCounters) > 0,
		shares:     device.AllowMultipleAllocations != nil && device.Capacity["probe"].RequestPolicy != nil,
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

// gatesOff takes note of gates that turned out to be off after all: the API server
// was restarted with others.
func (d *Driver) gatesOff(off []string) {
	d.mu.Lock()
	d.gatesLost = append(d.gatesLost, off...)
	d.mu.Unlock()
	d.signal()
}

// withoutLost is what is left of the gates after those that were lost, and whether
// that is less.
func (d *Driver) withoutLost() (gates, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := *d.gates
	found := gates{
		partitions: before.partitions && !slices.Contains(d.gatesLost, gatePartitions),
		shares:     before.shares && !slices.Contains(d.gatesLost, gateShares),
	}
	d.gatesLost = nil
	return found, found != before
}

// setGates builds the devices anew with what the cluster keeps, and publishes them.
func (d *Driver) setGates(ctx context.Context, found gates) {
	if !found.partitions && !d.config.Policy.NoPartitions {
		d.events.node("PartitionsNotOffered", "MIG partitions are not offered: the API server's feature gate %s is off; turn it on and restart the driver", gatePartitions)
	}
	if !found.shares && !d.config.Policy.NoShares {
		d.events.node("SharesNotOffered", "Shares of GPUs are not offered: the API server's feature gate %s is off; turn it on and restart the driver", gateShares)
	}
	d.updating.Lock()
	defer d.updating.Unlock()
	d.mu.Lock()
	d.gates = &found
	node, owned := d.node, d.owned
	d.mu.Unlock()
	d.setNode(ctx, node, owned)
	d.publish()
}
