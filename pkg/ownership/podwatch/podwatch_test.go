package podwatch

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
)

func TestPodsOfTheKubeletAreFollowed(t *testing.T) {
	r := newRig(t)
	r.kubelet.Set(newPod("first"))
	r.kubelet.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "no-claims", UID: "uid-no-claims"}})
	r.startKubelet()
	r.start()
	r.have("first")

	r.kubelet.Set(newPod("second"))
	r.have("first", "second")

	r.kubelet.Set(running(newPod("second")))
	r.eventually("the container runs", func(pods []*corev1.Pod, _ string) bool {
		return len(pods) == 2 && len(pods[1].Status.ContainerStatuses) == 1 && pods[1].Status.ContainerStatuses[0].ContainerID == "containerd://0123"
	})
	if image := r.pod("second").Spec.Containers[0].Image; image != "" {
		t.Errorf("the image %s is kept, which nobody needs", image)
	}

	// Its last container has ended.
	r.kubelet.Terminate("uid-first", corev1.PodSucceeded)
	r.kubelet.Remove("uid-first")
	r.have("second")
	if n := r.api.count("list", "pods") + r.api.count("watch", "pods"); n > 0 {
		t.Errorf("the API server was asked %d times although the kubelet answers", n)
	}
}

func TestNothingIsKnownBeforeTheFirstAnswer(t *testing.T) {
	r := newRig(t)
	r.api.setDown(true)
	r.start()
	r.troubled([]string{}, "kubelet: ", "no such file", "API server: connection refused")
	pods, _, verified := r.watcher.Pods()
	if pods != nil || !verified.IsZero() {
		t.Errorf("pods are %v, verified %s; want nil and never", pods, verified)
	}
}

// The kubelet's own status of a pod does not name the claims made for it.
func TestAPodWithATemplateHasItsClaim(t *testing.T) {
	pod := withTemplate(newPod("made"), "made-gpu-x7x7x")
	r := newRig(t, pod.DeepCopy())
	r.kubelet.Set(pod)
	r.startKubelet()
	r.start()
	r.eventually("the claim is known", func(pods []*corev1.Pod, _ string) bool {
		return len(pods) == 1 && Refers(pods[0], "team", "made-gpu-x7x7x")
	})
	// It is asked once, whatever changes.
	r.kubelet.Set(running(withTemplate(newPod("made"), "")))
	r.eventually("it runs", func(pods []*corev1.Pod, _ string) bool { return hasStarted(pods[0]) })
	if n := r.api.count("get", "pods"); n != 1 {
		t.Errorf("the API server was asked %d times, want once", n)
	}
	if !Refers(r.pod("made"), "team", "made-gpu-x7x7x") {
		t.Error("the claim is not known any more")
	}
}

func TestAPodWithExtendedResourcesHasItsClaim(t *testing.T) {
	pod := newPod("extended")
	pod.Spec.ResourceClaims = nil
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "extended-z",
		RequestMappings:   []corev1.ContainerExtendedResourceRequest{{ContainerName: "main", ResourceName: "nvidia.com/gpu", RequestName: "container-0-request-0"}},
	}
	// One whose device plugin gives it the resource has no claim, and is left out.
	other := newPod("plugin")
	other.Spec.ResourceClaims = nil
	other.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/nic": resource.MustParse("1")}}
	r := newRig(t, pod.DeepCopy(), other.DeepCopy())
	r.kubelet.Set(pod)
	r.kubelet.Set(other)
	r.startKubelet()
	r.start()
	r.have("extended")
	r.eventually("the claim is known", func(pods []*corev1.Pod, _ string) bool { return Refers(pods[0], "team", "extended-z") })
	if got := r.pod("extended").Status.ExtendedResourceClaimStatus.RequestMappings; len(got) != 1 || got[0].ContainerName != "main" {
		t.Errorf("mappings are %v, want those of the container main", got)
	}
}

func TestAPodThatRunsWithoutItsClaimKnownIsAProblem(t *testing.T) {
	pod := running(withTemplate(newPod("made"), "made-gpu-x7x7x"))
	r := newRig(t, pod.DeepCopy())
	r.api.setDown(true)
	r.kubelet.Set(pod)
	r.startKubelet()
	before := time.Now()
	r.start()
	r.troubled([]string{"made"}, "claims of pod team/made", "connection refused")
	if _, _, verified := r.watcher.Pods(); verified.Before(before) || verified.After(time.Now()) {
		t.Errorf("verified is %s, want the time when the pod came", verified)
	}
	r.api.setDown(false)
	r.have("made")
	if !Refers(r.pod("made"), "team", "made-gpu-x7x7x") {
		t.Error("the claim is not known after the API server came back")
	}
}

func TestClaimsOfPodsAreKnownAfterARestartWithoutTheAPIServer(t *testing.T) {
	pod := running(withTemplate(newPod("made"), "made-gpu-x7x7x"))
	r := newRig(t, pod.DeepCopy())
	r.kubelet.Set(pod)
	r.startKubelet()
	r.start()
	r.eventually("the claim is known", func(pods []*corev1.Pod, _ string) bool {
		return len(pods) == 1 && Refers(pods[0], "team", "made-gpu-x7x7x")
	})
	r.stop()
	r.api.setDown(true)
	r.start()
	r.have("made")
	if !Refers(r.pod("made"), "team", "made-gpu-x7x7x") {
		t.Error("the claim is not known any more")
	}
}

// A static pod's UID in the API server is that of its mirror.
func TestAStaticPodIsAskedAboutOnce(t *testing.T) {
	mirror := newPod("static")
	mirror.UID = "uid-of-the-mirror"
	static := newPod("static")
	static.Spec.ResourceClaims = nil
	static.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}
	r := newRig(t, mirror)
	r.kubelet.Set(running(static))
	r.startKubelet()
	r.start()
	r.have()
	if n := r.api.count("get", "pods"); n != 1 {
		t.Errorf("the API server was asked %d times, want once", n)
	}
}

func TestTheLastAnswerIsKeptWhileNobodyAnswers(t *testing.T) {
	r := newRig(t)
	r.kubelet.Set(newPod("first"))
	r.startKubelet()
	r.start()
	r.have("first")
	r.api.setDown(true)
	_, _, before := r.watcher.Pods()
	r.kubelet.Stop()
	r.troubled([]string{"first"}, "kubelet: ", "API server: connection refused")
	if _, _, verified := r.watcher.Pods(); verified.Before(before) {
		t.Errorf("verified went back from %s to %s", before, verified)
	}

	r.kubelet.Set(newPod("second"))
	r.startKubelet()
	r.have("first", "second")
}

func TestWithoutTheKubeletsSocketPodsComeFromTheAPIServer(t *testing.T) {
	elsewhere := newPod("elsewhere")
	elsewhere.Spec.NodeName = "node-b"
	r := newRig(t, newPod("first"), elsewhere, withTemplate(newPod("made"), "made-gpu-x7x7x"))
	r.start()
	r.have("first", "made")
	if !Refers(r.pod("made"), "team", "made-gpu-x7x7x") {
		t.Error("the claim made from the template is not known")
	}
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
	// Changes come too.
	r.eventually("the watch began", func([]*corev1.Pod, string) bool { return r.api.watched() })
	if err := r.api.Tracker().Add(newPod("second")); err != nil {
		t.Fatal(err)
	}
	r.have("first", "made", "second")
	if err := r.api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "team", "first"); err != nil {
		t.Fatal(err)
	}
	r.have("made", "second")

	// The API server goes and comes back.
	r.api.setDown(true)
	r.troubled([]string{"made", "second"}, "API server: connection refused")
	r.api.setDown(false)
	r.have("made", "second")
}

func TestPodsComeFromTheKubeletAgainWhenItIsBack(t *testing.T) {
	r := newRig(t, newPod("in-api-server"))
	r.kubelet.Set(newPod("first"))
	r.startKubelet()
	r.start()
	r.have("first")
	r.kubelet.Stop()
	r.have("in-api-server")
	r.startKubelet()
	r.have("first")
	// Nobody listens to the API server any more.
	if err := r.api.Tracker().Add(newPod("later")); err != nil {
		t.Fatal(err)
	}
	r.kubelet.Set(newPod("second"))
	r.have("first", "second")
}

func TestAKubeletThatStartsIsNotBelieved(t *testing.T) {
	r := newRig(t, newPod("in-api-server"))
	r.kubelet.Initialize(true)
	r.startKubelet()
	r.start()
	r.have("in-api-server")
	r.kubelet.Set(newPod("first"))
	r.kubelet.Initialize(false)
	r.have("first")
}

func TestAPodOfWhichTheEventWasLostIsFound(t *testing.T) {
	r := newRig(t)
	r.kubelet.Set(newPod("first"))
	r.startKubelet()
	r.startWith(timing{grace: time.Hour, recheck: 10 * time.Millisecond, answer: 5 * time.Second, retry: 5 * time.Millisecond, retryMost: 5 * time.Millisecond})
	r.have("first")
	r.kubelet.SetSilently(newPod("second"))
	r.have("first", "second")
	r.kubelet.Remove("uid-first")
	r.have("second")
}

func TestAWatchThatTheKubeletDropsIsBegunAgain(t *testing.T) {
	r := newRig(t)
	r.api.setDown(true)
	r.kubelet.Set(newPod("first"))
	r.startKubelet()
	r.start()
	r.have("first")
	r.kubelet.Drop()
	r.kubelet.Set(newPod("second"))
	r.have("first", "second")
}

func TestAKubeletThatHangsIsNoticed(t *testing.T) {
	r := newRig(t)
	r.kubelet.Set(newPod("first"))
	r.startKubelet()
	r.startWith(timing{grace: time.Hour, recheck: 10 * time.Millisecond, answer: 50 * time.Millisecond, retry: 5 * time.Millisecond, retryMost: 5 * time.Millisecond})
	r.eventually("first", func(pods []*corev1.Pod, problem string) bool { return len(pods) == 1 && problem == "" })
	r.kubelet.Hang(true)
	r.troubled([]string{"first"}, "kubelet: ", "within 50ms")
	r.kubelet.Hang(false)
	r.have("first")
}

func TestAPodThatWasMadeAnewIsAnother(t *testing.T) {
	pod := withTemplate(newPod("made"), "made-gpu-1")
	r := newRig(t, pod.DeepCopy())
	r.kubelet.Set(pod)
	r.startKubelet()
	r.start()
	r.eventually("the claim is known", func(pods []*corev1.Pod, _ string) bool {
		return len(pods) == 1 && Refers(pods[0], "team", "made-gpu-1")
	})
	r.kubelet.Terminate(pod.UID, corev1.PodFailed)
	r.kubelet.Remove(pod.UID)
	r.have()
	anew := withTemplate(newPod("made"), "made-gpu-2")
	anew.UID = "uid-anew"
	if err := r.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), anew.DeepCopy(), "team"); err != nil {
		t.Fatal(err)
	}
	r.kubelet.Set(anew)
	r.eventually("the new claim is known", func(pods []*corev1.Pod, _ string) bool {
		return len(pods) == 1 && pods[0].UID == "uid-anew" && Refers(pods[0], "team", "made-gpu-2") && !Refers(pods[0], "team", "made-gpu-1")
	})
}

func TestAListDoesNotUndoWhatChangedMeanwhile(t *testing.T) {
	v := newView("kubelet").merging()
	old, changed, ended := prune(newPod("changed")), prune(running(newPod("changed"))), prune(newPod("ended"))
	kept, vanished, added := prune(newPod("kept")), prune(newPod("vanished")), prune(newPod("added"))
	v.replace(podsByUID{old.UID: old, ended.UID: ended, kept.UID: kept, vanished.UID: vanished})
	mark := v.mark()
	// The list is made now, and on its way these happen.
	v.set(changed.UID, changed)
	v.set(ended.UID, nil)
	v.set(added.UID, added)
	v.merge(mark, podsByUID{old.UID: old, ended.UID: ended, kept.UID: kept})

	got := v.read().pods
	want := podsByUID{changed.UID: changed, kept.UID: kept, added.UID: added}
	if len(got) != len(want) {
		t.Errorf("there are %d pods, want changed, kept and added", len(got))
	}
	for uid, pod := range want {
		if got[uid] != pod {
			t.Errorf("pod %s is %v, want %v", uid, got[uid], pod)
		}
	}
	// The next list is newer than all of that.
	v.merge(v.mark(), podsByUID{})
	if left := v.read().pods; len(left) > 0 {
		t.Errorf("%d pods are left, want none", len(left))
	}
}

func TestOnlySomeResourcesAreExtended(t *testing.T) {
	for name, want := range map[string]bool{
		"cpu": false, "memory": false, "ephemeral-storage": false, "hugepages-2Mi": false, "pods": false,
		"kubernetes.io/batch-cpu": false, "node.kubernetes.io/x": false,
		"nvidia.com/gpu": true, "example.com/nic": true, "notkubernetes.io/gpu": true,
		"deviceclass.resource.kubernetes.io/gpu.apportion.dev": true,
	} {
		if got := isExtendedResource(name); got != want {
			t.Errorf("%s: got %t, want %t", name, got, want)
		}
	}
}

func TestPodsReferToClaims(t *testing.T) {
	extended := newPod("extended")
	extended.Spec.ResourceClaims = nil
	extended.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "claim"}
	unneeded := withTemplate(newPod("unneeded"), "")
	unneeded.Status.ResourceClaimStatuses[0].ResourceClaimName = nil
	tests := []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"by name", newPod("a"), true},
		{"by template", withTemplate(newPod("a"), "claim"), true},
		{"by another template", withTemplate(newPod("a"), "claim-2"), false},
		{"by extended resources", extended, true},
		{"template for which no claim is needed", unneeded, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := Refers(test.pod, "team", "claim"); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
			if Refers(test.pod, "other", "claim") {
				t.Error("it refers to a claim of another namespace")
			}
		})
	}
}
