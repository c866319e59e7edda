package cdi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	"golang.org/x/sync/singleflight"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// installation is one state of the installed driver with what nvcdi said about
// it: the same version, and nothing added to, removed from or renamed in any
// folder that the answers name.
type installation struct {
	options Options
	devRoot string
	version string
	// common are the edits for all containers, folders those that they lie in.
	common  *part
	folders folders

	// asking lets those who need the same GPU's edits share one answer.
	asking singleflight.Group
	mu     sync.Mutex
	gpus   map[string]*gpuEdits
	// minors are the numbers of MIG capabilities, nil until one is needed.
	minors *minors
}

// gpuEdits are what containers need to use one whole GPU.
type gpuEdits struct {
	part *part
	// minor is the number of the GPU's device node, node its place in the edits.
	minor, node int
	// folders are those that only this GPU's edits lie in.
	folders folders
}

// newInstallation asks nvcdi about the driver's files.
func newInstallation(ctx context.Context, o Options, version string) (*installation, error) {
	i := &installation{options: o, devRoot: devRoot(o.DriverRoot), version: version, gpus: map[string]*gpuEdits{}}
	asked := time.Now()
	lib, err := i.nvcdi(ctx)
	if err != nil {
		return nil, err
	}
	common, err := lib.GetCommonEdits()
	if err != nil {
		return nil, fmt.Errorf("find the driver's files under %s: %w", o.DriverRoot, err)
	}
	edits := *common.ContainerEdits
	withoutHostMPS(&edits)
	if i.folders, err = foldersOf(&edits, asked, nil); err != nil {
		return nil, err
	}
	// No runtime may add GPUs on its own beside the ones given in the spec.
	if void := "NVIDIA_VISIBLE_DEVICES=void"; !slices.Contains(edits.Env, void) {
		edits.Env = append(edits.Env, void)
	}
	if i.common, err = i.translated(&edits); err != nil {
		return nil, fmt.Errorf("the driver's files under %s: %w", o.DriverRoot, err)
	}
	return i, nil
}

func (i *installation) nvcdi(ctx context.Context) (nvcdi.Interface, error) {
	lib, err := nvcdi.New(
		nvcdi.WithLogger(logger{klog.FromContext(ctx)}),
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithNvmlLib(withMIGHandles(i.options.Library)),
		nvcdi.WithDriverRoot(i.options.DriverRoot),
		nvcdi.WithDevRoot(i.devRoot),
		nvcdi.WithNVIDIACDIHookPath(i.options.HookPath),
		// This hook takes a memory limit from the container's environment, which
		// the tenant writes.
		nvcdi.WithDisabledHooks("apply-cuda-memory-limits"),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
	)
	if err != nil {
		return nil, fmt.Errorf("look at the driver under %s: %w", i.options.DriverRoot, err)
	}
	return lib, nil
}

// withMIGHandles is the library as nvcdi needs it, which asks each handle whether it
// is that of a MIG device. A driver older than MIG (450) lacks the function, and a
// call of it would end the process.
func withMIGHandles(lib nvml.Interface) nvml.Interface {
	if lib.Extensions().LookupSymbol("nvmlDeviceIsMigDeviceHandle") == nil {
		return lib
	}
	return olderThanMIG{lib}
}

type olderThanMIG struct{ nvml.Interface }

func (l olderThanMIG) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	handle, ret := l.Interface.DeviceGetHandleByUUID(uuid)
	return wholeGPU{handle}, ret
}

// wholeGPU is a handle of a driver whose handles are all of whole GPUs.
type wholeGPU struct{ nvml.Device }

func (wholeGPU) IsMigDeviceHandle() (bool, nvml.Return) { return false, nvml.SUCCESS }

// withoutHostMPS leaves out the pipes of an MPS daemon of the host's own, which is no
// business of containers here: whose share uses MPS gets the daemon of its GPU.
func withoutHostMPS(edits *specs.ContainerEdits) {
	edits.Mounts = slices.DeleteFunc(edits.Mounts, func(m *specs.Mount) bool { return m.ContainerPath == "/tmp/nvidia-mps" })
}

// gpu returns the edits for a whole GPU.
func (i *installation) gpu(ctx context.Context, uuid string) (*part, error) {
	handle, ret := inventory.Handle(i.options.Library, uuid)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("find GPU %s: %w; is it still there (nvidia-smi -L)?", uuid, ret)
	}
	minor, ret := handle.GetMinorNumber()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("find the device node of GPU %s: %w", uuid, ret)
	}
	edits, err := i.whole(ctx, uuid, minor)
	if err != nil {
		return nil, err
	}
	return edits.part, nil
}

// whole returns the edits for the GPU that has that minor number now. GPUs that
// were taken from the driver and given back may have changed numbers, while the
// device nodes stayed.
func (i *installation) whole(ctx context.Context, uuid string, minor int) (*gpuEdits, error) {
	i.mu.Lock()
	known := i.gpus[uuid]
	i.mu.Unlock()
	if known != nil && known.minor == minor && known.folders.unchanged() {
		return known, nil
	}
	answer, err, _ := i.asking.Do(fmt.Sprintf("%s %d", uuid, minor), func() (any, error) {
		return i.ask(ctx, uuid, minor)
	})
	if err != nil {
		return nil, err
	}
	edits := answer.(*gpuEdits)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.gpus[uuid] = edits
	return edits, nil
}

// ask asks nvcdi about one GPU.
func (i *installation) ask(ctx context.Context, uuid string, minor int) (*gpuEdits, error) {
	asked := time.Now()
	lib, err := i.nvcdi(ctx)
	if err != nil {
		return nil, err
	}
	devices, err := lib.GetDeviceSpecsByID(uuid)
	if err != nil {
		return nil, fmt.Errorf("find the device nodes of GPU %s: %w", uuid, err)
	}
	if len(devices) != 1 {
		return nil, fmt.Errorf("find the device nodes of GPU %s: got %d devices, want 1", uuid, len(devices))
	}
	edits, path := devices[0].ContainerEdits, fmt.Sprintf("/dev/nvidia%d", minor)
	answer := &gpuEdits{minor: minor}
	answer.node = slices.IndexFunc(edits.DeviceNodes, func(n *specs.DeviceNode) bool { return n.Path == path })
	if answer.node < 0 {
		return nil, fmt.Errorf("GPU %s has no device node %s; is the driver loaded there?", uuid, filepath.Join(i.devRoot, path))
	}
	if answer.folders, err = foldersOf(&edits, asked, i.folders); err != nil {
		return nil, err
	}
	if answer.part, err = i.translated(&edits); err != nil {
		return nil, fmt.Errorf("GPU %s: %w", uuid, err)
	}
	return answer, nil
}

// devRoot is the folder whose dev has the device nodes: the driver root, or the
// root folder where the driver root holds only the driver's files, as on GKE.
func devRoot(driverRoot string) string {
	if info, err := os.Stat(filepath.Join(driverRoot, "dev")); err == nil && info.IsDir() {
		return driverRoot
	}
	return "/"
}

// translated rewrites the paths, as this process sees them, to those that the
// container runtime sees, and makes a part of the edits.
func (i *installation) translated(edits *specs.ContainerEdits) (*part, error) {
	from, to := i.options.DriverRoot, i.options.HostDriverRoot
	spec := &specs.Spec{ContainerEdits: *edits}
	if err := root.New(root.WithRoot(from), root.WithTargetRoot(to), root.WithRelativeTo("host")).Transform(spec); err != nil {
		return nil, fmt.Errorf("translate paths from %s to %s: %w", from, to, err)
	}
	return newPart(spec.ContainerEdits)
}

// logger passes nvcdi's messages on. They are about files that it did not find,
// which is normal for most.
type logger struct{ klog.Logger }

func (l logger) Debugf(format string, args ...any)   { l.V(7).Info(fmt.Sprintf(format, args...)) }
func (l logger) Tracef(format string, args ...any)   { l.V(8).Info(fmt.Sprintf(format, args...)) }
func (l logger) Infof(format string, args ...any)    { l.V(6).Info(fmt.Sprintf(format, args...)) }
func (l logger) Warningf(format string, args ...any) { l.V(5).Info(fmt.Sprintf(format, args...)) }
func (l logger) Errorf(format string, args ...any) {
	l.Info("nvcdi: " + fmt.Sprintf(format, args...))
}
