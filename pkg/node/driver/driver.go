// Package driver is the kubelet plugin: it publishes the node's devices,
// prepares claims when the kubelet asks, and says how the devices are.
//
// It is glue over inventory, devicemodel, follow and prepare, and the only one of them
// that talks to the API server and the kubelet. It does not know whether the
// hardware is real.
package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/internal/atomicfile"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/cdi"
	"apportion.dev/apportion/pkg/node/follow"
	"apportion.dev/apportion/pkg/node/mig"
	"apportion.dev/apportion/pkg/node/mps"
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

	// The loop alone uses state; what it shows to all others is in seen.
	state follow.State
	seen  atomic.Pointer[view]
	// found takes what the source finds, happened all other events, and claimed has a
	// value when claims were prepared or unprepared. fail ends the loop with a reason.
	found    chan inventory.Node
	happened chan follow.Event
	claimed  chan struct{}
	fail     context.CancelCauseFunc
	// publishing is the call to the helper under way.
	publishing sync.WaitGroup
}

// New returns a driver for a valid Config.
func New(c Config, p Providers) *Driver {
	policy := c.Policy
	policy.TaintDomain = c.DriverName
	d := &Driver{
		config: c, Providers: p, state: follow.New(policy),
		found: make(chan inventory.Node), happened: make(chan follow.Event), claimed: make(chan struct{}, 1),
	}
	d.seen.Store(newView(d.state.View()))
	return d
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
		Specs: specs, Partitions: mig.New(d.Library), Compute: mps.New(filepath.Join(d.config.MPSDir(), mps.SocketName)), TimeSlices: timeslice.New(d.config.DriverRoot),
		LimitHook: d.config.limitHook, MPSEdits: d.config.mpsEdits, Resolve: d.resolve, DriverVersion: d.driverVersion,
		Damaged: d.recordDamaged(ctx), Repaired: d.recordRepaired(ctx), Changed: d.owners.Changed, Observe: d.Metrics.observePhase,
	})
	if err != nil {
		return err
	}
	d.handle(ctx, follow.Started{Node: node, Records: d.held(ctx)})
	return nil
}

// serve registers with the kubelet, follows what happens until ctx ends or the driver
// cannot go on, and then stops in the right order.
func (d *Driver) serve(ctx, background context.Context) error {
	helper, err := kubeletplugin.Start(background, d, d.helperOptions()...)
	if err != nil {
		return fmt.Errorf("serve the kubelet: %w", err)
	}
	d.helper = helper
	defer d.publishing.Wait() // It may wait for the API server until the helper stops.
	defer helper.Stop()
	defer d.calls.drain()

	servers, err := startServers(ctx, d.config, d.Metrics, d.owners.Handler())
	if err != nil {
		return err
	}
	defer servers.stop()
	var workers sync.WaitGroup
	defer workers.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	workers.Go(func() { d.owners.Run(ctx) })
	workers.Go(func() { d.learnGates(ctx) })
	workers.Go(func() { d.Source.Watch(ctx, func(node inventory.Node) { send(ctx, d.found, node) }) })
	return d.loop(ctx)
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

// HandleError is called by the helper for errors in the background.
func (d *Driver) HandleError(ctx context.Context, err error, msg string) {
	logger := klog.FromContext(ctx)
	var dropped *resourceslice.DroppedFieldsError
	switch {
	case errors.As(err, &dropped):
		d.Metrics.publishErrors.WithLabelValues(reasonDroppedFields).Inc()
		logger.Error(err, "The cluster does not keep some fields of the devices; they are published without", "featureGates", dropped.DisabledFeatures())
		d.events.node("FieldsDropped", "The cluster drops fields of this node's devices, which are published without: feature gates %v are off", dropped.DisabledFeatures())
		send[follow.Event](ctx, d.happened, follow.FieldsDropped{Features: dropped.DisabledFeatures()})
	case errors.Is(err, kubeletplugin.ErrRecoverable):
		d.Metrics.publishErrors.WithLabelValues(reasonOther).Inc()
		logger.Error(err, msg)
	default:
		logger.Error(err, msg)
		d.fail(fmt.Errorf("%s: %w", msg, err))
	}
}
