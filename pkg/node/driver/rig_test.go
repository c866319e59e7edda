package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/fake/fakegpu"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// rig is a driver on a fake machine with two A100s, a fake API server, and real
// sockets.
type rig struct {
	t       *testing.T
	config  Config
	machine *fakegpu.Machine
	client  *fake.Clientset
	metrics *Metrics
	// gatesOff are the API server's feature gates that are off.
	gatesOff []string
	// away is true while the API server does not answer.
	away atomic.Bool
	// podWatches are the watches of pods that have begun.
	podWatches podWatches
	// wrap changes the driver's source of facts at the next start.
	wrap   func(inventory.Source) inventory.Source
	driver *Driver
	conn   *grpc.ClientConn
	stop   context.CancelFunc
	ended  chan error
}

func newRig(t *testing.T, gpus ...string) *rig {
	t.Helper()
	return newRigWith(t, nil, gpus...)
}

// newRigWith is a rig whose API server has feature gates off.
func newRigWith(t *testing.T, gatesOff []string, gpus ...string) *rig {
	t.Helper()
	return newRigConfigured(t, gatesOff, func(*Config) {}, gpus...)
}

// newRigConfigured is a rig whose driver is configured otherwise.
func newRigConfigured(t *testing.T, gatesOff []string, change func(*Config), gpus ...string) *rig {
	t.Helper()
	// A socket's path is short.
	dir, err := os.MkdirTemp("", "drv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, gatesOff: gatesOff, config: Config{
		DriverName: "gpu.apportion.dev", NodeName: "node-a", BootID: "boot-1", HealthcheckPort: -1,
		CDIRoot: filepath.Join(dir, "cdi"), PluginsDir: filepath.Join(dir, "plugins"), RegistrarDir: filepath.Join(dir, "registry"),
	}}
	for _, d := range []string{r.config.CDIRoot, r.config.PluginsDir, r.config.RegistrarDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.machine, err = fakegpu.Create(filepath.Join(dir, "machine"), fakegpu.Spec{Node: "node-a", DriverVersion: "580.95.05", GPUs: gpus})
	if err != nil {
		t.Fatal(err)
	}
	r.config.DriverRoot, r.config.HostDriverRoot = r.machine.DriverRoot(), r.machine.DriverRoot()
	r.client = fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "node-uid"}})
	var names atomic.Int32
	r.client.PrependReactor("create", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		slice := action.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
		if len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) > 0 {
			return true, r.kept(slice.DeepCopy()), nil
		}
		slice.Name = fmt.Sprintf("%s%d", slice.GenerateName, names.Add(1))
		return false, nil, nil
	})
	// Reactors cannot be added once the driver runs.
	r.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return r.away.Load(), nil, errors.New("the API server is away")
	})
	r.client.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		if r.away.Load() {
			return true, nil, errors.New("the API server is away")
		}
		w, err := r.client.Tracker().Watch(action.GetResource(), "")
		r.podWatches.add(w)
		return true, w, err
	})
	change(&r.config)
	r.start()
	return r
}

// setAway has the API server go, with the watches of pods, or come back.
func (r *rig) setAway(away bool) {
	r.away.Store(away)
	if away {
		r.podWatches.end()
	}
}

type podWatches struct {
	mu  sync.Mutex
	all []watch.Interface
}

func (p *podWatches) add(w watch.Interface) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, w)
}

func (p *podWatches) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.all {
		w.Stop()
	}
	p.all = nil
}

func (p *podWatches) begun() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all) > 0
}

// kept is what the API server keeps of a slice.
func (r *rig) kept(slice *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		if slices.Contains(r.gatesOff, "DRAPartitionableDevices") {
			device.ConsumesCounters = nil
		}
		if slices.Contains(r.gatesOff, "DRAConsumableCapacity") {
			device.AllowMultipleAllocations = nil
			for name, capacity := range device.Capacity {
				capacity.RequestPolicy = nil
				device.Capacity[name] = capacity
			}
		}
	}
	return slice
}

// start runs the driver until the test ends or halt is called.
func (r *rig) start() {
	r.t.Helper()
	_, ctx := ktesting.NewTestContext(r.t)
	ctx, r.stop = context.WithCancel(ctx)
	r.metrics = NewMetrics()
	var source inventory.Source = inventory.NewNVML(inventory.Options{Library: r.machine.NVML(), SysFS: r.machine.SysFS(), PollInterval: 20 * time.Millisecond})
	if r.wrap != nil {
		source = r.wrap(source)
	}
	d := New(r.config, Providers{Source: source, Library: r.machine.NVML(), Client: r.client, Metrics: r.metrics})
	r.driver, r.ended = d, make(chan error, 1)
	go func() { r.ended <- d.Run(ctx) }()
	var once sync.Once
	halt := r.stop
	r.stop = func() { once.Do(func() { halt(); r.wantEnd() }) }
	r.t.Cleanup(r.stop)
	conn, err := grpc.NewClient("unix://"+filepath.Join(r.config.Dir(), "dra.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.conn = conn
	r.t.Cleanup(func() { _ = conn.Close() })
}

func (r *rig) wantEnd() {
	if err := <-r.ended; err != nil {
		r.t.Errorf("the driver ended with %v", err)
	}
}

// eventually fails the test unless f becomes true.
func (r *rig) eventually(what string, f func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !f() {
		select {
		case <-deadline.C:
			r.t.Fatalf("never: %s", what)
		case <-again.C:
		}
	}
}

func (r *rig) devices() []resourceapi.Device {
	list, err := r.client.ResourceV1().ResourceSlices().List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b resourceapi.ResourceSlice) int { return strings.Compare(a.GenerateName, b.GenerateName) })
	var devices []resourceapi.Device
	for _, slice := range list.Items {
		devices = append(devices, slice.Spec.Devices...)
	}
	return devices
}

func (r *rig) published(n int) []resourceapi.Device {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d devices are published", n), func() bool { return len(r.devices()) == n })
	return r.devices()
}

// claim makes an allocated claim with all of the device.
func (r *rig) claim(uid, device string) *drapb.Claim {
	r.t.Helper()
	return r.claimOf(uid, device, "40Gi")
}

// claimOf makes an allocated claim with a part of the device's memory.
func (r *rig) claimOf(uid, device, memory string) *drapb.Claim {
	r.t.Helper()
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim-" + uid, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: "gpu.apportion.dev", Pool: "node-a", Device: device, ShareID: ptr.To(types.UID("share-" + uid)),
				ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)},
			}},
		}}},
	}
	if _, err := r.client.ResourceV1().ResourceClaims("team").Create(r.t.Context(), claim, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	return &drapb.Claim{Namespace: "team", Name: claim.Name, Uid: uid}
}

func (r *rig) prepare(claims ...*drapb.Claim) map[string]*drapb.NodePrepareResourceResponse {
	r.t.Helper()
	response, err := drapb.NewDRAPluginClient(r.conn).NodePrepareResources(r.t.Context(), &drapb.NodePrepareResourcesRequest{Claims: claims}, grpc.WaitForReady(true))
	if err != nil {
		r.t.Fatal(err)
	}
	return response.Claims
}

func (r *rig) unprepare(claims ...*drapb.Claim) map[string]*drapb.NodeUnprepareResourceResponse {
	r.t.Helper()
	response, err := drapb.NewDRAPluginClient(r.conn).NodeUnprepareResources(r.t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	if err != nil {
		r.t.Fatal(err)
	}
	return response.Claims
}

func (r *rig) specs() []string {
	entries, err := os.ReadDir(r.config.CDIRoot)
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
