package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/e2e/cluster"
	"apportion.dev/apportion/e2e/image"
)

// Claims and pods for tests that need many of them, as values.

const (
	gpuClass = driverName
	migClass = "mig.apportion.dev"
	h100     = "NVIDIA H100 80GB HBM3"
)

// is a CEL expression: the device's attribute has the value.
func is(attribute, value string) string {
	return fmt.Sprintf("device.attributes[%q].%s == %q", driverName, attribute, value)
}

// has is a CEL expression: the device has the attribute.
func has(attribute string) string {
	return fmt.Sprintf("has(device.attributes[%q].%s)", driverName, attribute)
}

// all is a CEL expression: all of the expressions are true.
func all(expressions ...string) string { return strings.Join(expressions, " && ") }

// wanted are the devices of a class that a selector allows, with as much of their
// capacities as is given (name, amount, name, amount, ...).
func wanted(class, selector string, capacity ...string) resourceapi.ExactDeviceRequest {
	request := resourceapi.ExactDeviceRequest{DeviceClassName: class}
	if selector != "" {
		request.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}}
	}
	if len(capacity) > 0 {
		request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
		for pair := range slices.Chunk(capacity, 2) {
			request.Capacity.Requests[resourceapi.QualifiedName(pair[0])] = quantity(pair[1])
		}
	}
	return request
}

// wholeOf asks for a whole GPU, shareOf for memory of one, partitionOf for a
// partition with the profile; the selector says which GPUs.
func wholeOf(selector string) resourceapi.ExactDeviceRequest { return wanted(gpuClass, selector) }

func shareOf(memory, selector string) resourceapi.ExactDeviceRequest {
	return wanted(gpuClass, selector, "memory", memory)
}

func partitionOf(profile, selector string) resourceapi.ExactDeviceRequest {
	return wanted(migClass, all(is("profile", profile), selector))
}

// request gives a request a name.
func request(name string, exactly resourceapi.ExactDeviceRequest) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &exactly}
}

// alternative is one of a prioritized list.
func alternative(name string, r resourceapi.ExactDeviceRequest) resourceapi.DeviceSubRequest {
	return resourceapi.DeviceSubRequest{Name: name, DeviceClassName: r.DeviceClassName, Selectors: r.Selectors, Capacity: r.Capacity}
}

// asks is a claim's specification of requests.
func asks(requests ...resourceapi.DeviceRequest) resourceapi.ResourceClaimSpec {
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}}
}

// withConfig adds an opaque config for the requests, or for all if none is named.
func withConfig(spec resourceapi.ResourceClaimSpec, parameters string, requests ...string) resourceapi.ResourceClaimSpec {
	spec.Devices.Config = append(slices.Clone(spec.Devices.Config), resourceapi.DeviceClaimConfiguration{
		Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: driverName, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
		}},
	})
	return spec
}

// Configs that tests use. The body is that of the kind's fields.
func gpuConfig(body string) string { return config("GPUConfig", body) }
func migConfig(body string) string { return config("MIGConfig", body) }
func config(kind, body string) string {
	return fmt.Sprintf(`{"apiVersion":"resource.apportion.dev/v1alpha1","kind":%q,%s}`, kind, body)
}

// claim makes a claim that pods may use.
func (s *space) claim(name string, spec resourceapi.ResourceClaimSpec) {
	s.t.Helper()
	_, err := client.ResourceV1().ResourceClaims(s.name).Create(s.t.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// template makes a template from which each pod gets a claim of its own.
func (s *space) template(name string, spec resourceapi.ResourceClaimSpec) {
	s.t.Helper()
	_, err := client.ResourceV1().ResourceClaimTemplates(s.name).Create(s.t.Context(), &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// work is the name of the container of a pod that has one.
const work = "work"

// entry is the pod's own name for its claim.
const entry = "gpu"

// podWith is a pod whose one container sleeps until it is deleted and ends at once
// when it is. It has no claim.
func podWith(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			RestartPolicy:                 corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: work, Image: cluster.BusyboxImage,
				Command: []string{"sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"},
			}},
		},
	}
}

// usesClaim is a pod like podWith with a claim that exists.
func usesClaim(name, claim string) *corev1.Pod {
	return withClaim(podWith(name), corev1.PodResourceClaim{Name: entry, ResourceClaimName: &claim})
}

// usesTemplate is a pod like podWith with a claim of its own.
func usesTemplate(name, template string) *corev1.Pod {
	return withClaim(podWith(name), corev1.PodResourceClaim{Name: entry, ResourceClaimTemplateName: &template})
}

func withClaim(pod *corev1.Pod, claim corev1.PodResourceClaim) *corev1.Pod {
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, claim)
	for i := range pod.Spec.Containers {
		resources := &pod.Spec.Containers[i].Resources
		resources.Claims = append(resources.Claims, corev1.ResourceClaim{Name: claim.Name})
	}
	return pod
}

// probe is a container that allocates amounts of a fake GPU's memory, one after the
// other. It prints "allocated" with each, and at the first that it does not get
// "out of memory", and then ends with 3. request is that of the pod's claim which
// the container has; all if empty.
func probe(name, request, gpu string, amounts ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: image.DriverName, ImagePullPolicy: corev1.PullNever,
		Command:      append([]string{"/usr/bin/apportion", "fake", "allocate", "--machine", machineDir, "--gpu", gpu}, amounts...),
		VolumeMounts: []corev1.VolumeMount{{Name: "machine", MountPath: machineDir}},
		Resources:    corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: entry, Request: request}}},
	}
}

// probes is a pod of probes that have the claim.
func probes(name, claim string, containers ...corev1.Container) *corev1.Pod {
	pod := usesClaim(name, claim)
	pod.Spec.Containers = containers
	pod.Spec.Volumes = []corev1.Volume{{
		Name:         "machine",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: machineDir}},
	}}
	return pod
}

// start makes the pods.
func (s *space) start(pods ...*corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		if _, err := client.CoreV1().Pods(s.name).Create(s.t.Context(), pod, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// run makes the pods and waits until all of them run.
func (s *space) run(pods ...*corev1.Pod) {
	s.t.Helper()
	s.start(pods...)
	for _, pod := range pods {
		s.running(pod.Name)
	}
}

// deletePods deletes the pods and waits until all are gone.
func (s *space) deletePods(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if err := client.CoreV1().Pods(s.name).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
	s.gone(names...)
}

// gone waits until the pods do not exist.
func (s *space) gone(names ...string) {
	s.t.Helper()
	for _, name := range names {
		waitFor(s.t, "pod "+name+" is gone", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), err
		})
	}
}

// ended waits until a container has ended and returns its exit status and what it
// printed.
func (s *space) ended(podName, container string) (status int32, output string) {
	s.t.Helper()
	waitFor(s.t, fmt.Sprintf("container %s of pod %s ends", container, podName), func(ctx context.Context) (bool, error) {
		pod, err := client.CoreV1().Pods(s.name).Get(ctx, podName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.Name == container && c.State.Terminated != nil {
				status = c.State.Terminated.ExitCode
				return true, nil
			}
		}
		return false, fmt.Errorf("its states are %+v", pod.Status.ContainerStatuses)
	})
	said, err := client.CoreV1().Pods(s.name).GetLogs(podName, &corev1.PodLogOptions{Container: container}).DoRaw(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return status, strings.TrimSpace(string(said))
}

// wantEvent waits for a warning about a pod that contains all texts.
func (s *space) wantEvent(podName, reason string, texts ...string) {
	s.t.Helper()
	waitFor(s.t, fmt.Sprintf("an Event %s about pod %s", reason, podName), func(ctx context.Context) (bool, error) {
		events, err := client.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{
			FieldSelector: fmt.Sprintf("involvedObject.name=%s,reason=%s", podName, reason),
		})
		if err != nil {
			return false, err
		}
		var said []string
		for _, e := range events.Items {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(e.Message, text) }) {
				return true, nil
			}
			said = append(said, e.Message)
		}
		return false, fmt.Errorf("want %q in one of %q", texts, said)
	})
}

// failedPrepare is the kubelet's reason for events about claims that the driver
// did not prepare.
const failedPrepare = "FailedPrepareDynamicResources"

// statusOf waits until the status of a pod's claim has all its devices, and returns
// them in the order of the claim's allocation.
func (s *space) statusOf(podName string) []resourceapi.AllocatedDeviceStatus {
	s.t.Helper()
	var devices []resourceapi.AllocatedDeviceStatus
	waitFor(s.t, "the claim's status of pod "+podName, func(context.Context) (bool, error) {
		claim := s.claimOf(s.pod(podName), entry)
		if claim.Status.Allocation == nil {
			return false, fmt.Errorf("claim %s is not allocated", claim.Name)
		}
		devices = nil
		for _, result := range claim.Status.Allocation.Devices.Results {
			i := slices.IndexFunc(claim.Status.Devices, func(d resourceapi.AllocatedDeviceStatus) bool {
				return d.Pool == result.Pool && d.Device == result.Device && ptr.Deref(d.ShareID, "") == string(ptr.Deref(result.ShareID, ""))
			})
			if i < 0 {
				return false, fmt.Errorf("claim %s has no status for %s", claim.Name, result.Device)
			}
			devices = append(devices, claim.Status.Devices[i])
		}
		return true, nil
	})
	return devices
}

// resultsOf are the devices of a pod's claim.
func (s *space) resultsOf(podName string) []resourceapi.DeviceRequestAllocationResult {
	s.t.Helper()
	claim := s.claimOf(s.pod(podName), entry)
	if claim.Status.Allocation == nil {
		s.t.Fatalf("claim %s of pod %s is not allocated", claim.Name, podName)
	}
	return claim.Status.Allocation.Devices.Results
}

// conditionOf is what the status of a device says about a condition; empty if
// nothing.
func conditionOf(d resourceapi.AllocatedDeviceStatus, kind string) metav1.ConditionStatus {
	for _, c := range d.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// uuidOf is the UUID in the status of a device: a GPU's, or a MIG device's.
func uuidOf(d resourceapi.AllocatedDeviceStatus) string {
	var data struct {
		UUID string `json:"uuid"`
	}
	if d.Data == nil || json.Unmarshal(d.Data.Raw, &data) != nil {
		return ""
	}
	return data.UUID
}
