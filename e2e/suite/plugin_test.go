package suite

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/e2e/cluster"
)

// program is the name of the plugin's process.
const program = "apportion-kubelet-plugin"

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// findPluginPod returns the plugin's pod of a node that is not being deleted.
func findPluginPod(ctx context.Context, n *cluster.Node) (*corev1.Pod, error) {
	pods, err := client.CoreV1().Pods(cluster.DriverNamespace).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + n.Name, LabelSelector: "app.kubernetes.io/component=kubelet-plugin,app.kubernetes.io/instance=" + cluster.DriverRelease,
	})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i], nil
		}
	}
	return nil, fmt.Errorf("%s has no plugin", n.Name)
}

func pluginPod(t *testing.T, n *cluster.Node) *corev1.Pod {
	t.Helper()
	pod, err := findPluginPod(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// restarts counts how often the plugin's container was started anew.
func restarts(pod *corev1.Pod) int32 {
	var n int32
	for _, c := range pod.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// killPlugin kills the plugin's process as the kernel would, and waits until the
// kubelet has started it again.
func killPlugin(t *testing.T, n *cluster.Node) {
	t.Helper()
	before := pluginPod(t, n)
	if err := n.Signal(t.Context(), "KILL", program); err != nil {
		t.Fatal(err)
	}
	pluginIsBack(t, n, before)
}

// pluginIsBack waits until the plugin has been started anew and is ready.
func pluginIsBack(t *testing.T, n *cluster.Node, before *corev1.Pod) {
	t.Helper()
	waitFor(t, "the plugin is started again", func(ctx context.Context) (bool, error) {
		pod, err := findPluginPod(ctx, n)
		if err != nil {
			return false, err
		}
		again := pod.UID != before.UID || restarts(pod) > restarts(before)
		return again && ready(pod), fmt.Errorf("pod %s: ready %t, restarts %d", pod.Name, ready(pod), restarts(pod))
	})
}
