package suite

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/e2e/promtest/truth"
)

// TestEverySampleNamesWhoHoldsTheDevice has a Prometheus scrape two nodes for two
// minutes while pods with shares of one GPU, partitions of another and whole GPUs come
// and go, beside some that stay and use devices in all other ways.
func TestEverySampleNamesWhoHoldsTheDevice(t *testing.T) {
	_, machine := node(t, "node-a")
	found := gpus(t, machine, h100)
	if len(found) != 8 {
		t.Fatalf("node-a has %d H100s, want 8", len(found))
	}
	var uuids []string
	for _, g := range found {
		uuids = append(uuids, g.UUID)
	}
	m := measure(t, newSpace(t), "node-a", "node-b")
	stay := m.startThoseThatStay(uuids[5], uuids[6], uuids[7])
	come := m.comers(uuids[0], uuids[1], uuids[2:5])
	rounds, until := 0, time.Now().Add(2*time.Minute)
	for ; time.Now().Before(until); rounds++ {
		m.round(come, rounds)
	}
	t.Logf("pods came and went in %d rounds", rounds)

	// Of two pods that share a claim the first goes, and the second is alone.
	m.delete("both-1")
	m.scrapes(4)
	left := slices.DeleteFunc(stay, func(name string) bool { return name == "both-1" })
	for _, c := range come {
		if c.pod != "" {
			left = append(left, c.pod)
		}
	}
	m.delete(left...)
	m.scrapes(3)
	m.wantEveryScrape()
	m.check()
	m.checkCharges()
}

// comer is a place that pods come to and go from, one after the other, each with a
// claim of its own from a template.
type comer struct {
	template, memory string
	// pod is the name of the one that is there, empty if there is none.
	pod string
}

// comers are five shares of one GPU, seven partitions of another, and whole GPUs.
func (m *measured) comers(shared, partitioned string, whole []string) []*comer {
	m.t.Helper()
	var list []*comer
	m.template("share", asks(request("gpu", shareOf("10Gi", is("uuid", shared)))))
	for i := range 5 {
		list = append(list, &comer{template: "share", memory: fmt.Sprintf("%dGi", i+1)})
	}
	m.template("partition", asks(request("gpu", partitionOf("1g.10gb", is("parentUUID", partitioned)))))
	for i := range 7 {
		list = append(list, &comer{template: "partition", memory: fmt.Sprintf("%dMi", 512*(i+1))})
	}
	for i, uuid := range whole {
		name := fmt.Sprintf("whole-%d", i)
		m.template(name, asks(request("gpu", wholeOf(is("uuid", uuid)))))
		list = append(list, &comer{template: name, memory: fmt.Sprintf("%dGi", 16*(i+1))})
	}
	return list
}

// round fills the places that are empty, and empties every third place.
func (m *measured) round(places []*comer, number int) {
	m.t.Helper()
	var came []*comer
	for i, c := range places {
		if c.pod != "" {
			continue
		}
		c.pod = fmt.Sprintf("%s-%d-%d", c.template, i, number)
		m.start(allocating(usesTemplate(c.pod, c.template), allocates(work, "", c.memory)))
		came = append(came, c)
	}
	for _, c := range came {
		m.running(c.pod, user{"", work, c.memory})
	}
	m.scrapes(4)
	var going []string
	for i, c := range places {
		if (i+number)%3 == 0 {
			going = append(going, c.pod)
			c.pod = ""
		}
	}
	m.delete(going...)
	m.scrapes(2)
}

// allocates is a container that has memory of the device that it sees, until it is
// told to end.
func allocates(name, request, memory string) corev1.Container {
	return probe(name, request, "visible", "--hold", memory)
}

// allocating is a pod with these containers in place of its own.
func allocating(pod *corev1.Pod, containers ...corev1.Container) *corev1.Pod {
	with := probes("", "", containers...)
	pod.Spec.Containers, pod.Spec.Volumes = with.Spec.Containers, with.Spec.Volumes
	return pod
}

// startThoseThatStay starts the other ways to use a device, and returns the names of
// the pods: an extended resource and two containers on node-b; on node-a two pods with
// one claim, two requests of a claim for different containers, and an init container.
func (m *measured) startThoseThatStay(shared, whole, partitioned string) []string {
	m.t.Helper()
	m.startExtended()

	m.claim("containers", asks(request("gpu", wholeOf(is("productName", a100)))))
	m.start(probes("containers", "containers", allocates("left", "", "1Gi"), allocates("right", "gpu", "3Gi")))
	m.running("containers", user{"", "left", "1Gi"}, user{"gpu", "right", "3Gi"})

	m.claim("both", asks(request("gpu", wholeOf(is("uuid", shared)))))
	m.start(probes("both-1", "both", allocates(work, "", "5Gi")), probes("both-2", "both", allocates(work, "", "7Gi")))
	m.running("both-1", user{"", work, "5Gi"})
	m.running("both-2", user{"", work, "7Gi"})

	m.claim("requests", asks(request("left", wholeOf(is("uuid", whole))), request("right", partitionOf("4g.40gb", is("parentUUID", partitioned)))))
	m.start(probes("requests", "requests", allocates("first", "left", "9Gi"), allocates("second", "right", "11Gi")))
	m.running("requests", user{"left", "first", "9Gi"}, user{"right", "second", "11Gi"})

	m.startInit(partitioned)
	return []string{"extended", "containers", "both-1", "both-2", "requests", "init"}
}

// startExtended starts a pod that asks for a GPU as for the device plugin, for one of
// its two containers.
func (m *measured) startExtended() {
	m.t.Helper()
	has := allocates("has", "", "2Gi")
	has.Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": quantity("1")}}
	pod := allocating(podWith("extended"), podWith("").Spec.Containers[0], has)
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-b"}
	m.start(pod)
	m.running("extended", user{"", "has", "2Gi"})
}

// startInit starts a pod whose init container uses the device before its container
// does, for as long as some scrapes take.
func (m *measured) startInit(partitioned string) {
	m.t.Helper()
	const first = "first"
	m.template("init", asks(request("gpu", partitionOf("3g.40gb", is("parentUUID", partitioned)))))
	pod := allocating(usesTemplate("init", "init"), allocates(work, "", "13Gi"))
	initial := podWith("").Spec.Containers[0]
	initial.Name = first
	initial.Command = []string{"sh", "-c", "trap 'exit 1' TERM; until [ -e /tmp/go ]; do sleep 0.1; done"}
	initial.Resources.Claims = []corev1.ResourceClaim{{Name: entry}}
	pod.Spec.InitContainers = []corev1.Container{initial}
	m.start(pod)
	waitFor(m.t, "the init container runs", func(ctx context.Context) (bool, error) {
		pod, err := client.CoreV1().Pods(m.name).Get(ctx, "init", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range pod.Status.InitContainerStatuses {
			if c.State.Running != nil {
				return true, nil
			}
		}
		return false, fmt.Errorf("it is %+v", pod.Status.InitContainerStatuses)
	})
	initRuns := time.Now()
	m.scrapes(4)
	initEnds := time.Now()
	m.exec("init", first, "touch /tmp/go")
	m.running("init", user{"", first, ""}, user{"", work, "13Gi"})
	workRuns := time.Now()
	for _, use := range m.life("init").uses {
		use.Held.Sure[0].From = initRuns
		if use.Labels["container"] == first {
			use.Used = truth.Times{
				Sure:     []truth.Span{{From: initRuns, To: initEnds}},
				Possible: []truth.Span{{From: m.life("init").made, To: workRuns}},
			}
		} else {
			use.Used.Possible[0].From = initEnds
		}
	}
}
