// Package kube follows what the API server says of pods, claims and ResourceSlices.
//
// Whatever fails, the last good answer is kept, with the reason why it may be stale and
// since when. Of each object only what pkg/ownership reads is kept.
//
// The package knows nothing of devices, of what is prepared, and of who owns what.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/internal/atomicfile"
	"apportion.dev/apportion/pkg/ownership"
)

// NodePods follows the pods of one node that have claims.
type NodePods struct {
	set  *Set[*corev1.Pod]
	file string
}

// NewNodePods returns a NodePods that has seen nothing yet. The client may list and
// watch pods. The file keeps the pods over a restart of this process; its folder must
// exist. With an empty name nothing is kept.
func NewNodePods(client kubernetes.Interface, node, file string) *NodePods {
	selector := fields.OneTermEqualSelector("spec.nodeName", node).String()
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	return &NodePods{file: file, set: NewSet(SetOptions[*corev1.Pod]{
		Client: client,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return pods.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return pods.Watch(ctx, o)
		},
		Prune:  ownership.PrunePod,
		Wanted: func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node && ownership.HasClaims(pod) },
	})}
}

// Run follows the pods until ctx ends, and returns when nothing it started is running.
// It calls changed when [NodePods.Get] may answer otherwise; changed must not block.
func (p *NodePods) Run(ctx context.Context, changed func()) {
	p.load(ctx)
	unsaved := make(chan struct{}, 1)
	var saving sync.WaitGroup
	defer saving.Wait()
	saving.Go(func() { p.keepSaved(ctx, unsaved) })
	p.set.Run(ctx, func() {
		select {
		case unsaved <- struct{}{}:
		default: // All of it will be saved.
		}
		changed()
	})
}

// Get returns the pods of the node that have claims, by namespace and name, with
// the fields that ownership needs; nil if nothing is known of them. They are shared:
// callers must not change them. Those that have ended are among them for as long as the
// API server has them.
//
// problem says why pods may be stale or missing; it is empty if they are right.
// verified is when this process last knew them to be right, zero for never.
func (p *NodePods) Get() (pods []*corev1.Pod, problem string, verified time.Time) {
	pods, state := p.set.Get()
	switch {
	case state.Live:
	case state.Err != nil:
		problem = state.Err.Error()
	default:
		problem = "not read yet"
	}
	return pods, problem, state.Verified
}

// load reads the pods that the last process saved: the API server may be away, and they
// are right unless one has ended since.
func (p *NodePods) load(ctx context.Context) {
	if p.file == "" {
		return
	}
	data, err := os.ReadFile(p.file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var pods []*corev1.Pod
	if err == nil {
		err = json.Unmarshal(data, &pods)
	}
	if err != nil {
		klog.FromContext(ctx).Info("The pods of the last process could not be read; none is known until the API server answers", "file", p.file, "reason", err)
		return
	}
	p.set.seed(pods)
}

// keepSaved saves the pods whenever they have changed, until ctx ends.
func (p *NodePods) keepSaved(ctx context.Context, unsaved <-chan struct{}) {
	var saved []byte
	for {
		select {
		case <-ctx.Done():
			return
		case <-unsaved:
		}
		pods, state := p.set.Get()
		if p.file == "" || !state.Complete {
			continue
		}
		data, err := json.Marshal(pods)
		if err == nil && bytes.Equal(data, saved) {
			continue
		}
		if err == nil {
			// Whether it survives a power failure does not matter, as no pod does.
			err = atomicfile.WriteVolatile(p.file, data, 0o600)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Pods could not be saved; after a restart none is known until the API server answers", "file", p.file)
			continue
		}
		saved = data
	}
}
