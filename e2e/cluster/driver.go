package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/e2e/chart"
	"apportion.dev/apportion/e2e/image"
)

// What the driver is installed as.
const (
	DriverRelease   = "apportion"
	DriverNamespace = "apportion-system"
	defaultDriver   = "gpu.apportion.dev"
)

// InstallDriver builds the driver's image from the repository, loads it into all
// nodes, and applies the chart with values over those of a cluster of fake GPUs. It
// returns when all its pods are ready and the devices of each node are published. A
// driver that is installed already is updated.
func (c *Cluster) InstallDriver(ctx context.Context, values map[string]any) error {
	return c.InstallDriverFrom(ctx, c.sourceDir, values)
}

// InstallDriverFrom does as InstallDriver with the driver and chart of another copy
// of the repository, such as one with fault points.
func (c *Cluster) InstallDriverFrom(ctx context.Context, source string, values map[string]any) error {
	// The programs of the fake machines' driver are scripts. Up made sure of it.
	shell, err := exec.LookPath(busybox)
	if err != nil {
		return fmt.Errorf("find the program busybox: %w", err)
	}
	tar, err := image.BuildFakeDriver(ctx, source, filepath.Join(c.binDir, "driver"), shell, c.log)
	if err != nil {
		return err
	}
	digest, err := fileDigest(tar)
	if err != nil {
		return err
	}
	c.say("loading the driver's image into %d nodes", len(c.nodes))
	if err := c.LoadImage(ctx, tar); err != nil {
		return err
	}
	merged := merge(c.driverValues(digest), values)
	manifests, err := chart.Render(filepath.Join(source, "deployments", "helm", "apportion"),
		chart.Release{Name: DriverRelease, Namespace: DriverNamespace}, merged)
	if err != nil {
		return err
	}
	namespace := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n", DriverNamespace)
	c.say("applying the chart")
	if err := c.Apply(ctx, append([]byte(namespace), manifests...)); err != nil {
		return fmt.Errorf("apply the driver's chart: %w", err)
	}
	driver, ok := merged["driverName"].(string)
	if !ok || driver == "" {
		driver = defaultDriver
	}
	return c.waitDriver(ctx, driver)
}

// driverValues are the chart's values for this cluster. The digest in the pods'
// annotations replaces the pods when only the content of the image has changed.
func (c *Cluster) driverValues(digest string) map[string]any {
	repository, tag, _ := strings.Cut(image.DriverName, ":")
	var gpus []string
	for _, node := range c.nodes {
		if node.FakeGPUs != "" {
			gpus = append(gpus, node.Name+"="+node.FakeGPUs)
		}
	}
	annotations := map[string]any{"apportion.dev/image-digest": digest}
	return map[string]any{
		"image":          map[string]any{"repository": repository, "tag": tag, "pullPolicy": "Never"},
		"fake":           map[string]any{"enabled": true, "gpus": strings.Join(gpus, ";")},
		"podAnnotations": annotations,
		"webhook":        map[string]any{"podAnnotations": annotations},
		"exporter":       map[string]any{"podAnnotations": annotations},
	}
}

// waitDriver waits until the driver's pods are ready and each node's devices are
// published.
func (c *Cluster) waitDriver(ctx context.Context, driver string) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	c.say("waiting for the driver on all nodes")
	started := time.Now()
	err = c.waitReady(ctx, 2*time.Minute, func(ctx context.Context) error {
		sets, err := client.AppsV1().DaemonSets(DriverNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(sets.Items) == 0 {
			return errors.New("the chart made no DaemonSet")
		}
		for _, set := range sets.Items {
			if err := rolledOut(&set, len(c.nodes)); err != nil {
				return err
			}
		}
		deployments, err := client.AppsV1().Deployments(DriverNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, deployment := range deployments.Items {
			if err := deployed(&deployment); err != nil {
				return err
			}
		}
		slices, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
			FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + driver,
		})
		if err != nil {
			return err
		}
		return c.published(slices.Items)
	}, c.process(apiServer))
	if err != nil {
		return fmt.Errorf("the driver %s does not get ready: %w\n%s", driver, err, c.driverTrouble(context.WithoutCancel(ctx)))
	}
	c.say("the driver runs on all nodes after %s", since(started))
	return nil
}

// rolledOut fails unless the newest version of a DaemonSet is ready on n nodes.
func rolledOut(set *appsv1.DaemonSet, n int) error {
	status := set.Status
	if status.ObservedGeneration < set.Generation || int(status.DesiredNumberScheduled) != n ||
		int(status.UpdatedNumberScheduled) != n || int(status.NumberReady) != n {
		return fmt.Errorf("DaemonSet %s: %d of %d pods are ready", set.Name, status.NumberReady, n)
	}
	return nil
}

// deployed fails unless all pods of the newest version of a Deployment are ready,
// and no others are left.
func deployed(d *appsv1.Deployment) error {
	status, n := d.Status, ptr.Deref(d.Spec.Replicas, 1)
	if status.ObservedGeneration < d.Generation || status.Replicas != n || status.UpdatedReplicas != n || status.ReadyReplicas != n {
		return fmt.Errorf("the Deployment %s: %d of %d pods are ready", d.Name, status.ReadyReplicas, n)
	}
	return nil
}

// published fails unless each node has all slices of its pool.
func (c *Cluster) published(slices []resourceapi.ResourceSlice) error {
	for _, node := range c.nodes {
		var generation, want, have int64
		for _, slice := range slices {
			if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node.Name {
				continue
			}
			pool := slice.Spec.Pool
			switch {
			case pool.Generation > generation || have == 0:
				generation, want, have = pool.Generation, pool.ResourceSliceCount, 1
			case pool.Generation == generation:
				have++
			}
		}
		if have == 0 || have != want {
			return fmt.Errorf("node %s has published %d of %d ResourceSlices", node.Name, have, want)
		}
	}
	return nil
}

// driverTrouble collects what tells why the driver's pods are not ready.
func (c *Cluster) driverTrouble(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var text strings.Builder
	for _, arguments := range [][]string{
		{"get", "pods", "-o", "wide"},
		{"get", "events", "--field-selector", "type=Warning"},
		{"logs", "--selector=app.kubernetes.io/instance=" + DriverRelease, "--all-containers", "--prefix", "--tail=10"},
	} {
		output, err := c.RunKubectl(ctx, nil, append([]string{"--namespace", DriverNamespace}, arguments...)...)
		text.Write(output)
		if err != nil {
			fmt.Fprintln(&text, err)
		}
	}
	return strings.TrimSpace(text.String())
}

// merge returns the values of base with those of over in their place, map by map.
func merge(base, over map[string]any) map[string]any {
	merged := map[string]any{}
	for key, value := range base {
		merged[key] = value
	}
	for key, value := range over {
		lower, isMap := merged[key].(map[string]any)
		if upper, ok := value.(map[string]any); ok && isMap {
			value = merge(lower, upper)
		}
		merged[key] = value
	}
	return merged
}

func fileDigest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}
