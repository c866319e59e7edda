// Package contender puts the same question to Apportion's allocator, kube-scheduler's and
// Karpenter's.
//
// Each is given what it can use best: objects in its own types, made beforehand, and an
// allocator that lives for as long as it does in its program. It must not know how long
// anything takes.
package contender

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/bench/allocator/internal/setting"
)

// Call decides for the claims of one pod, another at each call, and says on how many
// instance types or nodes they can be met. Its error is that of the context, or a
// defect.
type Call func(ctx context.Context) (fit int, err error)

// Start begins a scheduling loop with empty caches.
type Start func(ctx context.Context) (Call, error)

// Contender takes a question.
type Contender struct {
	Name    string
	Prepare func(setting.Setting) (Start, error)
}

// All are the contenders. The first is ours.
func All() []Contender {
	return []Contender{
		{Name: "Apportion", Prepare: apportion},
		{Name: "kube-scheduler", Prepare: kubeScheduler},
		{Name: "Karpenter", Prepare: karpenterLoop},
	}
}

// pods is for how many pods claims are made. Nobody is asked about the same objects twice
// in a row, as no scheduler is.
const pods = 64

// inTurn gives the claims of one pod after the other.
func inTurn(s setting.Setting) func() []*resourceapi.ResourceClaim {
	all := s.Pods(pods)
	next := 0
	return func() []*resourceapi.ResourceClaim {
		next = (next + 1) % len(all)
		return all[next]
	}
}

// inZone are the nodes that a scheduler asks its allocator about at all.
func inZone(nodes []*corev1.Node, zone string) []*corev1.Node {
	if zone == "" {
		return nodes
	}
	var result []*corev1.Node
	for _, n := range nodes {
		if n.Labels[corev1.LabelTopologyZone] == zone {
			result = append(result, n)
		}
	}
	return result
}

// refused is nil where an error only says that the claims cannot be met.
func refused(ctx context.Context, err error, means bool) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, means:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("allocating: %w", err)
}
