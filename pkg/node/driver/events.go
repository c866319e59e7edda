package driver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/node/follow"
	"apportion.dev/apportion/pkg/node/prepare"
)

// eventRecorder writes Kubernetes Events for what an administrator must see.
type eventRecorder struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	nodeRef     *corev1.ObjectReference
}

func newEventRecorder(ctx context.Context, client kubernetes.Interface, c Config) *eventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	scheme := runtime.NewScheme()
	return &eventRecorder{
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(scheme, corev1.EventSource{Component: c.DriverName, Host: c.NodeName}),
		// The kubelet's events about its node name it in this way too.
		nodeRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: c.NodeName, UID: types.UID(c.NodeName)},
	}
}

func (e *eventRecorder) Shutdown() { e.broadcaster.Shutdown() }

// node writes a warning about the node.
func (e *eventRecorder) node(reason, format string, args ...any) {
	e.recorder.Eventf(e.nodeRef, corev1.EventTypeWarning, reason, format, args...)
}

// claim writes an event about a claim.
func (e *eventRecorder) claim(ref prepare.ClaimRef, kind, reason, format string, args ...any) {
	e.recorder.Eventf(&corev1.ObjectReference{
		APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
	}, kind, reason, format, args...)
}

// recordDamaged tells of a claim's record that was set aside. Nobody but the record
// knew the claim's name, so the event is about the node.
func (d *Driver) recordDamaged(ctx context.Context) func(types.UID, string, error) {
	return func(uid types.UID, path string, reason error) {
		klog.FromContext(ctx).Error(reason, "The record of a claim could not be read and was set aside; the claim is prepared anew", "uid", uid, "path", path)
		d.Metrics.repairs.WithLabelValues(kindDamagedRecord).Inc()
		d.events.node("RecordSetAside", "The record of claim %s could not be read (%v); it was kept as %s, and the claim is prepared anew when its pod needs it", uid, reason, path)
	}
}

func (d *Driver) recordRepaired(ctx context.Context) func(prepare.ClaimRef, string) {
	return func(ref prepare.ClaimRef, reason string) {
		klog.FromContext(ctx).Info("A claim was put right", "claim", klog.KRef(ref.Namespace, ref.Name), "uid", ref.UID, "reason", reason)
		d.Metrics.repairs.WithLabelValues(kindRepaired).Inc()
		d.events.claim(ref, corev1.EventTypeNormal, "ClaimRepaired", "Put right on node %s: %s", d.config.NodeName, reason)
	}
}

// reportProblems writes an event for each problem that was not there before.
func (d *Driver) reportProblems(ctx context.Context, before, now follow.View) {
	node, old, model := now.Node, before.Model, now.Model
	logger := klog.FromContext(ctx)
	if node.Problem != "" && node.Problem != before.Node.Problem {
		logger.Info("The NVIDIA driver cannot be used", "problem", node.Problem)
		d.events.node("DriverProblem", "The NVIDIA driver cannot be used: %s", node.Problem)
	}
	for _, device := range model.Devices {
		if was, _ := old.Device(device.API.Name); device.Problem != was.Problem {
			if device.Problem == "" {
				logger.Info("A GPU is in order again", "device", device.API.Name, "uuid", device.GPUUUID)
				continue
			}
			logger.Info("A GPU has a problem", "device", device.API.Name, "uuid", device.GPUUUID, "problem", device.Problem)
			d.events.node("GPUProblem", "GPU %s (%s): %s", device.API.Name, device.GPUUUID, device.Problem)
		}
	}
	known := map[devicemodel.Skipped]bool{}
	for _, s := range old.Skipped {
		known[s] = true
	}
	for _, s := range model.Skipped {
		if known[s] {
			continue
		}
		logger.Info("A GPU is not offered", "uuid", s.UUID, "pciBusID", s.PCIBusID, "reason", s.Reason)
		if !s.ByPolicy {
			d.events.node("GPUNotOffered", "GPU %s is not offered: %s", gpuName(s), s.Reason)
		}
	}
}

func gpuName(s devicemodel.Skipped) string {
	if s.UUID == "" {
		return fmt.Sprintf("at %s", s.PCIBusID)
	}
	return s.UUID
}
