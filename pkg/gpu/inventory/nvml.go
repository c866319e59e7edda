package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"
)

const defaultPollInterval = 10 * time.Second

// Options are what an NVML source reads from and how often.
type Options struct {
	// Library is NVML: [OpenLibrary], or a fake. It may be shared: the source
	// calls Init for itself, and others must do so too.
	Library nvml.Interface
	// SysFS is the root of sysfs, "/sys" if nil.
	SysFS fs.ReadLinkFS
	// PollInterval is how often Watch reads at least, 10 seconds if zero.
	PollInterval time.Duration
	// IgnoreXIDs are further XIDs that say nothing about a GPU's health, beside
	// those that applications cause by themselves (13, 31, 43, 45, 68 and 109).
	IgnoreXIDs []int
}

// NVML reads the node's GPUs through NVML and sysfs. Its methods may be called
// concurrently.
type NVML struct {
	lib   nvml.Interface
	sysfs fs.ReadLinkFS
	poll  time.Duration

	xids *xidLog

	// lastRead is when the hardware was last read to the end, in nanoseconds since
	// 1970; 0 before.
	lastRead atomic.Int64

	// mu is held while the hardware is read.
	mu sync.Mutex
	// initialized says whether the source holds an Init, and listening whether Watch
	// holds another one to listen to events.
	initialized, listening bool
	// bound are the PCI addresses at the driver when NVML was initialised.
	bound []string
	// known are the GPUs that were read before, by PCI address.
	known map[string]GPU
	// lost are the UUIDs of the GPUs that were lost at the last reading.
	lost map[string]bool
	// driver is the driver's version at the last reading.
	driver string
	// asked is what Snapshot returned since Watch last read, nil if it was not called.
	asked *Node
}

var _ Source = (*NVML)(nil)

// NewNVML returns a source that has read nothing yet.
func NewNVML(o Options) *NVML {
	n := &NVML{
		lib: o.Library, sysfs: o.SysFS, poll: o.PollInterval, xids: newXIDLog(o.IgnoreXIDs),
		known: map[string]GPU{}, lost: map[string]bool{},
	}
	if n.sysfs == nil {
		n.sysfs = SysFS("/")
	}
	if n.poll <= 0 {
		n.poll = defaultPollInterval
	}
	return n
}

// Snapshot implements [Source].
func (n *NVML) Snapshot(ctx context.Context) (Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node, err := n.snapshot(ctx)
	if err == nil {
		n.asked = &node
	}
	return node, err
}

// snapshot reads everything. The caller holds n.mu.
func (n *NVML) snapshot(ctx context.Context) (Node, error) {
	if err := ctx.Err(); err != nil {
		return Node{}, err
	}
	node := n.read(ctx)
	if err := ctx.Err(); err != nil {
		return Node{}, err
	}
	n.lastRead.Store(time.Now().UnixNano())
	return node, nil
}

// readAllowance is how long a read may take before it is taken for hung. NVML
// calls take up to seconds while a GPU is being reset.
const readAllowance = 20 * time.Second

// Current implements [Source].
func (n *NVML) Current() bool {
	last := n.lastRead.Load()
	return last != 0 && time.Since(time.Unix(0, last)) <= n.poll+readAllowance
}

// Close gives back the source's Init of the library. A later Snapshot calls Init
// again.
func (n *NVML) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shutdown()
}

func (n *NVML) read(ctx context.Context) Node {
	logger := klog.FromContext(ctx)
	var cured cures
	xids := n.xids.all()
	// NVML lists the GPUs that were there when it was initialised. While Watch listens
	// it cannot be initialised again: Watch sees the change itself, and ends that.
	if bound := n.boundAddresses(); n.initialized && !n.listening && !slices.Equal(bound, n.bound) {
		logger.V(2).Info("The set of GPUs at the driver changed, initializing NVML again", "before", n.bound, "now", bound)
		cured.unbound = slices.DeleteFunc(slices.Clone(n.bound), func(address string) bool { return slices.Contains(bound, address) })
		n.shutdownLogged(logger)
	}
	count, ret := n.count()
	if ret != nvml.SUCCESS {
		// A driver that was unloaded or replaced since the last read.
		n.shutdownLogged(logger)
		count, ret = n.count()
	}
	if ret != nvml.SUCCESS {
		n.shutdownLogged(logger)
		if ret == nvml.ERROR_DRIVER_NOT_LOADED {
			n.xids.forgetAll()
		}
		return n.unreadable(ret)
	}
	r := newReading(n.lib, n.sysfs, logger)
	node := Node{GPUs: make([]GPU, 0, count)}
	if raw, ret := n.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		node.DriverVersion = ParseVersion(raw)
		cured.driver = n.driver != "" && n.driver != raw
		n.driver = raw
	}
	if v, ret := r.cudaDriverVersion(); ret == nvml.SUCCESS {
		node.CUDADriverVersion = cudaVersion(v)
	}
	named, unnamed := r.gpus(ctx, count)
	if ctx.Err() != nil {
		return node // which is not used
	}
	node.GPUs = n.recall(named, unnamed)
	slices.SortStableFunc(node.GPUs, CompareGPUs)
	cured.back, cured.instances = n.back(node.GPUs), r.instances
	n.xids.settle(logger, xids, node.GPUs, cured)
	return node
}

// back returns the UUIDs of the GPUs that were lost at the last reading and are
// not now.
func (n *NVML) back(gpus []GPU) map[string]bool {
	back, lost := map[string]bool{}, map[string]bool{}
	for _, gpu := range gpus {
		switch {
		case gpu.Problem == problemLost:
			lost[gpu.UUID] = true
		case n.lost[gpu.UUID]:
			back[gpu.UUID] = true
		}
	}
	n.lost = lost
	return back
}

// count initialises NVML where needed and counts the GPUs.
func (n *NVML) count() (int, nvml.Return) {
	if !n.initialized {
		if ret := n.lib.Init(); ret != nvml.SUCCESS && ret != nvml.ERROR_ALREADY_INITIALIZED {
			return 0, ret
		}
		n.initialized = true
		n.bound = n.boundAddresses()
	}
	return n.lib.DeviceGetCount()
}

func (n *NVML) shutdown() error {
	if !n.initialized {
		return nil
	}
	n.initialized = false
	if ret := n.lib.Shutdown(); ret != nvml.SUCCESS && ret != nvml.ERROR_UNINITIALIZED {
		return fmt.Errorf("shutting down NVML: %w", ret)
	}
	return nil
}

// shutdownLogged is for a library that is to be initialised again, which works or
// fails by itself.
func (n *NVML) shutdownLogged(logger klog.Logger) {
	if err := n.shutdown(); err != nil {
		logger.V(2).Info("NVML did not shut down", "reason", err.Error())
	}
}

// unreadable is a node whose driver as a whole cannot be read.
func (n *NVML) unreadable(ret nvml.Return) Node {
	node := Node{GPUs: []GPU{}}
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		node.Problem = "no NVIDIA driver was found: install it on the node, or say where it is (driver root, or path of libnvidia-ml.so.1)"
		l, ok := n.lib.(interface {
			Path() string
			LoadError() error
		})
		switch {
		case !ok:
		case l.Path() != "":
			node.Problem = "the NVIDIA library " + l.Path() + " cannot be loaded: is it whole, and for this kind of processor?"
		case l.LoadError() != nil && !errors.Is(l.LoadError(), fs.ErrNotExist):
			node.Problem += ": " + l.LoadError().Error()
		}
	case nvml.ERROR_DRIVER_NOT_LOADED:
		node.Problem = "the NVIDIA kernel driver is not loaded: load it (modprobe nvidia) or install the driver"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		node.Problem = "the NVIDIA library and the loaded kernel driver are of different versions: finish the driver's upgrade (reload its kernel modules, or reboot the node)"
		if l, ok := n.lib.(interface{ Replaced() bool }); ok && l.Replaced() {
			node.RestartNeeded = true
			node.Problem = "the NVIDIA driver was replaced while this process held its library: the process must be restarted"
		}
	case nvml.ERROR_NO_PERMISSION:
		node.Problem = "there is no permission to use the NVIDIA driver: its device nodes (/dev/nvidiactl) must be readable and writable here"
	case nvml.ERROR_OPERATING_SYSTEM:
		node.Problem = "the NVIDIA driver's device nodes cannot be opened: are /dev/nvidiactl and /dev/nvidia0 there, and allowed by the container's device cgroup?"
	default:
		node.Problem = "the NVIDIA driver cannot be read: " + ret.Error()
	}
	return node
}

// CompareGPUs orders by PCI address, GPUs without one last, then by UUID.
func CompareGPUs(a, b GPU) int {
	if (a.PCIBusID == "") != (b.PCIBusID == "") {
		if a.PCIBusID == "" {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(a.PCIBusID, b.PCIBusID), cmp.Compare(a.UUID, b.UUID), cmp.Compare(a.Index, b.Index))
}
