package cluster

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// grace is how long a program may take to end after SIGTERM.
const grace = 10 * time.Second

// Node is one node of the cluster: a machine with a containerd and a kubelet.
type Node struct {
	// Name is the node's name in the API.
	Name string
	// FakeGPUs are the products of the node's fake GPUs, such as
	// "h100-sxm5-80gb:2"; empty for none.
	FakeGPUs string

	cluster *Cluster
	index   int
	labels  map[string]string
	machine machine
}

func (n *Node) root() string              { return filepath.Join(n.cluster.dir, n.Name) }
func (n *Node) config(file string) string { return filepath.Join(n.root(), "config", file) }
func (n *Node) kubelet() process          { return n.cluster.process(n.Name + ".kubelet") }
func (n *Node) containerd() process       { return n.cluster.process(n.Name + ".containerd") }

// Address is the node's internal address, which the host reaches too.
func (n *Node) Address() string { return n.cluster.network.node(n.index) }

// BackingPath returns where the node's file path lies on the host. It holds for
// the node's own folders: below /var/lib/kubelet, /run/cdi, /etc/cdi,
// /var/lib/apportion, /var/log/pods and the like. What is mounted on the node
// below these is not seen on the host.
func (n *Node) BackingPath(path string) string { return backing(n.root(), path) }

// Exec runs a program on the node, in its mount, process and network namespaces,
// and returns what it printed. The error, if any, holds what it printed on stderr.
func (n *Node) Exec(ctx context.Context, argv ...string) ([]byte, error) {
	return n.machine.run(ctx, nil, argv...)
}

// writeFiles makes the configuration of the node's programs.
func (n *Node) writeFiles(ca *authority) error {
	kubelet, err := n.kubeletConfig()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"containerd.toml":     []byte(n.containerdConfig()),
		"kubelet.yaml":        kubelet,
		"cni/10-ptp.conflist": []byte(n.networkConfig()),
		"ca.crt":              ca.encoded,
	}
	for name, data := range files {
		if err := writeFile(n.config(name), data, 0o644); err != nil {
			return err
		}
	}
	certificate, key, err := ca.issue(pkix.Name{CommonName: n.Name}, n.Name, n.Address())
	if err != nil {
		return err
	}
	return errors.Join(
		writeFile(n.config("kubelet.crt"), certificate, 0o644),
		writeFile(n.config("kubelet.key"), key, 0o600),
		ca.writeKubeconfig(n.config("kubeconfig"), inClusterServer,
			pkix.Name{CommonName: "system:node:" + n.Name, Organization: []string{"system:nodes"}}),
	)
}

// boot starts the node's machine; the node's programs are not started.
func (n *Node) boot() error {
	if err := prepareNodeFiles(n.root(), uuid.NewString()); err != nil {
		return fmt.Errorf("make the folders of %s: %w", n.Name, err)
	}
	if err := n.machine.boot(n.cluster.binary(pause)); err != nil {
		return err
	}
	if err := n.machine.inside(func() error { return mountNode(n.root()) }); err != nil {
		return fmt.Errorf("set up the folders of %s: %w", n.Name, err)
	}
	return n.cluster.network.connectNode(n.cluster.controlPlane, n.machine, n.index)
}

// StartContainerd starts the node's containerd and waits until it serves.
func (n *Node) StartContainerd(ctx context.Context) error {
	err := n.machine.launch(n.containerd(), n.cluster.binary("containerd"), "--config", n.config("containerd.toml"))
	if err != nil {
		return err
	}
	return n.cluster.waitReady(ctx, 30*time.Second, func(ctx context.Context) error {
		_, err := n.Exec(ctx, "ctr", "version")
		return err
	}, n.containerd())
}

// StopContainerd stops the node's containerd. Its containers run on.
func (n *Node) StopContainerd(ctx context.Context) error { return n.containerd().stop(ctx, grace) }

// RestartContainerd stops containerd and starts it again. Its containers run on.
func (n *Node) RestartContainerd(ctx context.Context) error {
	if err := n.StopContainerd(ctx); err != nil {
		return err
	}
	return n.StartContainerd(ctx)
}

// StartKubelet starts the node's kubelet and waits until it says that it is healthy.
func (n *Node) StartKubelet(ctx context.Context) error {
	if err := n.machine.launch(n.kubelet(), n.kubeletArguments()...); err != nil {
		return err
	}
	config, err := n.cluster.RESTConfig()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return n.cluster.waitReady(ctx, time.Minute, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+n.Address()+":10250/healthz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("its health check answers %s", response.Status)
		}
		return errors.Join(err, response.Body.Close())
	}, n.kubelet())
}

// StopKubelet stops the node's kubelet. Its pods run on.
func (n *Node) StopKubelet(ctx context.Context) error { return n.kubelet().stop(ctx, grace) }

// RestartKubelet stops the kubelet and starts it again. Its pods run on.
func (n *Node) RestartKubelet(ctx context.Context) error {
	if err := n.StopKubelet(ctx); err != nil {
		return err
	}
	return n.StartKubelet(ctx)
}

// Reboot ends everything on the node at once, as a power cut does, and starts it
// again: with a new boot id, empty volatile folders (/run/cdi, /run/containerd) and
// the rest of its files as they were. It returns when the kubelet is healthy.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.machine.holder.stop(ctx, 0); err != nil {
		return err
	}
	for _, folder := range volatileFolders {
		if err := os.RemoveAll(n.BackingPath(folder)); err != nil {
			return fmt.Errorf("empty %s of %s: %w", folder, n.Name, err)
		}
	}
	if err := n.boot(); err != nil {
		return err
	}
	if err := n.StartContainerd(ctx); err != nil {
		return err
	}
	return n.StartKubelet(ctx)
}

// LoadImage loads the images of a tar, as e2e/image writes them, into the node's
// containerd.
func (n *Node) LoadImage(ctx context.Context, tarPath string) error {
	tar, err := os.Open(tarPath)
	if err != nil {
		return err
	}
	defer tar.Close()
	// --local: the transfer service refuses images that name no platform.
	_, err = n.machine.run(ctx, tar, "ctr", "--namespace", "k8s.io", "images", "import", "--local", "-")
	if err != nil {
		return fmt.Errorf("load the image %s: %w", tarPath, err)
	}
	return nil
}

// LoadImage loads the images of a tar into all nodes.
func (c *Cluster) LoadImage(ctx context.Context, tarPath string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.nodes {
		group.Go(func() error { return node.LoadImage(ctx, tarPath) })
	}
	return group.Wait()
}

// Signal sends a signal, such as "KILL", to the processes on the node whose
// program file has the given name, such as "apportion-kubelet-plugin". It is an
// error if there is none.
func (n *Node) Signal(ctx context.Context, signal, program string) error {
	pids, err := n.pids(program)
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		return fmt.Errorf("no process %s on %s", program, n.Name)
	}
	_, err = n.Exec(ctx, append([]string{"kill", "-" + signal}, pids...)...)
	return err
}

// pids returns the ids, on the node, of the processes that run a program.
func (n *Node) pids(program string) ([]string, error) {
	var pids []string
	err := n.machine.inside(func() error {
		commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		for _, path := range commands {
			line, err := os.ReadFile(path)
			if err != nil {
				continue // it has ended
			}
			first, _, _ := strings.Cut(string(line), "\x00")
			if filepath.Base(first) == program {
				pids = append(pids, filepath.Base(filepath.Dir(path)))
			}
		}
		return nil
	})
	return pids, err
}
