package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"apportion.dev/apportion/pkg/fakegpu"
)

const driverName = "gpu.apportion.dev"

// plugin is a running driver and what it needs.
type plugin struct {
	program, dir string
	cdi          string
	api          *apiServer
	command      *exec.Cmd
	log          *os.File
	conn         *grpc.ClientConn
	next         int
}

// startPlugin runs the program on a fake machine with n GPUs and waits until it
// has published them.
func startPlugin(ctx context.Context, program, parent string, n int) (*plugin, error) {
	dir, err := os.MkdirTemp(parent, "bench-")
	if err != nil {
		return nil, err
	}
	p := &plugin{program: program, dir: dir}
	for _, name := range []string{"plugins", "registry"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	// CDI specs lie below /run, which is a tmpfs on any node.
	if p.cdi, err = os.MkdirTemp("/dev/shm", "bench-cdi-"); err != nil {
		return nil, err
	}
	gpus, err := fakegpu.ParseGPUs(fmt.Sprintf("h100-sxm5-80gb:%d", n))
	if err != nil {
		return nil, err
	}
	if _, err := fakegpu.Create(filepath.Join(dir, "machine"), fakegpu.Spec{Node: "bench", DriverVersion: "580.95.05", GPUs: gpus}); err != nil {
		return nil, err
	}
	if p.api, err = startAPIServer(); err != nil {
		return nil, err
	}
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":%q}}]}`, p.api.url)
	if err := os.WriteFile(p.path("kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
		return nil, err
	}
	return p, p.start(ctx)
}

func (p *plugin) path(name string) string { return filepath.Join(p.dir, name) }

// start runs the process and waits until its slices are published and it
// answers.
func (p *plugin) start(ctx context.Context) (err error) {
	if p.log, err = os.OpenFile(p.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	synced := p.api.synced()
	p.command = exec.Command(p.program,
		"--node-name=bench", "--driver-name="+driverName, "--fake-machine="+p.path("machine"), "--cdi-root="+p.cdi,
		"--kubelet-plugins-directory-path="+p.path("plugins"), "--kubelet-registrar-directory-path="+p.path("registry"),
		"--cdi-hook-path=", "--healthcheck-port=-1", "--metrics-address=", "--kubeconfig="+p.path("kubeconfig"))
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := p.command.Start(); err != nil {
		return err
	}
	select {
	case <-synced:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Minute):
		return fmt.Errorf("the plugin published nothing within a minute, see %s", p.path("log"))
	}
	p.conn, err = grpc.NewClient("unix://"+filepath.Join(p.path("plugins"), driverName, "dra.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	_, err = drapb.NewDRAPluginClient(p.conn).NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{}, grpc.WaitForReady(true))
	return err
}

// halt ends the process and waits for it.
func (p *plugin) halt() error {
	err := join(p.conn.Close(), p.command.Process.Signal(os.Interrupt))
	return errors.Join(err, p.command.Wait(), p.log.Close())
}

func (p *plugin) restart(ctx context.Context) error {
	if err := p.halt(); err != nil {
		return err
	}
	return p.start(ctx)
}

func (p *plugin) stop() error {
	err := p.halt()
	p.api.stop()
	if err != nil {
		return fmt.Errorf("%w; see %s", err, p.path("log"))
	}
	return errors.Join(os.RemoveAll(p.dir), os.RemoveAll(p.cdi))
}

// timings are how long each call took.
type timings struct{ prepare, unprepare []time.Duration }

// measure prepares and unprepares n claims at once on as many GPUs, and that
// rounds times. Each claim is a call of its own, as the kubelet makes one per pod.
func (p *plugin) measure(ctx context.Context, rounds, n int) (timings, error) {
	var result timings
	client := drapb.NewDRAPluginClient(p.conn)
	devices := p.api.devices()
	for round := range rounds + 5 {
		claims := make([]*drapb.Claim, n)
		for i := range claims {
			p.next++
			uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", p.next)
			claims[i] = &drapb.Claim{Namespace: "bench", Name: "claim-" + uid, Uid: uid}
			if err := p.api.addClaim(claims[i].Name, uid, devices[i]); err != nil {
				return result, err
			}
		}
		prepared, err := together(claims, func(c *drapb.Claim) error {
			r, err := client.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{c}})
			if err == nil && r.Claims[c.Uid].Error != "" {
				err = errors.New(r.Claims[c.Uid].Error)
			}
			return err
		})
		if err != nil {
			return result, err
		}
		unprepared, err := together(claims, func(c *drapb.Claim) error {
			r, err := client.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{c}})
			if err == nil && r.Claims[c.Uid].Error != "" {
				err = errors.New(r.Claims[c.Uid].Error)
			}
			return err
		})
		if err != nil {
			return result, err
		}
		if round < 5 {
			continue // Warming up.
		}
		result.prepare = append(result.prepare, prepared...)
		result.unprepare = append(result.unprepare, unprepared...)
	}
	return result, nil
}

// together makes all calls at once and returns how long each took.
func together(claims []*drapb.Claim, call func(*drapb.Claim) error) ([]time.Duration, error) {
	took, errs := make([]time.Duration, len(claims)), make([]error, len(claims))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() {
			<-start
			began := time.Now()
			errs[i] = call(c)
			took[i] = time.Since(began)
		})
	}
	close(start)
	wg.Wait()
	return took, errors.Join(errs...)
}

// join is errors.Join that takes the end of an interrupted process for normal.
func join(errs ...error) error {
	var kept []error
	for _, err := range errs {
		if err != nil && !strings.Contains(err.Error(), "process already finished") {
			kept = append(kept, err)
		}
	}
	return errors.Join(kept...)
}
