package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/e2e/cluster"
)

const (
	onA100 = `device.attributes["gpu.apportion.dev"].productName == "NVIDIA A100-SXM4-40GB"`
)

// twoA100Pods starts two pods that hold the two GPUs of node-b.
func twoA100Pods(t *testing.T) (s *space, gpus map[string][]string) {
	t.Helper()
	s = newSpace(t)
	s.apply(gpuClaimTemplate, map[string]any{"Name": "a100", "Count": nil, "Select": onA100})
	gpus = map[string][]string{}
	for _, name := range []string{"one", "two"} {
		s.startA100(name)
		s.running(name)
		gpus[name] = s.devices(name, "work")
	}
	if len(gpus["one"]) != 1 || len(gpus["two"]) != 1 || gpus["one"][0] == gpus["two"][0] {
		t.Fatalf("the pods see %v, want one GPU each", gpus)
	}
	return s, gpus
}

func (s *space) startA100(name string) {
	s.t.Helper()
	s.apply(podOfTemplate, map[string]any{"Name": name, "Template": "a100", "RestartPolicy": nil, "Node": nil})
}

// TestNothingLeaksAndNothingIsHandedOutTwice disturbs a node with two running
// pods, then replaces one of them: the other must keep its GPU, and the new pod
// must get the free one.
func TestNothingLeaksAndNothingIsHandedOutTwice(t *testing.T) {
	tests := []struct {
		name    string
		disturb func(t *testing.T, n *cluster.Node)
	}{
		{"kubelet restart", func(t *testing.T, n *cluster.Node) {
			if err := n.RestartKubelet(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"containerd restart", func(t *testing.T, n *cluster.Node) {
			if err := n.RestartContainerd(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"plugin restart", restartPlugin},
		{"plugin killed at rest", killPlugin},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, gpus := twoA100Pods(t)
			n, _ := node(t, "node-b")
			test.disturb(t, n)
			s.running("two")
			if got := s.devices("two", "work"); !slices.Equal(got, gpus["two"]) {
				t.Errorf("after it pod two sees %v, had %v", got, gpus["two"])
			}
			s.deletePod("one", metav1.DeleteOptions{})
			s.startA100("three")
			s.running("three")
			if got := s.devices("three", "work"); !slices.Equal(got, gpus["one"]) {
				t.Errorf("the next pod sees %v, want the free %v", got, gpus["one"])
			}
		})
	}
}

func TestForceDeletedPodGivesItsGPUBack(t *testing.T) {
	s, gpus := twoA100Pods(t)
	s.deletePod("one", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	s.startA100("three")
	s.running("three")
	if got := s.devices("three", "work"); !slices.Equal(got, gpus["one"]) {
		t.Errorf("the next pod sees %v, want the free %v", got, gpus["one"])
	}
}

func TestDeletedPodWhileThePluginIsAway(t *testing.T) {
	s, gpus := twoA100Pods(t)
	n, _ := node(t, "node-b")
	before := pluginPod(t, n)
	if err := client.CoreV1().Pods(s.name).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := n.Signal(t.Context(), "KILL", program); err != nil {
		t.Fatal(err)
	}
	pluginIsBack(t, n, before)
	waitFor(t, "pod one is gone", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Pods(s.name).Get(ctx, "one", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	s.startA100("three")
	s.running("three")
	if got := s.devices("three", "work"); !slices.Equal(got, gpus["one"]) {
		t.Errorf("the next pod sees %v, want the free %v", got, gpus["one"])
	}
}

func TestAfterARebootPodsRunWithTheirDevices(t *testing.T) {
	s := newSpace(t)
	s.apply(gpuClaimTemplate, map[string]any{"Name": "a100", "Count": nil, "Select": onA100})
	s.apply(podOfTemplate, map[string]any{"Name": "pod", "Template": "a100", "RestartPolicy": "Always", "Node": nil})
	pod := s.running("pod")
	gpus := s.devices("pod", "work")
	n, _ := node(t, "node-b")
	bootID := readBootID(t, n)
	// A container sees the boot id of the machine that the cluster runs on, which
	// has not restarted; the record is changed instead.
	claim := s.claimOf(pod, "gpu")
	editRecord(t, n, claim.UID, func(content string) string {
		return regexp.MustCompile(`"bootID": "[^"]*"`).ReplaceAllString(content, `"bootID": "an-earlier-boot"`)
	})
	if err := n.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if readBootID(t, n) == bootID {
		t.Fatal("the boot id has not changed")
	}
	waitFor(t, "the pod runs again", func(ctx context.Context) (bool, error) {
		now, err := client.CoreV1().Pods(s.name).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range now.Status.ContainerStatuses {
			if c.RestartCount == 0 || c.State.Running == nil {
				return false, fmt.Errorf("container is %+v", c.State)
			}
		}
		return true, nil
	})
	if content, err := os.ReadFile(n.BackingPath(filepath.Join(claimsDir, string(claim.UID)+".json"))); err != nil || strings.Contains(string(content), "an-earlier-boot") {
		t.Errorf("the record is still of the earlier boot: %s, %v", content, err)
	}
	if got := s.devices("pod", "work"); !slices.Equal(got, gpus) {
		t.Errorf("after the reboot the pod sees %v, had %v", got, gpus)
	}
	waitFor(t, "the plugin is ready", func(ctx context.Context) (bool, error) {
		pod, err := findPluginPod(ctx, n)
		return err == nil && ready(pod), err
	})
}

// editRecord changes the record of a claim on the node.
func editRecord(t *testing.T, n *cluster.Node, claim types.UID, edit func(content string) string) {
	t.Helper()
	record := n.BackingPath(filepath.Join(claimsDir, string(claim)+".json"))
	content, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	changed := edit(string(content))
	if changed == string(content) {
		t.Fatal("the record was not changed")
	}
	if err := os.WriteFile(record, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readBootID(t *testing.T, n *cluster.Node) string {
	t.Helper()
	id, err := n.Exec(t.Context(), "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(id))
}

func TestUnreadableRecordsCostOnlyTheirOwnClaim(t *testing.T) {
	tests := map[string]func(content string) string{
		"damaged":       func(content string) string { return content[:len(content)/2] },
		"empty":         func(string) string { return "" },
		"newer version": func(content string) string { return strings.Replace(content, `"version": 1`, `"version": 99`, 1) },
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			s, gpus := twoA100Pods(t)
			n, _ := node(t, "node-b")
			claim := s.claimOf(s.pod("one"), "gpu")
			editRecord(t, n, claim.UID, damage)
			killPlugin(t, n)
			waitFor(t, "an Event about the record", func(ctx context.Context) (bool, error) {
				events, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=RecordSetAside"})
				if err != nil {
					return false, err
				}
				for _, e := range events.Items {
					if strings.Contains(e.Message, string(claim.UID)) && e.Type == corev1.EventTypeWarning && e.InvolvedObject.Name == n.Name {
						return true, nil
					}
				}
				return false, fmt.Errorf("%d events", len(events.Items))
			})
			kept, err := filepath.Glob(n.BackingPath(filepath.Join(claimsDir, "damaged", string(claim.UID)+"*")))
			if err != nil || len(kept) != 1 {
				t.Errorf("set aside: %v, %v; want one file", kept, err)
			}
			// A restarted kubelet asks for the claims of running pods again, which
			// makes the record anew. Both pods go and come as ever.
			s.deletePod("one", metav1.DeleteOptions{})
			s.startA100("three")
			s.running("three")
			if got := s.devices("three", "work"); !slices.Equal(got, gpus["one"]) {
				t.Errorf("the next pod sees %v, want the free %v", got, gpus["one"])
			}
			if got := s.devices("two", "work"); !slices.Equal(got, gpus["two"]) {
				t.Errorf("the neighbour sees %v, had %v", got, gpus["two"])
			}
		})
	}
}

func TestDriverUpgradeReachesThePodsThatStartAfterIt(t *testing.T) {
	_, machine := node(t, "node-b")
	old := summary(t, machine).DriverVersion
	s := newSpace(t)
	s.apply(gpuClaimTemplate, map[string]any{"Name": "a100", "Count": nil, "Select": onA100})
	s.startA100("before")
	s.running("before")
	if err := machine.SetDriverVersion("590.44.01"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := machine.SetDriverVersion(old); err != nil {
			t.Error(err)
		}
	}()
	s.startA100("after")
	s.running("after")
	if got := s.exec("after", "work", "ls /usr/lib/*/libcuda.so.*"); !strings.Contains(got, "libcuda.so.590.44.01") || strings.Contains(got, old) {
		t.Errorf("libraries are %q, want those of 590.44.01", got)
	}
	waitFor(t, "the new version is published", func(ctx context.Context) (bool, error) {
		for _, slice := range slicesOf(t, "node-b") {
			for _, d := range slice.Spec.Devices {
				if v := d.Attributes["driverVersion"].VersionValue; v == nil || *v != "590.44.1" {
					return false, fmt.Errorf("%s has %v", d.Name, v)
				}
			}
		}
		return true, nil
	})
}
