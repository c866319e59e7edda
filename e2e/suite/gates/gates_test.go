// Package gates tests the driver on clusters in which feature gates are off. Each
// test starts a cluster of its own, so they run only when they are asked for.
package gates

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/e2e/cluster"
)

const (
	class    = "gpu.apportion.dev"
	migClass = "mig.apportion.dev"
	nodeName = "node-a"
	patience = 3 * time.Minute
	// gpus is how many H100 the node has.
	gpus = 2
)

func TestWhatIsOfferedWhereAGateIsOff(t *testing.T) {
	if os.Getenv("APPORTION_CLUSTER_TEST") == "" {
		t.Skip("needs root and minutes for two clusters; set APPORTION_CLUSTER_TEST=1 to run it")
	}
	tests := []struct {
		gate string
		// off are gates that cannot be on without it.
		off                []string
		partitions, shares bool
	}{
		{gate: "DRAPartitionableDevices", shares: true},
		{gate: "DRAConsumableCapacity", off: []string{"DRAFractionalCapacityRange"}, partitions: true},
	}
	for _, test := range tests {
		t.Run(test.gate, func(t *testing.T) {
			off := map[string]bool{test.gate: false}
			for _, gate := range test.off {
				off[gate] = false
			}
			g := start(t, off)
			g.wantEventAboutNode(test.gate)
			whole, partitions, shareable := g.published()
			if whole != gpus {
				t.Errorf("%d whole GPUs are offered, want %d", whole, gpus)
			}
			if (partitions > 0) != test.partitions {
				t.Errorf("%d partitions are offered, want some: %t", partitions, test.partitions)
			}
			if (shareable > 0) != test.shares {
				t.Errorf("%d devices can be shared, want some: %t", shareable, test.shares)
			}

			g.pod("whole", resourceapi.ExactDeviceRequest{DeviceClassName: class})
			g.running("whole")
			g.pod("partition", resourceapi.ExactDeviceRequest{DeviceClassName: migClass})
			if test.partitions {
				g.running("partition")
			} else {
				g.unschedulable("partition")
			}
			g.delete("whole", "partition")

			// Where there are no shares, one who asks for a share has a GPU alone.
			share := resourceapi.ExactDeviceRequest{DeviceClassName: class, Capacity: &resourceapi.CapacityRequirements{
				Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("10Gi")},
			}}
			held := map[string]int{}
			for i := range gpus {
				name := fmt.Sprintf("share-%d", i)
				g.pod(name, share)
				g.running(name)
				held[g.device(name)]++
			}
			if test.shares != (len(held) == 1) {
				t.Errorf("the shares are of %v", held)
			}
		})
	}
}

// rig is a cluster of one node with the driver.
type rig struct {
	t       *testing.T
	cluster *cluster.Cluster
	client  kubernetes.Interface
}

func start(t *testing.T, featureGates map[string]bool) *rig {
	t.Helper()
	options := cluster.Options{
		Dir: "/var/lib/apportion-gates", Log: os.Stderr, FeatureGates: featureGates,
		Nodes: []cluster.NodeSpec{{Name: nodeName, FakeGPUs: fmt.Sprintf("h100-sxm5-80gb:%d", gpus)}},
	}
	t.Cleanup(func() {
		if err := cluster.Down(context.Background(), options.Dir, os.Stderr); err != nil {
			t.Error(err)
		}
	})
	c, err := cluster.Up(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.InstallDriver(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, cluster: c, client: client}
}

func (r *rig) wait(what string, f func(context.Context) (bool, error)) {
	r.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(r.t.Context(), 200*time.Millisecond, patience, true, func(ctx context.Context) (done bool, _ error) {
		done, last = f(ctx)
		return done, nil
	})
	if err != nil {
		r.t.Fatalf("%s: %v (last: %v)", what, err, last)
	}
}

func (r *rig) wantEventAboutNode(text string) {
	r.t.Helper()
	r.wait("an Event on the node names "+text, func(ctx context.Context) (bool, error) {
		events, err := r.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + nodeName + ",type=Warning",
		})
		if err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, text) {
				return true, nil
			}
		}
		return false, fmt.Errorf("%d events", len(events.Items))
	})
}

// published counts the whole GPUs, the partitions, and the devices that several
// claims may have.
func (r *rig) published() (whole, partitions, shareable int) {
	r.t.Helper()
	list, err := r.client.ResourceV1().ResourceSlices().List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, slice := range list.Items {
		for _, d := range slice.Spec.Devices {
			switch kind := d.Attributes["type"].StringValue; {
			case kind == nil:
				r.t.Errorf("%s has no type", d.Name)
			case *kind == "gpu":
				whole++
			case *kind == "mig":
				partitions++
			}
			if ptr.Deref(d.AllowMultipleAllocations, false) {
				shareable++
			}
		}
	}
	return whole, partitions, shareable
}

// pod makes a pod with a claim for one device.
func (r *rig) pod(name string, request resourceapi.ExactDeviceRequest) {
	r.t.Helper()
	_, err := r.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Create(r.t.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &request}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = r.client.CoreV1().Pods(metav1.NamespaceDefault).Create(r.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			ResourceClaims:                []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
			Containers: []corev1.Container{{
				Name: "work", Image: cluster.BusyboxImage,
				Command:   []string{"sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"},
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) running(name string) {
	r.t.Helper()
	if _, err := r.cluster.RunKubectl(r.t.Context(), nil, "wait", "--for=condition=Ready", "--timeout="+patience.String(), "pod/"+name); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) unschedulable(name string) {
	r.t.Helper()
	if _, err := r.cluster.RunKubectl(r.t.Context(), nil, "wait", "--for=condition=PodScheduled=False", "--timeout="+patience.String(), "pod/"+name); err != nil {
		r.t.Fatal(err)
	}
}

// delete deletes pods with their claims and waits until both are gone.
func (r *rig) delete(pods ...string) {
	r.t.Helper()
	for _, kind := range []string{"pod", "resourceclaim"} {
		if _, err := r.cluster.RunKubectl(r.t.Context(), nil, append([]string{"delete", kind}, pods...)...); err != nil {
			r.t.Fatal(err)
		}
	}
}

// device is the one that a pod's claim has.
func (r *rig) device(claim string) string {
	r.t.Helper()
	got, err := r.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Get(r.t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	if got.Status.Allocation == nil || len(got.Status.Allocation.Devices.Results) != 1 {
		r.t.Fatalf("claim %s has the allocation %+v", claim, got.Status.Allocation)
	}
	return got.Status.Allocation.Devices.Results[0].Device
}
