package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Up starts a cluster, or returns the one that is up already; it returns when all
// nodes are ready. The programs it needs are built first, which takes minutes the
// first time. What an earlier cluster in the same folder left behind, because it
// was killed or the host was booted, is removed first. It needs root.
//
// If it fails, everything is stopped and removed but the logs in Dir/logs.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := requireRoot(); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, o.Dir, o.Log)
	if err != nil {
		return nil, err
	}
	defer unlock()

	running, err := reuse(ctx, o)
	if running != nil || err != nil {
		return running, err
	}
	build := &builder{source: o.SourceDir, bin: o.BinDir, log: o.Log}
	if err := build.all(ctx); err != nil {
		return nil, err
	}
	layout, err := freeNetwork()
	if err != nil {
		return nil, err
	}
	c := newCluster(o.Dir, state{
		specification: specification{Nodes: o.Nodes, FeatureGates: o.FeatureGates},
		BinDir:        o.BinDir, SourceDir: o.SourceDir, Network: layout.number,
	}, o.Log)
	if err := c.start(ctx); err != nil {
		// The caller's context may be what ended it, and cleaning up must not be.
		cleanup := c.stop(context.WithoutCancel(ctx))
		if cleanup == nil {
			cleanup = clearFolder(c.dir, logsFolder)
		}
		return nil, errors.Join(fmt.Errorf("start the cluster: %w (logs: %s)", err, filepath.Join(c.dir, logsFolder)), cleanup)
	}
	return c, nil
}

// reuse returns the cluster that is up, if it is whole and what the options ask
// for; nil, after what is left of one is removed, if there is none.
func reuse(ctx context.Context, o Options) (*Cluster, error) {
	recorded, err := readState(o.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, reset(ctx, o.Dir, nil)
	} else if err != nil {
		return nil, err
	}
	c := newCluster(o.Dir, recorded, o.Log)
	dead, all := 0, c.processes()
	for _, process := range all {
		if process.pid() == 0 {
			dead++
		}
	}
	if dead > 0 {
		c.say("removing what an earlier cluster left in %s (%d of its %d programs do not run)", c.dir, dead, len(all))
		return nil, reset(ctx, o.Dir, c)
	}
	if !c.matches(o) {
		return nil, fmt.Errorf("another cluster, with other nodes or feature gates, is up in %s: stop it with localcluster down, or use another folder", o.Dir)
	}
	c.say("the cluster in %s is up already", c.dir)
	return c, c.waitPods(ctx)
}

// start starts everything; the programs are built.
func (c *Cluster) start(ctx context.Context) error {
	started := time.Now()
	if err := c.writeState(); err != nil {
		return err
	}
	if err := c.prepare(); err != nil {
		return err
	}
	c.say("starting the control plane and %d nodes", len(c.nodes))
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startControlPlane(inner) })
	for _, node := range c.nodes {
		group.Go(func() error { return c.startRuntime(inner, node) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c.say("the API server and the container runtimes serve after %s; starting the kubelets", since(started))
	group, inner = errgroup.WithContext(ctx)
	for _, node := range c.nodes {
		group.Go(func() error { return node.StartKubelet(inner) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := c.waitPods(ctx); err != nil {
		return err
	}
	c.say("all nodes are ready after %s", since(started))
	return nil
}

// prepare makes what the programs need: files, control groups, machines.
func (c *Cluster) prepare() error {
	ca, err := c.writeControlPlaneFiles()
	if err != nil {
		return err
	}
	if err := c.writeKubectl(); err != nil {
		return err
	}
	if err := mountPointsOf(c.dir).make(nodeFolders); err != nil {
		return fmt.Errorf("make places to mount on: %w", err)
	}
	var names []string
	for _, node := range c.nodes {
		names = append(names, node.Name)
	}
	if err := makeGroups(groupName(c.dir), names); err != nil {
		return err
	}
	if err := c.controlPlane.boot(c.binary(pause)); err != nil {
		return err
	}
	if err := c.network.connectControlPlane(c.controlPlane); err != nil {
		return err
	}
	if err := c.chooseSnapshotter(); err != nil {
		return err
	}
	for _, node := range c.nodes {
		if err := node.writeFiles(ca); err != nil {
			return fmt.Errorf("configure %s: %w", node.Name, err)
		}
		if err := node.boot(); err != nil {
			return err
		}
	}
	return nil
}

// chooseSnapshotter takes overlayfs where the cluster's folder is on a file system
// that serves for it, and copies of whole images elsewhere.
func (c *Cluster) chooseSnapshotter() error {
	probe := filepath.Join(c.dir, "probe")
	for _, folder := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(probe, folder), 0o755); err != nil {
			return err
		}
	}
	c.snapshotter = "overlayfs"
	err := c.controlPlane.inside(func() error {
		merged := probe + "/merged"
		options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", probe)
		if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
			return err
		}
		return unix.Unmount(merged, 0)
	})
	if err != nil {
		c.say("overlayfs does not work in %s (%v): containers get copies of their images, which is slower", c.dir, err)
		c.snapshotter = "native"
	}
	return os.RemoveAll(probe)
}

// startRuntime starts a node's containerd and loads the images that every cluster has.
func (c *Cluster) startRuntime(ctx context.Context, node *Node) error {
	if err := node.StartContainerd(ctx); err != nil {
		return err
	}
	for _, name := range []string{pause, busybox} {
		if err := node.LoadImage(ctx, imagePath(c.binDir, name)); err != nil {
			return err
		}
	}
	return nil
}

// waitPods waits until pods can be made and run: all nodes are ready, and the
// controller manager has made the service account that pods get by default.
func (c *Cluster) waitPods(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return c.waitReady(ctx, time.Minute, func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return err
		}, c.process(scheduler), c.process(controllerManager))
	})
	for _, node := range c.nodes {
		group.Go(func() error {
			return c.waitReady(ctx, time.Minute, func(ctx context.Context) error {
				object, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				return nodeReady(object)
			}, c.process(apiServer), node.containerd(), node.kubelet())
		})
	}
	return group.Wait()
}

func nodeReady(node *corev1.Node) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		} else if condition.Type == corev1.NodeReady {
			return fmt.Errorf("node %s: %s", node.Name, condition.Message)
		}
	}
	return fmt.Errorf("node %s has no status yet", node.Name)
}

func requireRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("the local cluster needs root, for namespaces, mounts and control groups: run it again with sudo")
	}
	return nil
}

// lock keeps other programs from starting or stopping the cluster in dir, which it
// makes. The lock is on the folder itself, so nothing is left when the folder goes.
func lock(ctx context.Context, dir string, log io.Writer) (unlock func(), err error) {
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		folder, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		if err := flock(ctx, folder, log); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), folder.Close())
		}
		// It may have been removed, and made again, while this one waited.
		held, err := folder.Stat()
		if err != nil {
			return nil, errors.Join(err, folder.Close())
		}
		if now, err := os.Stat(dir); err == nil && os.SameFile(held, now) {
			return func() { _ = folder.Close() }, nil
		}
		if err := folder.Close(); err != nil {
			return nil, err
		}
	}
}

// flock waits for an exclusive lock until the context ends; the kernel has no wait
// that a context could end.
func flock(ctx context.Context, file *os.File, log io.Writer) error {
	told := false
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			if !told {
				_, _ = fmt.Fprintf(log, "waiting for another program that starts or stops the cluster in %s\n", file.Name())
				told = true
			}
			return false, nil
		}
		return err == nil, err
	})
}

func since(start time.Time) time.Duration { return time.Since(start).Round(100 * time.Millisecond) }
