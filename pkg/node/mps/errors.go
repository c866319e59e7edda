package mps

import (
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/types"
)

// ErrUnavailable says that a GPU cannot have an MPS daemon here: the supervisor is
// not deployed, the NVIDIA driver has no MPS, or the daemon ends as soon as it is
// started. Waiting does not help, so a caller that can do without MPS may go on
// without it. A slow daemon, or a supervisor that does not answer now, is another error.
var ErrUnavailable = errors.New("MPS is not available")

func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, fmt.Errorf(format, args...))
}

var (
	gpuName = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	// claimName is wider than the UIDs that Kubernetes gives. It has nothing that
	// means something in a path.
	claimName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,62}$`)
)

// errName says that a name does not have the form of a GPU's or a claim's.
var errName = errors.New("bad name")

// checkNames keeps what is no UUID out of paths.
func checkNames(gpu string, claim types.UID) error {
	if !gpuName.MatchString(gpu) {
		return fmt.Errorf("%w: %q is not the UUID of a GPU or MIG device", errName, gpu)
	}
	if !claimName.MatchString(string(claim)) {
		return fmt.Errorf("%w: %q is not the UID of a claim", errName, claim)
	}
	return nil
}
