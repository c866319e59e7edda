package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTheDemosOfSharingRun applies the demo's manifests of partitions and shares as a
// newcomer does, all at once.
func TestTheDemosOfSharingRun(t *testing.T) {
	_, _, restore := withLimits(t)
	defer restore()
	s := newSpace(t)
	for _, name := range []string{"mig-by-profile", "mig-by-size", "partition-share-or-gpu", "limited-shares", "share-per-container"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "demo", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := theCluster.RunKubectl(t.Context(), content, "--namespace", s.name, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	pods, err := client.CoreV1().Pods(s.name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, pod := range pods.Items {
		names[pod.Name] = true
		s.running(pod.Name)
	}
	if len(names) != 6 {
		t.Fatalf("the demos have the pods %v, want 6", names)
	}
	for pod, profile := range map[string]string{"mig-by-profile": "1g.10gb", "mig-by-size": "3g.40gb", "partition-share-or-gpu": "3g.40gb"} {
		if smi := s.exec(pod, work, "nvidia-smi -L"); !strings.Contains(smi, "MIG "+profile+" ") {
			t.Errorf("pod %s sees\n%s\nwant a %s", pod, smi, profile)
		}
	}
	one, two := s.resultsOf("limited-shares-1")[0], s.resultsOf("limited-shares-2")[0]
	if one.Pool != two.Pool || one.Device != two.Device {
		t.Errorf("the limited shares are of %s and %s", one.Device, two.Device)
	}
	s.wantEnforced("limited-shares-1", metav1.ConditionTrue)
	if r := s.resultsOf("share-per-container"); len(r) != 2 || r[0].Device != r[1].Device {
		t.Errorf("the containers' shares are %+v", r)
	}
}
