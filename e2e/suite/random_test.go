package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	randomRounds = 50
	// randomPods is how many pods there are at most at once. The GPUs have room for
	// about as many, so that there is contention.
	randomPods = 12
)

// TestRandomClaimsAgainstAModel creates and deletes pods with claims of all kinds at
// random, many at once, and after each round checks by an independent model that no
// device is used twice, and that what the claims have is on the machines and nothing
// else. E2E_SEED repeats a run, as far as the cluster does the same.
func TestRandomClaimsAgainstAModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("E2E_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("E2E_SEED %q is no number", given)
		}
	}
	t.Logf("E2E_SEED=%d", seed)
	c := newChaos(t, rand.New(rand.NewPCG(seed, 0)))
	for round := range randomRounds {
		created, deleted := c.round(round)
		pods := c.settle()
		c.check(round)
		if t.Failed() {
			t.Fatalf("round %d (E2E_SEED=%d) failed; it created %v and deleted %v", round, seed, created, deleted)
		}
		if round%10 == 9 {
			t.Logf("round %d: %s", round, pods)
		}
	}
	c.deleteAll()
	for _, event := range c.failures() {
		t.Log("an attempt of the driver that failed: " + event)
	}
}

// chaos is the test's pods on a few GPUs.
type chaos struct {
	*space
	random    *rand.Rand
	templates []string
	next      int
	// live are the pods that exist, and not the ones that are being deleted.
	live    []string
	pods    corelisters.PodNamespaceLister
	changed chan struct{}
	devices map[string]resourceapi.Device
	gpus    []chaosGPU
}

// chaosGPU is a GPU that the test uses.
type chaosGPU struct {
	node    string
	uuid    string
	product string
}

func newChaos(t *testing.T, random *rand.Rand) *chaos {
	t.Helper()
	c := &chaos{space: newSpace(t), random: random, changed: make(chan struct{}, 1), devices: map[string]resourceapi.Device{}}
	for _, used := range []struct{ node, product string }{{"node-a", h100}, {"node-b", a100}} {
		_, machine := node(t, used.node)
		for _, g := range gpus(t, machine, used.product)[:2] {
			c.gpus = append(c.gpus, chaosGPU{used.node, g.UUID, g.Product})
		}
		for _, slice := range slicesOf(t, used.node) {
			for _, d := range slice.Spec.Devices {
				c.devices[used.node+"/"+d.Name] = d
			}
		}
	}
	c.makeTemplates()
	c.watchPods()
	return c
}

// makeTemplates makes the kinds of claims, the frequent ones several times in the list.
func (c *chaos) makeTemplates() {
	c.t.Helper()
	var whole, parents []string
	for _, g := range c.gpus {
		whole = append(whole, is("uuid", g.uuid))
		parents = append(parents, is("parentUUID", g.uuid))
	}
	onAny, ofAny := "("+strings.Join(whole, " || ")+")", "("+strings.Join(parents, " || ")+")"
	add := func(name string, weight int, spec resourceapi.ResourceClaimSpec) {
		c.template(name, spec)
		c.templates = append(c.templates, slices.Repeat([]string{name}, weight)...)
	}
	add("whole", 2, asks(request("gpu", wholeOf(onAny))))
	for _, memory := range []string{"1Gi", "7Gi", "10Gi", "19Gi", "40Gi"} {
		add("share-"+strings.ToLower(memory), 2, asks(request("gpu", shareOf(memory, onAny))))
	}
	for i, profile := range []string{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"} {
		add(fmt.Sprintf("partition-%d", i), 2, asks(request("gpu", partitionOf(profile, ofAny))))
	}
	add("half-partition", 1, asks(request("gpu", wanted(migClass, all(is("profile", "2g.20gb"), ofAny), "memory", "9Gi"))))
	add("two-partitions", 2, asks(request("small", partitionOf("1g.10gb", ofAny)), request("large", partitionOf("3g.40gb", ofAny))))
	add("share-and-partition", 1, asks(request("share", shareOf("5Gi", onAny)), request("partition", partitionOf("1g.10gb", ofAny))))
	add("two-shares", 1, asks(request("a", shareOf("5Gi", onAny)), request("b", shareOf("6Gi", onAny))))
	add("first-available", 4, asks(resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{
		alternative("partition", partitionOf("3g.40gb", ofAny)),
		alternative("share", shareOf("39Gi", onAny)),
		alternative("whole", wholeOf(onAny)),
	}}))
}

// watchPods keeps the pods of the namespace, and says on changed when one changed.
func (c *chaos) watchPods() {
	c.t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(c.name))
	informer := factory.Core().V1().Pods()
	notify := func() {
		select {
		case c.changed <- struct{}{}:
		default: // Somebody is told already.
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	}); err != nil {
		c.t.Fatal(err)
	}
	c.pods = informer.Lister().Pods(c.name)
	stop := make(chan struct{})
	factory.Start(stop)
	c.t.Cleanup(func() {
		close(stop)
		factory.Shutdown()
	})
	factory.WaitForCacheSync(c.t.Context().Done())
}

// round deletes some pods and creates others, all at once.
func (c *chaos) round(number int) (created, deleted []string) {
	c.t.Helper()
	c.live = slices.DeleteFunc(c.live, func(name string) bool {
		// One that fits nowhere makes room for others of its kind to be tried.
		pod, err := c.pods.Get(name)
		if err == nil && pod.Status.Phase == corev1.PodRunning && c.random.IntN(100) < 60 {
			return false
		}
		deleted = append(deleted, name)
		return true
	})
	for _, name := range deleted {
		if err := client.CoreV1().Pods(c.name).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
	for range min(2+c.random.IntN(5), randomPods-len(c.live)) {
		template := c.templates[c.random.IntN(len(c.templates))]
		name := fmt.Sprintf("r%d-%d-%s", number, c.next, template)
		c.next++
		c.start(usesTemplate(name, template))
		c.live = append(c.live, name)
		created = append(created, name)
	}
	return created, deleted
}

// settle waits until each pod that was created runs or fits nowhere, and each that
// was deleted is gone, and says how many run.
func (c *chaos) settle() string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		running, waiting, err := c.settled()
		if err == nil {
			return fmt.Sprintf("%d pods run, %d fit nowhere", running, waiting)
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
			c.t.Fatalf("the pods do not settle: %v", err)
		}
	}
}

func (c *chaos) settled() (running, waiting int, err error) {
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		return 0, 0, err
	}
	known := map[string]bool{}
	for _, pod := range pods {
		known[pod.Name] = true
		unschedulable := slices.ContainsFunc(pod.Status.Conditions, func(p corev1.PodCondition) bool {
			return p.Type == corev1.PodScheduled && p.Status == corev1.ConditionFalse && p.Reason == corev1.PodReasonUnschedulable
		})
		switch {
		case !slices.Contains(c.live, pod.Name):
			return 0, 0, fmt.Errorf("%s is not gone", pod.Name)
		case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
			c.t.Fatalf("%s has ended: %s %s", pod.Name, pod.Status.Reason, pod.Status.Message)
		case pod.Status.Phase == corev1.PodRunning:
			running++
		case unschedulable:
			waiting++
		default:
			return 0, 0, fmt.Errorf("%s is %s", pod.Name, pod.Status.Phase)
		}
	}
	for _, name := range c.live {
		if !known[name] {
			return 0, 0, fmt.Errorf("%s is not seen yet", name)
		}
	}
	return running, waiting, nil
}

// deleteAll deletes all pods and checks that nothing is left of them.
func (c *chaos) deleteAll() {
	c.t.Helper()
	err := client.CoreV1().Pods(c.name).DeleteCollection(c.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.live = nil
	c.settle()
	wantNothingLeft(c.t.Context(), c.t)
}

// failures are the events about claims that could not be prepared at first. All of
// them were in the end.
func (c *chaos) failures() []string {
	c.t.Helper()
	events, err := client.CoreV1().Events(c.name).List(c.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + failedPrepare})
	if err != nil {
		c.t.Fatal(err)
	}
	var messages []string
	for _, e := range events.Items {
		messages = append(messages, fmt.Sprintf("%s (%d times): %s", e.InvolvedObject.Name, max(1, e.Count), e.Message))
	}
	return messages
}
