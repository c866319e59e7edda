package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/plan/allocator"
	"apportion.dev/apportion/pkg/plan/simulate"
)

// plannedWorkloads is how many workloads are planned, each with a seed of its own.
const plannedWorkloads = 30

// plannedNodeLabel is on a planned node, so that its pods can name it: of several nodes
// that fit, kube-scheduler takes what its scores say, and not the first.
const plannedNodeLabel = "test.apportion.dev/planned-node"

// The plan's nodes are made as Node objects and slices from the templates, and the pods
// arrive one after the other: each must be scheduled on its node, with the devices of the
// plan.
func TestEveryPodOfAPlanIsScheduledAsPlanned(t *testing.T) {
	s := newSpace(t)
	classes, err := client.ResourceV1().DeviceClasses().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		totals planned
	)
	for seed := range plannedWorkloads {
		wg.Go(func() {
			did, err := followPlan(t.Context(), s.name, seed, classes.Items)
			mu.Lock()
			defer mu.Unlock()
			totals.add(did)
			if err != nil {
				t.Errorf("workload %d: %v", seed, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d workloads: %d pods on %d nodes as planned, %d with no place on any instance type", plannedWorkloads, totals.pods, totals.nodes, totals.notPlaced)
	if totals.pods < 4*plannedWorkloads || totals.nodes < plannedWorkloads {
		t.Errorf("%d pods were planned on %d nodes, too few to show anything", totals.pods, totals.nodes)
	}
}

// planned counts what was planned and seen.
type planned struct{ pods, nodes, notPlaced int }

func (p *planned) add(more planned) {
	p.pods += more.pods
	p.nodes += more.nodes
	p.notPlaced += more.notPlaced
}

func followPlan(ctx context.Context, namespace string, seed int, classes []resourceapi.DeviceClass) (did planned, err error) {
	w := newWorkload(namespace, seed)
	types, err := typesFor(seed)
	if err != nil {
		return did, err
	}
	in := &simulate.Input{Pods: w.pods, ClaimTemplates: w.templates, InstanceTypes: types}
	for i := range classes {
		in.Classes = append(in.Classes, &classes[i])
	}
	plan, err := simulate.Make(ctx, in, simulate.Options{Policy: allocator.Predict})
	if err != nil {
		return did, fmt.Errorf("plan: %w", err)
	}
	f := &follower{namespace: namespace, types: types, names: map[string]map[string]string{}}
	defer func() { err = errors.Join(err, f.remove(context.WithoutCancel(ctx), w)) }()
	for _, template := range w.templates {
		if _, err := client.ResourceV1().ResourceClaimTemplates(namespace).Create(ctx, template, metav1.CreateOptions{}); err != nil {
			return did, err
		}
	}
	did = planned{nodes: len(plan.NodeClaims), notPlaced: len(plan.NotPlaced)}
	for _, pod := range w.pods {
		for i := range plan.NodeClaims {
			for _, p := range plan.NodeClaims[i].Pods {
				if p.Name != pod.Name {
					continue
				}
				if err := f.follow(ctx, &plan.NodeClaims[i], pod, p); err != nil {
					return did, err
				}
				did.pods++
			}
		}
	}
	return did, nil
}

// follower makes what a plan says.
type follower struct {
	namespace string
	types     []*simulate.InstanceType
	// names are those of the devices of a node that was made, by that of the template.
	names map[string]map[string]string
}

func (f *follower) nodeName(claim *simulate.NodeClaim, pod *corev1.Pod) string {
	return "planned-" + pod.Spec.NodeSelector[workloadLabel] + "-" + claim.Name
}

// follow makes a pod, and its node if there is none yet, and checks where and with what
// it is scheduled.
func (f *follower) follow(ctx context.Context, claim *simulate.NodeClaim, pod *corev1.Pod, want simulate.Pod) error {
	node := f.nodeName(claim, pod)
	if f.names[node] == nil {
		if err := f.makeNode(ctx, claim, node); err != nil {
			return err
		}
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeSelector[plannedNodeLabel] = node
	if _, err := client.CoreV1().Pods(f.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	var problem string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		now, err := client.CoreV1().Pods(f.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range now.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				problem = c.Message
			}
		}
		pod = now
		return now.Spec.NodeName != "", nil
	})
	if err != nil {
		return fmt.Errorf("pod %s was planned on %s (%s) and is not scheduled: %s: %w", pod.Name, node, claim.InstanceType, problem, err)
	}
	if pod.Spec.NodeName != node {
		return fmt.Errorf("pod %s is on node %s, planned on %s", pod.Name, pod.Spec.NodeName, node)
	}
	return f.compare(ctx, pod, node, want)
}

// compare finds devices that are not those of the plan.
func (f *follower) compare(ctx context.Context, pod *corev1.Pod, node string, want simulate.Pod) error {
	var planned, got []string
	for _, c := range want.Claims {
		for _, d := range c.Devices {
			name := f.names[node][d.Device]
			if name == "" {
				return fmt.Errorf("pod %s was planned with device %s, which is not in the templates", pod.Name, d.Device)
			}
			planned = append(planned, sayDevice(d.Request, name, d.Consumed))
		}
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		claim, err := client.ResourceV1().ResourceClaims(f.namespace).Get(ctx, ptr.Deref(status.ResourceClaimName, ""), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.Status.Allocation == nil {
			return fmt.Errorf("claim %s of pod %s is not allocated", claim.Name, pod.Name)
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			got = append(got, sayDevice(r.Request, r.Device, r.ConsumedCapacity))
		}
	}
	slices.Sort(planned)
	slices.Sort(got)
	if !slices.Equal(planned, got) {
		return fmt.Errorf("pod %s was planned with\n\t%s\nand got\n\t%s", pod.Name, strings.Join(planned, "\n\t"), strings.Join(got, "\n\t"))
	}
	return nil
}

func sayDevice(request, device string, consumed map[resourceapi.QualifiedName]resource.Quantity) string {
	said := request + ": " + device
	for _, name := range slices.Sorted(maps.Keys(consumed)) {
		amount := consumed[name]
		said += fmt.Sprintf(" %s=%d", name, amount.Value())
	}
	return said
}

// makeNode makes a node of the claim's instance type, as the node and its driver would.
func (f *follower) makeNode(ctx context.Context, claim *simulate.NodeClaim, name string) error {
	i := slices.IndexFunc(f.types, func(t *simulate.InstanceType) bool { return t.Name == claim.InstanceType })
	if i < 0 {
		return fmt.Errorf("node claim %s has the unknown instance type %q", claim.Name, claim.InstanceType)
	}
	labels := maps.Clone(claim.Labels)
	labels[corev1.LabelHostname], labels[plannedNodeLabel] = name, name
	resources := corev1.ResourceList{
		corev1.ResourceCPU: quantity("64"), corev1.ResourceMemory: quantity("256Gi"), corev1.ResourcePods: quantity("110"),
	}
	_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		// The driver's pods must not come here.
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: plannedNodeLabel, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	f.names[name] = map[string]string{}
	for _, template := range f.types[i].Templates {
		published, err := f.publish(template, name)
		if err != nil {
			return err
		}
		for _, slice := range published {
			if _, err := client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// publish makes slices of a template, for GPUs with UUIDs of their own. Values of which a
// binding only says that they are equal are the binding's number.
func (f *follower) publish(template allocator.Template, node string) ([]*resourceapi.ResourceSlice, error) {
	gpus := map[string]string{} // By their names in the template.
	rename := func(old string) (string, error) {
		name, err := devicemodel.Parse(old)
		if err != nil {
			return "", err
		}
		if gpus[name.GPU] == "" {
			gpus[name.GPU] = uuid.NewString()[:8]
		}
		name.GPU = gpus[name.GPU]
		return name.String(), nil
	}
	var published []*resourceapi.ResourceSlice
	for i, s := range template.Slices {
		slice := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%03d", node, i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: template.Driver, NodeName: &node,
				Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(template.Slices))},
			},
		}
		for _, set := range s.SharedCounters {
			name, err := rename(set.Name)
			if err != nil {
				return nil, err
			}
			set.Name = name
			slice.Spec.SharedCounters = append(slice.Spec.SharedCounters, set)
		}
		for _, d := range s.Devices {
			d = *d.DeepCopy()
			for number, b := range template.Bindings {
				if slices.Contains(b.Devices, d.Name) {
					d.Attributes[attributeOf(b.Attribute)] = resourceapi.DeviceAttribute{StringValue: ptr.To(fmt.Sprintf("bound-%d", number))}
				}
			}
			name, err := rename(d.Name)
			if err != nil {
				return nil, err
			}
			f.names[node][d.Name], d.Name = name, name
			for j := range d.ConsumesCounters {
				if d.ConsumesCounters[j].CounterSet, err = rename(d.ConsumesCounters[j].CounterSet); err != nil {
					return nil, err
				}
			}
			slice.Spec.Devices = append(slice.Spec.Devices, d)
		}
		published = append(published, slice)
	}
	return published, nil
}

// attributeOf is how the driver writes an attribute: its own without a domain.
func attributeOf(name resourceapi.FullyQualifiedName) resourceapi.QualifiedName {
	return resourceapi.QualifiedName(strings.TrimPrefix(string(name), driverName+"/"))
}

// remove takes away all that was made. No kubelet ends the pods, so they go at once.
func (f *follower) remove(ctx context.Context, w *workload) error {
	now := int64(0)
	var errs []error
	for _, pod := range w.pods {
		errs = append(errs, goneOr(client.CoreV1().Pods(f.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})))
	}
	for node := range f.names {
		errs = append(errs,
			client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}),
			goneOr(client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{})))
	}
	return errors.Join(errs...)
}

// goneOr is the error, unless it says that there is nothing to delete.
func goneOr(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
