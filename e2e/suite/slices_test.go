package suite

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"apportion.dev/apportion/e2e/cluster"
)

func TestSlicesAreCompleteAndSorted(t *testing.T) {
	tests := []struct {
		node, product, memory string
		gpus                  int
	}{
		{"node-a", "NVIDIA H100 80GB HBM3", "81559Mi", 8},
		{"node-b", "NVIDIA A100-SXM4-40GB", "40960Mi", 2},
	}
	for _, test := range tests {
		t.Run(test.node, func(t *testing.T) {
			published := slicesOf(t, test.node)
			var gpus []resourceapi.Device
			for _, slice := range published {
				if int(slice.Spec.Pool.ResourceSliceCount) != len(published) {
					t.Errorf("slice %s says that there are %d, there are %d", slice.Name, slice.Spec.Pool.ResourceSliceCount, len(published))
				}
				if slice.Spec.Pool.Name != test.node || slice.Spec.Driver != driverName {
					t.Errorf("slice %s is of pool %s, driver %s", slice.Name, slice.Spec.Pool.Name, slice.Spec.Driver)
				}
				for _, d := range slice.Spec.Devices {
					if text(d, "type") == "gpu" {
						gpus = append(gpus, d)
					}
				}
			}
			if len(gpus) != test.gpus {
				t.Fatalf("%d GPUs, want %d", len(gpus), test.gpus)
			}
			var addresses []string
			for _, d := range gpus {
				if got := *d.Attributes["productName"].StringValue; got != test.product {
					t.Errorf("%s is a %s, want %s", d.Name, got, test.product)
				}
				memory := d.Capacity["memory"].Value
				if memory.Cmp(quantity(test.memory)) != 0 {
					t.Errorf("%s has %s, want %s", d.Name, memory.String(), test.memory)
				}
				addresses = append(addresses, *d.Attributes["resource.kubernetes.io/pciBusID"].StringValue)
			}
			if !slices.IsSorted(addresses) {
				t.Errorf("devices are in the order of %v", addresses)
			}
		})
	}
}

func TestSlicesAreNotWrittenWhenThePluginRestarts(t *testing.T) {
	n, machine := node(t, "node-b")
	before := slicesOf(t, "node-b")
	watcher, err := client.ResourceV1().ResourceSlices().Watch(t.Context(), metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=node-b",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	restartPlugin(t, n)
	// A change of the hardware shows when the new process has published: what it
	// writes before that would be a write without a reason.
	gpu := summary(t, machine).GPUs[0].UUID
	if err := machine.Fail(gpu, "brand", "unknown"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := machine.Heal(gpu, "brand"); err != nil {
			t.Error(err)
		}
	}()
	for event := range watcher.ResultChan() {
		slice, ok := event.Object.(*resourceapi.ResourceSlice)
		if !ok {
			t.Fatalf("watch: %+v", event)
		}
		i := slices.IndexFunc(before, func(s resourceapi.ResourceSlice) bool { return s.Name == slice.Name })
		if event.Type == watch.Added && i >= 0 && before[i].ResourceVersion == slice.ResourceVersion {
			continue // As it was when the watch began.
		}
		if event.Type != watch.Modified || i < 0 {
			t.Fatalf("slice %s was %s by a restart", slice.Name, event.Type)
		}
		without := 0
		for k, d := range slice.Spec.Devices {
			if _, ok := d.Attributes["brand"]; !ok {
				without++
			}
			delete(d.Attributes, "brand")
			delete(before[i].Spec.Devices[k].Attributes, "brand")
		}
		if without != 1 || !reflect.DeepEqual(slice.Spec.Devices, before[i].Spec.Devices) {
			t.Fatalf("slice %s was written for more than the one property", slice.Name)
		}
		return
	}
	t.Fatal("the watch ended")
}

// restartPlugin deletes the plugin's pod of a node and waits for the next one.
func restartPlugin(t *testing.T, n *cluster.Node) {
	t.Helper()
	old := pluginPod(t, n)
	if err := client.CoreV1().Pods(cluster.DriverNamespace).Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the plugin's next pod is ready", func(ctx context.Context) (bool, error) {
		pod, err := findPluginPod(ctx, n)
		if err != nil {
			return false, err
		}
		return pod.UID != old.UID && ready(pod), fmt.Errorf("pod %s is not ready", pod.Name)
	})
}
