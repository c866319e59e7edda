// Package standalone runs the real kubelet plugin as a process of its own, on a
// fake machine, and calls it over its socket as the kubelet does. There is no
// kubelet, scheduler or container runtime: whoever uses the package says which
// claims exist and which devices they have. The API server is a small one in this
// process. It needs no root.
//
// It knows the plugin's flags and the folders that it leaves on a node, and
// nothing of how the plugin works.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// Names in every standalone plugin.
const (
	DriverName = "gpu.apportion.dev"
	// Node is the node, and its pool of devices.
	Node = "standalone"
	// Namespace is that of all claims.
	Namespace = "standalone"
)

// startPatience is how long the plugin may take to publish.
const startPatience = time.Minute

// Options say what to run.
type Options struct {
	// Program is the apportion-kubelet-plugin program. Beside it is libnvidia-ml.so, the
	// fake machine's NVML.
	Program string
	// Parent is the folder in which the plugin's own folder is made; that for
	// temporary files if empty. Its disk is part of what is measured.
	Parent string
	// GPUs are the fake machine's, such as "h100-sxm5-80gb:8". Library is the path of
	// another NVML to read in its place.
	GPUs, Library string
	// DriverVersion is that of the NVIDIA driver; fakegpu's default if empty.
	DriverVersion string
	// Environment is added to that of this process.
	Environment []string
}

// Plugin is a running plugin and what it needs. Its methods for claims may be
// called concurrently; those that start and end the process may not.
type Plugin struct {
	options Options
	dir     string
	cdi     string
	machine *fakegpu.Machine
	// hardware is the machine's folder.
	hardware string
	api      *apiServer
	process  *process
	log      *os.File
	conn     *grpc.ClientConn
}

// process is a running program.
type process struct {
	*exec.Cmd
	// ended is closed when it has ended; err is how.
	ended chan struct{}
	err   error
}

func startProcess(command *exec.Cmd) (*process, error) {
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &process{Cmd: command, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = command.Wait()
	}()
	return p, nil
}

// Start runs the program on a new fake machine, or over a library, and waits until it
// has published the devices and answers. Stop must be called.
func Start(ctx context.Context, o Options) (p *Plugin, err error) {
	p = &Plugin{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.remove())
			p = nil
		}
	}()
	if p.dir, err = os.MkdirTemp(o.Parent, "plugin-"); err != nil {
		return p, err
	}
	for _, name := range []string{"plugins", "registry"} {
		if err := os.Mkdir(p.path(name), 0o755); err != nil {
			return p, err
		}
	}
	// CDI specs lie below /run, which is a tmpfs on any node.
	if p.cdi, err = os.MkdirTemp("/dev/shm", "plugin-cdi-"); err != nil {
		return p, err
	}
	if o.Library == "" {
		if err := p.makeMachine(); err != nil {
			return p, err
		}
	}
	p.api = startAPIServer()
	kubeconfig, err := p.api.kubeconfig()
	if err != nil {
		return p, err
	}
	if err := os.WriteFile(p.path("kubeconfig"), kubeconfig, 0o600); err != nil {
		return p, err
	}
	if err := p.launch(ctx); err != nil {
		return p, fmt.Errorf("%w; its log ends with\n%s", err, p.LogTail())
	}
	return p, nil
}

// makeMachine makes the fake machine, which stands for hardware: its state is on no
// disk.
func (p *Plugin) makeMachine() error {
	gpus, err := fakegpu.ParseGPUs(p.options.GPUs)
	if err != nil {
		return err
	}
	if p.hardware, err = os.MkdirTemp("/dev/shm", "plugin-machine-"); err != nil {
		return err
	}
	p.machine, err = fakegpu.Create(p.hardware, fakegpu.Spec{
		Node: Node, DriverVersion: p.options.DriverVersion, GPUs: gpus,
		Library: filepath.Join(filepath.Dir(p.options.Program), "libnvidia-ml.so"),
	})
	return err
}

func (p *Plugin) path(name string) string { return filepath.Join(p.dir, name) }

// arguments are the plugin's flags. What listens on a port of the node is off.
func (p *Plugin) arguments() []string {
	hardware := []string{"--nvml-library=" + p.options.Library}
	if p.machine != nil {
		root := p.machine.DriverRoot()
		hardware = []string{"--nvidia-driver-root=" + root, "--container-driver-root=" + root}
	}
	return append(hardware,
		"--node-name="+Node, "--driver-name="+DriverName, "--cdi-root="+p.cdi,
		"--kubelet-plugins-directory-path="+p.path("plugins"), "--kubelet-registrar-directory-path="+p.path("registry"),
		"--cdi-hook-path=", "--limit-hook-path=", "--healthcheck-port=-1", "--metrics-address=", "--kubeconfig="+p.path("kubeconfig"),
	)
}

// launch runs the process and waits until its slices are published and it answers.
func (p *Plugin) launch(ctx context.Context) (err error) {
	if p.log, err = os.OpenFile(p.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	synced := p.api.synced()
	command := exec.Command(p.options.Program, p.arguments()...)
	command.Env = append(os.Environ(), p.options.Environment...)
	command.Stdout, command.Stderr = p.log, p.log
	if p.process, err = startProcess(command); err != nil {
		return errors.Join(err, p.log.Close())
	}
	timeout := time.NewTimer(startPatience)
	defer timeout.Stop()
	select {
	case <-synced:
	case <-p.process.ended:
		return fmt.Errorf("the plugin ended before it published anything: %w", p.process.err)
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout.C:
		return fmt.Errorf("the plugin published nothing within %s", startPatience)
	}
	socket := filepath.Join(p.path("plugins"), DriverName, "dra.sock")
	if p.conn, err = grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	_, err = drapb.NewDRAPluginClient(p.conn).NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{}, grpc.WaitForReady(true))
	return err
}

// Restart ends the process as the kubelet does, and starts it again.
func (p *Plugin) Restart(ctx context.Context) error {
	if err := p.end(os.Interrupt); err != nil {
		return err
	}
	return p.launch(ctx)
}

// Kill ends the process at once, as the kernel does to one that uses too much
// memory. Launch it again with [Plugin.Launch].
func (p *Plugin) Kill() error { return p.end(os.Kill) }

// Launch starts the process again after [Plugin.Kill].
func (p *Plugin) Launch(ctx context.Context) error { return p.launch(ctx) }

// end sends the process a signal and waits for it. How it ends is an error only
// where it was to end by itself.
func (p *Plugin) end(signal os.Signal) error {
	if p.process == nil {
		return nil
	}
	err := p.process.Process.Signal(signal)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.process.ended
	if signal != os.Kill {
		err = errors.Join(err, p.process.err)
	}
	p.process = nil
	if p.conn != nil {
		err = errors.Join(err, p.conn.Close())
		p.conn = nil
	}
	return errors.Join(err, p.log.Close())
}

// Stop ends the process and removes all that it and the machine left. Where it
// did not end well, its folder stays.
func (p *Plugin) Stop() error {
	if err := p.end(os.Interrupt); err != nil {
		p.api.stop()
		return fmt.Errorf("%w; see %s", err, p.path("log"))
	}
	return p.remove()
}

// remove ends what runs and deletes the folders, as far as they were made.
func (p *Plugin) remove() error {
	err := p.end(os.Kill)
	if p.api != nil {
		p.api.stop()
	}
	for _, dir := range []string{p.dir, p.cdi, p.hardware} {
		if dir != "" {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// Machine is the fake machine.
func (p *Plugin) Machine() *fakegpu.Machine { return p.machine }

// PID is the process's.
func (p *Plugin) PID() int { return p.process.Process.Pid }

// PluginsDir is the kubelet's folder for plugins' data.
func (p *Plugin) PluginsDir() string { return p.path("plugins") }

// Devices are the published devices, in the order of publishing.
func (p *Plugin) Devices() []resourceapi.Device { return p.api.devices() }

// Writes is how many writes the API server has got so far, without dry runs and
// statuses.
func (p *Plugin) Writes() int { return p.api.writes() }

// ProcessorTime is how long the process has kept processors busy since it was
// launched, all its threads and the kernel for them.
func (p *Plugin) ProcessorTime() (time.Duration, error) {
	// clock_getcpuclockid(3): of a process, by its id.
	return processorTime(int32(^p.process.Process.Pid<<3 | 2))
}

// OwnProcessorTime is that of this process.
func OwnProcessorTime() (time.Duration, error) { return processorTime(unix.CLOCK_PROCESS_CPUTIME_ID) }

func processorTime(clock int32) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("read a processor time clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// ClaimFiles are the records, specs and metadata of claims that are on the node.
func (p *Plugin) ClaimFiles() ([]string, error) {
	data := filepath.Join(p.path("plugins"), DriverName)
	var files []string
	for _, pattern := range []string{
		filepath.Join(data, "claims", "*.json"), filepath.Join(data, "dra-device-metadata", "*"), filepath.Join(p.cdi, "*"),
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

// Spec is the CDI spec of a claim.
func (p *Plugin) Spec(claim *resourceapi.ResourceClaim) ([]byte, error) {
	return os.ReadFile(filepath.Join(p.cdi, DriverName+"-claim_"+string(claim.UID)+".json"))
}

// LogTail is the end of what the plugin logged.
func (p *Plugin) LogTail() string {
	data, err := os.ReadFile(p.path("log"))
	if err != nil {
		return err.Error()
	}
	const most = 40
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
