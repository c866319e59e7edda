package suite

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/e2e/cluster"
	"apportion.dev/apportion/e2e/promtest"
	"apportion.dev/apportion/e2e/promtest/truth"
)

const (
	// exporterProgram is the name of the exporter's process, exporterPort where it
	// serves its metrics.
	exporterProgram = "apportion-exporter"
	exporterPort    = 9400
	scrapeInterval  = time.Second
	// scrapeLag is how far a scrape may be behind: the exporter reads the GPUs every
	// second, and all of this runs on as little as two cores.
	scrapeLag = 2 * scrapeInterval
)

// measured is a Prometheus that scrapes the exporters of some nodes, and what a test
// knows of the pods that it ran meanwhile.
type measured struct {
	*space
	prometheus *promtest.Server
	// addresses are the exporters', by node.
	addresses map[string]string
	from      time.Time
	// lives are those of pods by name, the last of each name's being the one that is
	// or was there last.
	lives map[string][]*life
}

// life is a pod's, and what it uses.
type life struct {
	made time.Time
	uses []*truth.Use
}

// user is a container of a pod that uses what its claim was given for a request, or
// for all requests if that is empty, and has so much of its memory.
type user struct{ request, container, memory string }

// measure starts a Prometheus, which is stopped when the test ends.
func measure(t *testing.T, s *space, nodeNames ...string) *measured {
	t.Helper()
	binary, err := cluster.BuildPrometheus(t.Context(), cluster.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	m := &measured{space: s, addresses: map[string]string{}, lives: map[string][]*life{}}
	var targets []promtest.Target
	for _, name := range nodeNames {
		address := net.JoinHostPort(exporterPod(t, name).Status.PodIP, strconv.Itoa(exporterPort))
		m.addresses[name] = address
		targets = append(targets, promtest.Target{Job: "exporter", Address: address})
	}
	m.prometheus, err = promtest.Start(t.Context(), promtest.Options{
		Binary: binary, Dir: t.TempDir(), Interval: scrapeInterval, Targets: targets,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.prometheus.Stop(); err != nil {
			t.Error(err)
		}
	})
	m.scrapes(1)
	m.from = time.Now()
	return m
}

// exporterPod is the exporter's pod on a node.
func exporterPod(t *testing.T, nodeName string) *corev1.Pod {
	t.Helper()
	pods, err := client.CoreV1().Pods(cluster.DriverNamespace).List(t.Context(), metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + nodeName,
		LabelSelector: "app.kubernetes.io/component=exporter,app.kubernetes.io/instance=" + cluster.DriverRelease,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i]
		}
	}
	t.Fatalf("%s has no exporter", nodeName)
	return nil
}

// scrapes waits for so many more scrapes of each exporter.
func (m *measured) scrapes(n int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	if err := m.prometheus.WaitScrapes(ctx, n); err != nil {
		m.t.Fatal(err)
	}
}

// start makes pods, and from then on it is possible that they hold something.
func (m *measured) start(pods ...*corev1.Pod) {
	m.t.Helper()
	for _, pod := range pods {
		m.lives[pod.Name] = append(m.lives[pod.Name], &life{made: time.Now()})
		m.space.start(pod)
	}
}

func (m *measured) life(podName string) *life {
	lives := m.lives[podName]
	return lives[len(lives)-1]
}

// running waits until a pod runs and its users have their memory. From then on it is
// sure that they use what the pod's claims were given.
func (m *measured) running(name string, users ...user) {
	m.t.Helper()
	m.noteUses(m.space.running(name), users)
	for _, u := range users {
		if u.memory != "" {
			m.wantSaid(name, u.container, "allocated "+u.memory)
		}
	}
	now := time.Now()
	for _, use := range m.life(name).uses {
		span := truth.Span{From: now}
		use.Held.Sure, use.Used.Sure = []truth.Span{span}, []truth.Span{span}
	}
}

// noteUses notes what a pod's users can use since the pod was made.
func (m *measured) noteUses(pod *corev1.Pod, users []user) {
	m.t.Helper()
	life := m.life(pod.Name)
	for _, claim := range m.claimsOf(pod) {
		for _, result := range claim.Status.Allocation.Devices.Results {
			main, _, _ := strings.Cut(result.Request, "/")
			for _, u := range users {
				if u.request != "" && u.request != main {
					continue
				}
				labels := m.deviceLabels(result)
				labels["claim"], labels["claim_uid"] = claim.Name, string(claim.UID)
				labels["namespace"], labels["pod"], labels["pod_uid"] = pod.Namespace, pod.Name, string(pod.UID)
				labels["container"] = u.container
				use := &truth.Use{Labels: labels}
				if u.memory != "" {
					use.Bytes = ptr.To(resource.MustParse(u.memory)).Value()
				}
				possible := truth.Times{Possible: []truth.Span{{From: life.made}}}
				use.Held, use.Used = possible, truth.Times{Possible: slices.Clone(possible.Possible)}
				life.uses = append(life.uses, use)
			}
		}
	}
	if len(life.uses) == 0 {
		m.t.Fatalf("pod %s has nothing for %v", pod.Name, users)
	}
}

// claimsOf are all claims of a pod: those that it names, those made of templates, and
// the one for extended resources.
func (s *space) claimsOf(pod *corev1.Pod) []*resourceapi.ResourceClaim {
	s.t.Helper()
	var claims []*resourceapi.ResourceClaim
	for _, entry := range pod.Spec.ResourceClaims {
		claims = append(claims, s.claimOf(pod, entry.Name))
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		claim, err := client.ResourceV1().ResourceClaims(s.name).Get(s.t.Context(), extended.ResourceClaimName, metav1.GetOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		claims = append(claims, claim)
	}
	return claims
}

// deviceLabels are the labels of what a claim was given. What is published and what
// the machine has tell them.
func (m *measured) deviceLabels(result resourceapi.DeviceRequestAllocationResult) map[string]string {
	m.t.Helper()
	d := device(m.t, result.Pool, result.Device)
	labels := map[string]string{
		"Hostname": result.Pool, "UUID": text(d, "uuid"), "uuid": text(d, "uuid"), "device": d.Name,
		"share_id": string(ptr.Deref(result.ShareID, "")), "request": result.Request,
	}
	parent := text(d, "parentUUID")
	if parent == "" {
		return labels
	}
	_, machine := node(m.t, result.Pool)
	for _, made := range gpu(m.t, machine, parent).MIG {
		if made.Profile == text(d, "profile") && made.Start == startOf(d) {
			labels["UUID"], labels["uuid"] = parent, made.UUID
			labels["GPU_I_PROFILE"], labels["GPU_I_ID"] = made.Profile, strconv.Itoa(made.GPUInstance)
			return labels
		}
	}
	m.t.Fatalf("GPU %s has no %s", parent, d.Name)
	return nil
}

// wantSaid waits until a container has printed a text.
func (s *space) wantSaid(podName, container, what string) {
	s.t.Helper()
	waitFor(s.t, fmt.Sprintf("container %s of pod %s says %q", container, podName, what), func(ctx context.Context) (bool, error) {
		said, err := client.CoreV1().Pods(s.name).GetLogs(podName, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
		if err != nil {
			return false, err
		}
		return strings.Contains(string(said), what), fmt.Errorf("it said %q", said)
	})
}

// delete deletes pods. It is not sure any more that they use something, and once they
// are gone it is not possible.
func (m *measured) delete(names ...string) {
	m.t.Helper()
	for _, name := range names {
		m.end(name)
		if err := client.CoreV1().Pods(m.name).Delete(m.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			m.t.Fatal(err)
		}
	}
	for _, name := range names {
		waitFor(m.t, "pod "+name+" is gone", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Pods(m.name).Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), err
		})
		m.ended(name)
	}
}

// end says that it is not sure from now on that a pod uses something, ended that it
// does not.
func (m *measured) end(name string) {
	m.close(name, func(t *truth.Times) []truth.Span { return t.Sure })
}
func (m *measured) ended(name string) {
	m.close(name, func(t *truth.Times) []truth.Span { return t.Possible })
}

func (m *measured) close(name string, spans func(*truth.Times) []truth.Span) {
	now := time.Now()
	for _, use := range m.life(name).uses {
		for _, times := range []*truth.Times{&use.Held, &use.Used} {
			open := spans(times)
			if last := len(open) - 1; last >= 0 && open[last].To.IsZero() {
				open[last].To = now
			}
		}
	}
}
