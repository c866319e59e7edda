package cdi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"
)

// part is a piece of a spec: edits that are valid, and their encoding. It is
// shared: nobody may change what it points to.
type part struct {
	edits specs.ContainerEdits
	json  []byte
}

func newPart(edits specs.ContainerEdits) (*part, error) {
	if err := (&cdi.ContainerEdits{ContainerEdits: &edits}).Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(edits)
	if err != nil {
		return nil, fmt.Errorf("encode container edits: %w", err)
	}
	return &part{edits: edits, json: data}, nil
}

// editSource gives the edits that containers need with the driver that is
// installed now.
type editSource struct {
	options Options
	known   atomic.Pointer[installation]
	// asking is held while nvcdi is asked about the driver's files. Only those wait
	// for it who found that the known installation is not there any more.
	asking sync.Mutex
}

func newEditSource(o Options) *editSource { return &editSource{options: o} }

// get returns the edits for all containers of a claim and those of each GPU or
// MIG device, in the order of the devices.
func (s *editSource) get(ctx context.Context, devices []Device) (common *part, own []*part, err error) {
	if ret := s.options.Library.Init(); ret != nvml.SUCCESS {
		return nil, nil, fmt.Errorf("initialize NVML: %w; is the NVIDIA driver loaded?", ret)
	}
	defer func() {
		if ret := s.options.Library.Shutdown(); ret != nvml.SUCCESS {
			klog.FromContext(ctx).Error(ret, "NVML could not be shut down")
		}
	}()
	installed, err := s.installed(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range devices {
		edits := installed.gpu
		if strings.HasPrefix(d.GPU, "MIG-") {
			edits = installed.partition
		}
		device, err := edits(ctx, d.GPU)
		if err != nil {
			return nil, nil, err
		}
		own = append(own, device)
	}
	return installed.common, own, nil
}

// installed is the driver as it is installed now.
func (s *editSource) installed(ctx context.Context) (*installation, error) {
	if i, _, err := s.current(); i != nil || err != nil {
		return i, err
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	// Somebody else may have asked meanwhile.
	i, version, err := s.current()
	if i != nil || err != nil {
		return i, err
	}
	if i, err = newInstallation(ctx, s.options, version); err != nil {
		return nil, err
	}
	s.known.Store(i)
	return i, nil
}

// current is the known installation if it is still the one that is there, and
// the version of the driver.
func (s *editSource) current() (*installation, string, error) {
	version, ret := s.options.Library.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return nil, "", fmt.Errorf("read the driver version: %w; is the NVIDIA driver loaded?", ret)
	}
	if i := s.known.Load(); i != nil && i.version == version && i.folders.unchanged() {
		return i, version, nil
	}
	return nil, version, nil
}
