package driver

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
)

// Config says who this driver is and where things are. Paths are absolute.
type Config struct {
	// DriverName is the name in slices and claims, NodeName that of the node and
	// of its pool.
	DriverName, NodeName string
	// CDIRoot is the folder for CDI specs.
	CDIRoot string
	// PluginsDir and RegistrarDir are the kubelet's folders for plugins' data
	// and for their registration.
	PluginsDir, RegistrarDir string
	// DriverRoot is where this process sees the folder under which the NVIDIA
	// driver is installed, HostDriverRoot where the container runtime sees it.
	DriverRoot, HostDriverRoot string
	// HookPath is the nvidia-cdi-hook program that is installed for the container
	// runtime, LimitHookPath the apportion-cdi-hook program; empty if the one at its
	// place is to be used as it is. LimitHookArgs tell the latter where the driver is
	// on the host.
	HookPath, LimitHookPath string
	LimitHookArgs           []string
	// BootID identifies this boot of the machine.
	BootID string
	// Policy says which devices are offered, and how.
	Policy devicemodel.Policy
	// HealthcheckPort is the TCP port of the gRPC health service, 0 for any,
	// negative for none.
	HealthcheckPort int
	// MetricsAddress is where /metrics and /healthz are served, for example
	// ":8080"; empty for nowhere. Pprof adds /debug/pprof.
	MetricsAddress string
	Pprof          bool
	// Ownership says who holds what on OwnershipSocket, and as JSON over HTTP at
	// OwnershipHTTPAddress, for example "localhost:8081"; empty for not over HTTP.
	Ownership            bool
	OwnershipHTTPAddress string
	// DCGMJobMappingDir is the folder in which dcgm-exporter finds who owns a GPU;
	// empty for none.
	DCGMJobMappingDir string
}

// Dir is the driver's own folder on the node.
func (c Config) Dir() string { return filepath.Join(c.PluginsDir, c.DriverName) }

// HookOnHost and LimitHookOnHost are where the container runtime finds the hooks.
func (c Config) HookOnHost() string      { return filepath.Join(c.Dir(), "nvidia-cdi-hook") }
func (c Config) LimitHookOnHost() string { return filepath.Join(c.Dir(), "apportion-cdi-hook") }

// OwnershipSocket is where the ownership service listens: in a folder of its own, so
// that who may use it need not see the kubelet's socket.
func (c Config) OwnershipSocket() string {
	return filepath.Join(c.Dir(), "ownership", "ownership.sock")
}

// MPSDir is the folder of the program that runs MPS daemons.
func (c Config) MPSDir() string { return filepath.Join(c.Dir(), "mps") }

// pluginSocket and registrationSocket are where the helper library listens.
func (c Config) pluginSocket() string { return filepath.Join(c.Dir(), "dra.sock") }
func (c Config) registrationSocket() string {
	return filepath.Join(c.RegistrarDir, c.DriverName+"-reg.sock")
}

const (
	// maxSocketPath is the longest path that a Unix socket can be bound to
	// (sun_path without its end).
	maxSocketPath = 107
	// maxDriverName is the API's limit (ResourceSlice.spec.driver).
	maxDriverName = 63
)

// Validate returns an error that names each bad value and the way out.
func (c Config) Validate() error {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("the node's name is not known: set --node-name or NODE_NAME"))
	}
	if c.NodeName != "" && len(validation.IsDNS1123Subdomain(c.NodeName)) > 0 {
		errs = append(errs, fmt.Errorf("--node-name %q is no name of a node: give that of the Node object", c.NodeName))
	}
	// The name is also the vendor of CDI specs, which starts with a letter.
	if len(c.DriverName) > maxDriverName || len(validation.IsDNS1123Subdomain(c.DriverName)) > 0 || parser.ValidateVendorName(c.DriverName) != nil {
		errs = append(errs, fmt.Errorf("--driver-name %q cannot be the name of a driver: give a DNS name of at most %d characters in lower case that starts with a letter, such as gpu.apportion.dev", c.DriverName, maxDriverName))
	}
	type socket struct{ flag, path string }
	sockets := []socket{
		{"--kubelet-plugins-directory-path", c.pluginSocket()},
		{"--kubelet-registrar-directory-path", c.registrationSocket()},
	}
	if c.Ownership {
		sockets = append(sockets, socket{"--kubelet-plugins-directory-path", c.OwnershipSocket()})
	}
	for _, socket := range sockets {
		if len(socket.path) > maxSocketPath {
			errs = append(errs, fmt.Errorf("the socket %s has a path of %d bytes, at most %d are possible: choose a shorter %s or --driver-name", socket.path, len(socket.path), maxSocketPath, socket.flag))
		}
	}
	if c.HealthcheckPort > 65535 {
		errs = append(errs, fmt.Errorf("--healthcheck-port %d is not a port: give 0 to 65535, or -1 for none", c.HealthcheckPort))
	}
	if _, _, err := net.SplitHostPort(c.MetricsAddress); c.MetricsAddress != "" && err != nil {
		errs = append(errs, fmt.Errorf("--metrics-address %q is no address to listen at: give host:port, such as :8080, or nothing", c.MetricsAddress))
	}
	if _, _, err := net.SplitHostPort(c.OwnershipHTTPAddress); c.OwnershipHTTPAddress != "" && err != nil {
		errs = append(errs, fmt.Errorf("--ownership-http-address %q is no address to listen at: give host:port, such as localhost:8081, or nothing", c.OwnershipHTTPAddress))
	}
	if !c.Ownership && (c.OwnershipHTTPAddress != "" || c.DCGMJobMappingDir != "") {
		errs = append(errs, errors.New("--ownership-http-address and --dcgm-job-mapping-dir need --ownership"))
	}
	errs = append(errs, c.Policy.Validate())
	return errors.Join(errs...)
}
