// Package driver is the kubelet plugin: it publishes the node's devices,
// prepares claims when the kubelet asks, and says how the devices are.
//
// It is glue over inventory, devicemodel and prepare, and the only one of them
// that talks to the API server and the kubelet. It does not know whether the
// hardware is real.
package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/internal/atomicfile"
	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/cdi"
	"apportion.dev/apportion/pkg/node/mig"
	"apportion.dev/apportion/pkg/node/prepare"
	"apportion.dev/apportion/pkg/node/timeslice"
	ownershipnode "apportion.dev/apportion/pkg/ownership/node"
)

// Providers are what the driver works with.
type Providers struct {
	Source  inventory.Source
	Library nvml.Interface
	Client  kubernetes.Interface
	Metrics *Metrics
}

// Driver is one node's driver. New has no side effects; Run does the work.
type Driver struct {
	config Config
	Providers

	helper   *kubeletplugin.Helper
	preparer *prepare.Preparer
	events   *eventRecorder
	status   *statusWriter
	owners   *ownershipnode.Owners
	calls    callGate
	fail     context.CancelCauseFunc

	mu sync.Mutex
	// node and model are the last ones read; changed is closed and replaced when
	// they are.
	node    inventory.Node
	model   *devicemodel.Model
	changed chan struct{}
	// gates says what the cluster's API keeps of a device; nothing is published
	// before that is known.
	gates *gates
	// gatesLost are those that turned out to be off since.
	gatesLost []string

	// owned are the partitions that claims made, as of the last reading.
	owned ownedPartitions

	// updating is held while the node, its model or the gates change. recheck has a
	// value when there is a reason beside the hardware to build the model anew.
	updating sync.Mutex
	recheck  chan struct{}

	// published are the devices that the helper has or will get, under updating;
	// toPublish has those that it will get.
	published []devicemodel.Slice
	toPublish chan []devicemodel.Slice
}

// New returns a driver for a valid Config.
func New(c Config, p Providers) *Driver {
	return &Driver{config: c, Providers: p, model: devicemodel.Build(inventory.Node{}, c.Policy), changed: make(chan struct{}), recheck: make(chan struct{}, 1), toPublish: make(chan []devicemodel.Slice, 1)}
}

// Run serves until ctx ends, then lets the calls under way finish, and returns
// nil; or it returns why it could not go on. Pods keep their GPUs either way.
func (d *Driver) Run(ctx context.Context) error {
	if err := d.config.Validate(); err != nil {
		return err
	}
	ctx, d.fail = context.WithCancelCause(ctx)
	defer d.fail(nil)
	if err := os.MkdirAll(d.config.Dir(), 0o750); err != nil {
		return fmt.Errorf("driver's folder: %w", err)
	}
	if err := atomicfile.Sweep(d.config.Dir()); err != nil {
		return fmt.Errorf("driver's folder: %w", err)
	}
	if err := d.installHooks(); err != nil {
		return err
	}
	// What the driver needs to finish calls under way outlives ctx.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	d.events = newEventRecorder(background, d.Client, d.config)
	defer d.events.Shutdown()
	d.status = newStatusWriter(d.Client, d.config)

	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop()
	writing.Go(func() { d.status.run(background) })

	err := d.reconcile(ctx)
	if err == nil {
		defer d.preparer.Close()
		err = d.serve(ctx, background)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	// Being told to end is no error, also at start.
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// reconcile reads the hardware for the first time and brings what the last
// process left on the node in line with it. Nothing is served yet.
func (d *Driver) reconcile(ctx context.Context) error {
	node, err := d.Source.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("read the node's GPUs: %w", err)
	}
	specs, err := cdi.New(cdi.Options{
		Vendor: d.config.DriverName, Dir: d.config.CDIRoot, Library: d.Library,
		DriverRoot: d.config.DriverRoot, HostDriverRoot: d.config.HostDriverRoot, HookPath: d.config.HookOnHost(),
	})
	if err != nil {
		return err
	}
	d.owners = d.newOwners()
	d.preparer, err = prepare.New(prepare.Options{
		Driver: d.config.DriverName, Pool: d.config.NodeName, Dir: d.config.Dir(), BootID: d.config.BootID,
		Specs: specs, Partitions: mig.New(d.Library), Compute: newCompute(d.config), TimeSlices: timeslice.New(d.config.DriverRoot),
		LimitHook: d.config.limitHook, Resolve: d.resolve, DriverVersion: d.driverVersion,
		Damaged: d.recordDamaged(ctx), Repaired: d.recordRepaired(ctx), Changed: d.owners.Changed, Observe: d.Metrics.observePhase,
	})
	if err != nil {
		return err
	}
	d.setNode(ctx, node, d.ownedPartitions(ctx, node))
	if err := d.preparer.Reconcile(ctx); err != nil {
		// One claim's trouble must not keep the node from serving the others; the
		// kubelet's next call for that claim meets it again.
		klog.FromContext(ctx).Error(err, "Some claims could not be brought in line; they are tried again when the kubelet asks")
	}
	// The last process may have ended before it wrote the status of some.
	d.renewStatus(ctx)
	return nil
}

// renewStatus has the status of all prepared claims written. One that is the same
// as before costs the API server no write.
func (d *Driver) renewStatus(ctx context.Context) {
	prepared, err := d.preparer.Prepared()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Status of prepared claims is not written again")
	}
	for _, record := range prepared {
		d.status.set(record, d.currentModel())
	}
}

// serve registers with the kubelet, publishes, follows the hardware until ctx
// ends, and then stops in the right order.
func (d *Driver) serve(ctx, background context.Context) error {
	helper, err := kubeletplugin.Start(background, d, d.helperOptions()...)
	if err != nil {
		return fmt.Errorf("serve the kubelet: %w", err)
	}
	d.helper = helper
	var publisher sync.WaitGroup
	defer publisher.Wait() // It may wait for the API server until the helper stops.
	defer helper.Stop()
	defer d.calls.drain()

	servers, err := startServers(ctx, d.config, d.Metrics, d.owners.Handler())
	if err != nil {
		return err
	}
	defer servers.stop()
	publisher.Go(func() { d.publishAll(ctx) })
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { d.owners.Run(ctx) })
	workers.Go(func() {
		d.learnGates(ctx)
		d.lookAgain(ctx)
	})
	d.Source.Watch(ctx, func(node inventory.Node) { d.follow(ctx, node) })
	return nil
}

func (d *Driver) helperOptions() []kubeletplugin.Option {
	return []kubeletplugin.Option{
		kubeletplugin.DriverName(d.config.DriverName),
		kubeletplugin.NodeName(d.config.NodeName),
		kubeletplugin.KubeClient(d.Client),
		kubeletplugin.PluginDataDirectoryPath(d.config.Dir()),
		kubeletplugin.RegistrarDirectoryPath(d.config.RegistrarDir),
		kubeletplugin.Serialize(false),
		kubeletplugin.GRPCInterceptor(d.calls.intercept),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
		kubeletplugin.CDIDirectory(d.config.CDIRoot),
		// Metadata files are written again by every Prepare, and Prepare is called
		// again after a restart of the machine, so they need not wait for the disk.
		kubeletplugin.MetadataFileOps(kubeletplugin.MetadataFileOperations{WriteFile: atomicfile.WriteVolatile}),
	}
}

// follow takes over a changed node.
func (d *Driver) follow(ctx context.Context, node inventory.Node) {
	if node.RestartNeeded {
		d.fail(errors.New("the NVIDIA driver was replaced, and only a new process can load its library"))
		return
	}
	d.updating.Lock()
	defer d.updating.Unlock()
	node, owned := d.settle(ctx, node)
	d.takeOver(ctx, node, owned)
}

// takeOver makes node what everybody sees, publishes it, and brings the claims in
// line with another NVIDIA driver. The caller holds d.updating.
func (d *Driver) takeOver(ctx context.Context, node inventory.Node, owned ownedPartitions) {
	logger := klog.FromContext(ctx)
	before := d.driverVersion()
	d.setNode(ctx, node, owned)
	d.publish()
	if now := d.driverVersion(); now != before && now != "" {
		logger.Info("The NVIDIA driver changed", "from", before, "to", now)
		if err := d.preparer.Repair(ctx); err != nil {
			logger.Error(err, "Some claims could not be brought in line with the new driver")
		}
		d.renewStatus(ctx)
	}
}

// setNode makes node what everybody sees, and tells of GPUs with problems. The caller
// holds d.updating, or nobody else runs yet.
func (d *Driver) setNode(ctx context.Context, node inventory.Node, owned ownedPartitions) {
	// Preparing claims waits for nothing here: building takes milliseconds.
	model := devicemodel.Build(owned.foreignOnly(node), d.policy(owned))
	d.mu.Lock()
	old, oldNode := d.model, d.node
	d.node, d.model, d.owned = node, model, owned
	close(d.changed)
	d.changed = make(chan struct{})
	d.mu.Unlock()
	d.owners.Changed()
	d.Metrics.setDevices(model)
	d.reportProblems(ctx, oldNode, node, old, model)
}

// policy is the administrator's, with what the cluster and the claims add to it.
func (d *Driver) policy(owned ownedPartitions) devicemodel.Policy {
	d.mu.Lock()
	gates := d.gates
	d.mu.Unlock()
	p := d.config.Policy
	p.TaintDomain = d.config.DriverName
	if gates != nil {
		p.NoPartitions = p.NoPartitions || !gates.partitions
		p.NoShares = p.NoShares || !gates.shares
	}
	p.Held, p.Missing = owned.held(), owned.missing()
	return p
}

func (d *Driver) currentModel() *devicemodel.Model {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.model
}

func (d *Driver) driverVersion() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.node.DriverVersion.Raw
}

// publish has the devices handed to the helper, which writes what differs. It does
// nothing while it is not known what the cluster keeps of a device, and where
// nothing changed. The caller holds d.updating.
func (d *Driver) publish() {
	d.mu.Lock()
	model, known := d.model, d.gates != nil
	d.mu.Unlock()
	if !known {
		return
	}
	slices := model.Slices()
	if reflect.DeepEqual(slices, d.published) {
		return
	}
	d.published = slices
	select {
	case <-d.toPublish: // The helper needs the latest only.
	default:
	}
	d.toPublish <- slices
}

// publishAll hands devices to the helper until ctx ends. The helper's first call
// waits for the API server until the helper is stopped, and nothing else may.
func (d *Driver) publishAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case slices := <-d.toPublish:
			err := d.helper.PublishResources(ctx, d.resources(slices))
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Devices could not be published")
				d.updating.Lock()
				d.published = nil // The next time they are published again, changed or not.
				d.updating.Unlock()
			}
		}
	}
}

// resources are the slices as the helper takes them.
func (d *Driver) resources(published []devicemodel.Slice) resourceslice.DriverResources {
	var pool resourceslice.Pool
	for _, s := range published {
		pool.Slices = append(pool.Slices, resourceslice.Slice{SharedCounters: s.SharedCounters, Devices: s.Devices})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{d.config.NodeName: pool}}
}

// HandleError is called by the helper for errors in the background.
func (d *Driver) HandleError(ctx context.Context, err error, msg string) {
	logger := klog.FromContext(ctx)
	var dropped *resourceslice.DroppedFieldsError
	switch {
	case errors.As(err, &dropped):
		d.Metrics.publishErrors.WithLabelValues(reasonDroppedFields).Inc()
		logger.Error(err, "The cluster does not keep some fields of the devices; they are published without", "featureGates", dropped.DisabledFeatures())
		d.events.node("FieldsDropped", "The cluster drops fields of this node's devices, which are published without: feature gates %v are off", dropped.DisabledFeatures())
		d.gatesOff(dropped.DisabledFeatures())
	case errors.Is(err, kubeletplugin.ErrRecoverable):
		d.Metrics.publishErrors.WithLabelValues(reasonOther).Inc()
		logger.Error(err, msg)
	default:
		logger.Error(err, msg)
		d.fail(fmt.Errorf("%s: %w", msg, err))
	}
}
