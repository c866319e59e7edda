package cdi

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/specs-go"
)

// editSource asks nvcdi what containers need, and keeps the answer for as long
// as the installed driver is the one that was asked about: same version, and
// nothing added to, removed from or renamed in any folder that the answer names.
type editSource struct {
	options Options

	mu     sync.Mutex
	answer *answer
}

// answer is what nvcdi said about one state of the driver.
type answer struct {
	version string
	common  specs.ContainerEdits
	byGPU   map[string]specs.ContainerEdits
	// folders are those that the answer's host paths lie in, as they were.
	folders map[string]fs.FileInfo
}

func newEditSource(o Options) *editSource { return &editSource{options: o} }

// get returns the edits for all containers of a claim and those per GPU. They
// are shared: callers must not change what they point to.
func (s *editSource) get(ctx context.Context, gpus []string) (common specs.ContainerEdits, byGPU map[string]specs.ContainerEdits, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ret := s.options.Library.Init(); ret != nvml.SUCCESS {
		return common, nil, fmt.Errorf("initialize NVML: %w; is the NVIDIA driver loaded?", ret)
	}
	defer func() {
		if ret := s.options.Library.Shutdown(); ret != nvml.SUCCESS {
			klog.FromContext(ctx).Error(ret, "NVML could not be shut down")
		}
	}()
	version, ret := s.options.Library.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return common, nil, fmt.Errorf("read the driver version: %w; is the NVIDIA driver loaded?", ret)
	}
	if s.answer != nil && !s.answer.current(version) {
		s.answer = nil
	}
	partitions := map[string]migDevice{}
	var whole []string
	for _, gpu := range gpus {
		if strings.HasPrefix(gpu, migPrefix) {
			m, err := findMIGDevice(s.options.Library, gpu)
			if err != nil {
				return common, nil, err
			}
			partitions[gpu] = m
			gpu = m.parent
		}
		whole = append(whole, gpu)
	}
	missing := slices.DeleteFunc(whole, func(gpu string) bool {
		return s.answer != nil && s.answer.has(gpu)
	})
	if s.answer == nil || len(missing) > 0 {
		if err := s.ask(ctx, version, missing); err != nil {
			s.answer = nil
			return common, nil, err
		}
	}
	byGPU = maps.Clone(s.answer.byGPU)
	for uuid, m := range partitions {
		if byGPU[uuid], err = s.partitionEdits(m, byGPU[m.parent]); err != nil {
			return common, nil, err
		}
	}
	return s.answer.common, byGPU, nil
}

// ask adds what nvcdi says about the GPUs, and about the driver if that is not
// known, to the answer.
func (s *editSource) ask(ctx context.Context, version string, gpus []string) error {
	devRoot := devRoot(s.options.DriverRoot)
	lib, err := nvcdi.New(
		nvcdi.WithLogger(logger{klog.FromContext(ctx)}),
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithNvmlLib(s.options.Library),
		nvcdi.WithDriverRoot(s.options.DriverRoot),
		nvcdi.WithDevRoot(devRoot),
		nvcdi.WithNVIDIACDIHookPath(s.options.HookPath),
		// This hook takes a memory limit from the container's environment, which
		// the tenant writes.
		nvcdi.WithDisabledHooks("apply-cuda-memory-limits"),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
	)
	if err != nil {
		return fmt.Errorf("look at the driver under %s: %w", s.options.DriverRoot, err)
	}
	a := s.answer
	if a == nil {
		common, err := lib.GetCommonEdits()
		if err != nil {
			return fmt.Errorf("find the driver's files under %s: %w", s.options.DriverRoot, err)
		}
		withoutHostMPS(common.ContainerEdits)
		a = &answer{version: version, common: *common.ContainerEdits, byGPU: map[string]specs.ContainerEdits{}, folders: map[string]fs.FileInfo{}}
		if err := a.note(s.options, &a.common); err != nil {
			return err
		}
	}
	for _, gpu := range gpus {
		devices, err := lib.GetDeviceSpecsByID(gpu)
		if err != nil {
			return fmt.Errorf("find the device nodes of GPU %s: %w", gpu, err)
		}
		if len(devices) != 1 {
			return fmt.Errorf("find the device nodes of GPU %s: got %d devices, want 1", gpu, len(devices))
		}
		edits := devices[0].ContainerEdits
		if len(edits.DeviceNodes) == 0 {
			return fmt.Errorf("GPU %s has no device node under %s; is the driver loaded there?", gpu, filepath.Join(devRoot, "dev"))
		}
		if err := a.note(s.options, &edits); err != nil {
			return err
		}
		a.byGPU[gpu] = edits
	}
	s.answer = a
	return nil
}

// withoutHostMPS leaves out the pipes of an MPS daemon of the host's own, which is no
// business of containers here: whose share uses MPS gets the daemon of its GPU.
func withoutHostMPS(edits *specs.ContainerEdits) {
	edits.Mounts = slices.DeleteFunc(edits.Mounts, func(m *specs.Mount) bool { return m.ContainerPath == "/tmp/nvidia-mps" })
}

// devRoot is the folder whose dev has the device nodes: the driver root, or the
// root folder where the driver root holds only the driver's files, as on GKE.
func devRoot(driverRoot string) string {
	if info, err := os.Stat(filepath.Join(driverRoot, "dev")); err == nil && info.IsDir() {
		return driverRoot
	}
	return "/"
}

// note remembers the folders that edits refer to, as this process sees them, and
// then rewrites the paths to those that the container runtime sees.
func (a *answer) note(o Options, edits *specs.ContainerEdits) error {
	var paths []string
	for _, m := range edits.Mounts {
		paths = append(paths, m.HostPath)
	}
	for _, d := range edits.DeviceNodes {
		path := d.HostPath
		if path == "" {
			path = d.Path
		}
		paths = append(paths, path)
	}
	for _, path := range paths {
		folder := filepath.Dir(path)
		if a.folders[folder] != nil {
			continue
		}
		info, err := os.Stat(folder)
		if err != nil {
			return fmt.Errorf("driver files: %w", err)
		}
		a.folders[folder] = info
	}
	spec := &specs.Spec{ContainerEdits: *edits}
	err := root.New(root.WithRoot(o.DriverRoot), root.WithTargetRoot(o.HostDriverRoot), root.WithRelativeTo("host")).Transform(spec)
	if err != nil {
		return fmt.Errorf("translate paths from %s to %s: %w", o.DriverRoot, o.HostDriverRoot, err)
	}
	*edits = spec.ContainerEdits
	return nil
}

func (a *answer) has(gpu string) bool { _, ok := a.byGPU[gpu]; return ok }

// current says whether the driver is still the one that the answer is about.
func (a *answer) current(version string) bool {
	if a.version != version {
		return false
	}
	for folder, was := range a.folders {
		is, err := os.Stat(folder)
		if err != nil || !os.SameFile(was, is) || !was.ModTime().Equal(is.ModTime()) {
			return false
		}
	}
	return true
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
