package driver

import (
	"path/filepath"

	"tags.cncf.io/container-device-interface/specs-go"

	"apportion.dev/apportion/pkg/node/mps"
	"apportion.dev/apportion/pkg/node/prepare"
)

// compute is MPS as prepare needs it: the supervisor in its own container.
type compute struct {
	*mps.Client
	// dir is the supervisor's folder on the host.
	dir string
}

func newCompute(c Config) compute {
	return compute{Client: mps.New(filepath.Join(c.MPSDir(), mps.SocketName)), dir: c.MPSDir()}
}

// Edits are what a container needs to use the daemon of the GPU.
func (c compute) Edits(gpu string, m prepare.MPS) specs.ContainerEdits {
	pinned := ""
	if m.PinnedBytes > 0 {
		pinned = mps.PinnedLimit(m.PinnedBytes)
	}
	return mps.Edits(c.dir, gpu, m.Percent, pinned)
}
