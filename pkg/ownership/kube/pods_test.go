package kube

import (
	"encoding/json"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"apportion.dev/apportion/pkg/ownership"
)

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

func TestPodsOfTheNodeAreFollowed(t *testing.T) {
	elsewhere := newPod("elsewhere")
	elsewhere.Spec.NodeName = "node-b"
	noClaims := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "no-claims", UID: "uid-no-claims"},
		Spec:       corev1.PodSpec{NodeName: "node-a"},
	}
	r := newRig(t, newPod("first"), elsewhere, noClaims, withTemplate(newPod("made"), "made-gpu-x7x7x"))
	r.start()
	r.have("first", "made")
	for _, action := range r.api.Actions() {
		var fields string
		switch a := action.(type) {
		case clienttesting.ListActionImpl:
			fields = a.ListOptions.FieldSelector
		case clienttesting.WatchActionImpl:
			fields = a.WatchRestrictions.Fields.String()
		}
		if fields != "spec.nodeName=node-a" {
			t.Errorf("%s of pods is limited to %q, want those of the node", action.GetVerb(), fields)
		}
	}
	r.eventually("the watch began", func([]*corev1.Pod, string) bool { return r.api.watched() })
	r.add(newPod("second"))
	r.have("first", "made", "second")
	r.update(running(newPod("second")))
	r.eventually("the container runs", func(pods []*corev1.Pod, _ string) bool {
		return len(pods) == 3 && len(pods[2].Status.ContainerStatuses) == 1 && pods[2].Status.ContainerStatuses[0].ContainerID == "containerd://0123"
	})
	if image := r.pod("second").Spec.Containers[0].Image; image != "" {
		t.Errorf("the image %s is kept, which nobody needs", image)
	}
	r.remove("first")
	r.have("made", "second")
}

func TestNothingIsKnownBeforeTheFirstAnswer(t *testing.T) {
	r := newRig(t)
	r.api.setDown(true)
	r.start()
	r.troubled([]string{}, "connection refused")
	pods, _, verified := r.watcher.Get()
	if pods != nil || !verified.IsZero() {
		t.Errorf("pods are %v, verified %s; want nil and never", pods, verified)
	}
	r.api.setDown(false)
	r.have()
}

func TestPodsStayKnownWhileTheAPIServerIsAway(t *testing.T) {
	r := newRig(t, newPod("first"), withTemplate(newPod("made"), "made-gpu-x7x7x"))
	r.start()
	r.have("first", "made")
	_, _, before := r.watcher.Get()
	r.api.setDown(true)
	r.troubled([]string{"first", "made"}, "connection refused")
	if _, _, verified := r.watcher.Get(); verified.Before(before) {
		t.Errorf("verified went back from %s to %s", before, verified)
	}
	if !ownership.Refers(r.pod("made"), "team", "made-gpu-x7x7x") {
		t.Error("the claim made from the template is not known any more")
	}
	r.api.setDown(false)
	r.have("first", "made")
}

func TestPodsAreKnownAfterARestartWithoutTheAPIServer(t *testing.T) {
	r := newRig(t, running(withTemplate(newPod("made"), "made-gpu-x7x7x")))
	r.start()
	r.have("made")
	r.saved("made")
	r.stop()
	r.api.setDown(true)
	r.start()
	r.troubled([]string{"made"}, "connection refused")
	if !ownership.Refers(r.pod("made"), "team", "made-gpu-x7x7x") {
		t.Error("the claim is not known any more")
	}
	if _, _, verified := r.watcher.Get(); !verified.IsZero() {
		t.Errorf("verified is %s, want that this process never knew", verified)
	}

	// The pod ended meanwhile.
	if err := r.api.Tracker().Delete(podResource, "team", "made"); err != nil {
		t.Fatal(err)
	}
	r.api.setDown(false)
	r.have()
}

func TestADamagedFileOfPodsIsPassedOver(t *testing.T) {
	r := newRig(t, newPod("first"))
	if err := os.WriteFile(r.file, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.have("first")
	r.saved("first")
}

func TestAPodThatWasMadeAnewIsAnother(t *testing.T) {
	r := newRig(t, withTemplate(newPod("made"), "made-gpu-1"))
	r.start()
	r.have("made")
	r.eventually("the watch began", func([]*corev1.Pod, string) bool { return r.api.watched() })
	r.remove("made")
	r.have()
	anew := withTemplate(newPod("made"), "made-gpu-2")
	anew.UID = "uid-anew"
	r.add(anew)
	r.eventually("the new claim is known", func(pods []*corev1.Pod, _ string) bool {
		return len(pods) == 1 && pods[0].UID == "uid-anew" && ownership.Refers(pods[0], "team", "made-gpu-2") && !ownership.Refers(pods[0], "team", "made-gpu-1")
	})
}

// saved waits until the file has exactly these pods.
func (r *rig) saved(names ...string) {
	r.t.Helper()
	r.api.poll(r.t, "the pods are saved", func() bool {
		data, err := os.ReadFile(r.file)
		var pods []*corev1.Pod
		return err == nil && json.Unmarshal(data, &pods) == nil && equalNames(pods, names)
	})
}
