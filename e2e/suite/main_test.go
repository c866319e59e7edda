package suite

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"apportion.dev/apportion/e2e/cluster"
	"apportion.dev/apportion/pkg/fake/fakegpu"
)

const (
	driverName = "gpu.apportion.dev"
	// patience is how long a test waits for the cluster to do something. It is
	// long because the machine may be busy; nothing is measured by it.
	patience = 3 * time.Minute

	pluginDir  = "/var/lib/kubelet/plugins/" + driverName
	claimsDir  = pluginDir + "/claims"
	cdiDir     = "/run/cdi"
	machineDir = "/var/lib/apportion/fake"
)

// The cluster, for all tests.
var (
	theCluster *cluster.Cluster
	client     kubernetes.Interface
	restConfig *rest.Config
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "end-to-end tests:", err)
		code = 1
	}
	os.Exit(code)
}

// runAll brings the cluster up, runs the tests and takes the cluster down again,
// also when it is interrupted.
func runAll(m *testing.M) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	options := cluster.Options{Dir: os.Getenv("E2E_CLUSTER_DIR"), Log: os.Stderr}
	keep := options.Dir != ""
	if options.Dir == "" {
		options.Dir = "/var/lib/apportion-e2e"
	}
	theCluster, err = cluster.Up(ctx, options)
	if err != nil {
		return 1, err
	}
	if !keep {
		defer func() {
			err = errors.Join(err, theCluster.Down(context.WithoutCancel(ctx)))
		}()
	}
	if err := theCluster.InstallDriver(ctx, nil); err != nil {
		return 1, err
	}
	if restConfig, err = theCluster.RESTConfig(); err != nil {
		return 1, err
	}
	if client, err = kubernetes.NewForConfig(restConfig); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, removeFaultySource()) }()
	return m.Run(), nil
}

// node returns a node of the cluster and its fake machine.
func node(t *testing.T, name string) (*cluster.Node, *fakegpu.Machine) {
	t.Helper()
	n := theCluster.Node(name)
	if n == nil {
		t.Fatalf("the cluster has no %s", name)
	}
	machine, err := fakegpu.Open(n.BackingPath(machineDir))
	if err != nil {
		t.Fatal(err)
	}
	return n, machine
}

func summary(t *testing.T, machine *fakegpu.Machine) fakegpu.Summary {
	t.Helper()
	s, err := machine.Summary()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// space is a namespace for one test.
type space struct {
	t    *testing.T
	name string
}

var spaces atomic.Int32

// newSpace makes a namespace. When the test ends, it is deleted, and all nodes
// must be as if nothing had ever run.
func newSpace(t *testing.T) *space {
	t.Helper()
	s := &space{t: t, name: fmt.Sprintf("e2e-%d-%d", os.Getpid(), spaces.Add(1))}
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	return s
}

func (s *space) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if s.t.Failed() {
		s.explain(ctx)
	}
	now := int64(1)
	_ = client.CoreV1().Pods(s.name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	if err := client.CoreV1().Namespaces().Delete(ctx, s.name, metav1.DeleteOptions{}); err != nil {
		s.t.Error(err)
	}
	wantNothingLeft(ctx, s.t)
}

// explain prints what helps to understand a failed test.
func (s *space) explain(ctx context.Context) {
	for _, args := range [][]string{
		{"--namespace", s.name, "get", "pods,resourceclaims", "-o", "wide"},
		{"--namespace", s.name, "get", "events", "--sort-by=.lastTimestamp"},
		{"--namespace", cluster.DriverNamespace, "logs", "--selector=app.kubernetes.io/instance=" + cluster.DriverRelease, "--prefix", "--tail=40"},
	} {
		output, err := theCluster.RunKubectl(ctx, nil, args...)
		s.t.Logf("kubectl %s\n%s", strings.Join(args, " "), output)
		if err != nil {
			s.t.Log(err)
		}
	}
}

// wantNothingLeft waits until no node has a claim's record or CDI spec, and no GPU
// a partition or the mode for them.
func wantNothingLeft(ctx context.Context, t *testing.T) {
	t.Helper()
	var left []string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		left = nil
		for _, n := range theCluster.Nodes() {
			files, err := claimFiles(n)
			if err != nil {
				return false, err
			}
			left = append(left, files...)
			partitions, err := partitionsOn(n)
			if err != nil {
				return false, err
			}
			left = append(left, partitions...)
		}
		return len(left) == 0, nil
	})
	if err != nil {
		t.Errorf("left on the nodes: %v (%v)", left, err)
	}
}

// claimFiles lists the records, CDI specs and metadata of claims on a node.
func claimFiles(n *cluster.Node) ([]string, error) {
	var files []string
	for _, pattern := range []string{
		claimsDir + "/*.json", cdiDir + "/" + driverName + "*", pluginDir + "/dra-device-metadata/*",
	} {
		found, err := filepath.Glob(n.BackingPath(pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

// apply makes the objects of a manifest, a text/template with the values given.
func (s *space) apply(manifest string, values map[string]any) {
	s.t.Helper()
	tmpl, err := template.New("manifest").Option("missingkey=error").Parse(manifest)
	if err != nil {
		s.t.Fatal(err)
	}
	var text bytes.Buffer
	if err := tmpl.Execute(&text, values); err != nil {
		s.t.Fatal(err)
	}
	if _, err := theCluster.RunKubectl(s.t.Context(), text.Bytes(), "--namespace", s.name, "apply", "-f", "-"); err != nil {
		s.t.Fatal(err)
	}
}

// waitFor polls until f returns true. what says what is waited for.
func waitFor(t *testing.T, what string, f func(ctx context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		var done bool
		done, last = f(ctx)
		return done, nil
	})
	if err != nil {
		t.Fatalf("%s: %v (last: %v)", what, err, last)
	}
}

func (s *space) pod(name string) *corev1.Pod {
	s.t.Helper()
	pod, err := client.CoreV1().Pods(s.name).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return pod
}

// running waits until the pod runs.
func (s *space) running(name string) *corev1.Pod {
	s.t.Helper()
	waitFor(s.t, "pod "+name+" runs", func(ctx context.Context) (bool, error) {
		pod, err := client.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			s.t.Fatalf("pod %s has ended: %s %s", name, pod.Status.Reason, pod.Status.Message)
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Running == nil {
				return false, fmt.Errorf("container %s: %+v", c.Name, c.State.Waiting)
			}
		}
		return pod.Status.Phase == corev1.PodRunning, fmt.Errorf("phase %s", pod.Status.Phase)
	})
	return s.pod(name)
}

// pending waits until the scheduler has said that the pod fits nowhere.
func (s *space) pending(name string) {
	s.t.Helper()
	waitFor(s.t, "pod "+name+" is found unschedulable", func(ctx context.Context) (bool, error) {
		pod, err := client.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				return true, nil
			}
		}
		return false, fmt.Errorf("conditions %+v", pod.Status.Conditions)
	})
}

// deletePod deletes a pod and waits until it is gone.
func (s *space) deletePod(name string, options metav1.DeleteOptions) {
	s.t.Helper()
	if err := client.CoreV1().Pods(s.name).Delete(s.t.Context(), name, options); err != nil {
		s.t.Fatal(err)
	}
	waitFor(s.t, "pod "+name+" is gone", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
}

// exec runs a shell command in a running container and returns what it printed. A
// kubelet that has just started does not know its pods yet, so it is asked again.
func (s *space) exec(pod, container, command string) string {
	s.t.Helper()
	var output []byte
	waitFor(s.t, fmt.Sprintf("in pod %s: %s", pod, command), func(ctx context.Context) (done bool, err error) {
		output, err = theCluster.RunKubectl(ctx, nil, "--namespace", s.name, "exec", pod, "--container", container, "--", "sh", "-c", command)
		return err == nil, err
	})
	return strings.TrimSpace(string(output))
}

// devices lists the GPUs' device nodes that a container sees, without the
// control nodes that all containers with a GPU have.
func (s *space) devices(pod, container string) []string {
	s.t.Helper()
	return strings.Fields(s.exec(pod, container, `for d in /dev/nvidia[0-9]*; do if [ -c "$d" ]; then echo "$d"; fi; done`))
}

// claims returns the claims that the pod uses, by the pod's name for them.
func (s *space) claimOf(pod *corev1.Pod, entry string) *resourceapi.ResourceClaim {
	s.t.Helper()
	name := ""
	for _, c := range pod.Spec.ResourceClaims {
		if c.Name == entry && c.ResourceClaimName != nil {
			name = *c.ResourceClaimName
		}
	}
	for _, c := range pod.Status.ResourceClaimStatuses {
		if c.Name == entry && c.ResourceClaimName != nil {
			name = *c.ResourceClaimName
		}
	}
	claim, err := client.ResourceV1().ResourceClaims(s.name).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return claim
}

// slices returns a node's slices by name, in order.
func slicesOf(t *testing.T, nodeName string) []resourceapi.ResourceSlice {
	t.Helper()
	list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + nodeName,
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// device returns a published device.
func device(t *testing.T, nodeName, name string) resourceapi.Device {
	t.Helper()
	for _, slice := range slicesOf(t, nodeName) {
		for _, d := range slice.Spec.Devices {
			if d.Name == name {
				return d
			}
		}
	}
	t.Fatalf("%s has no device %s", nodeName, name)
	return resourceapi.Device{}
}
