// Package node works out who holds what on one node whenever that may have changed, and
// publishes it: on a socket, over HTTP and as files for dcgm-exporter.
//
// What is held it is told by its caller, and who uses it by the API server.
package node

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/dcgm"
	"apportion.dev/apportion/pkg/ownership/kube"
	"apportion.dev/apportion/pkg/ownership/server"
)

const (
	// firstAnswer is how long nothing is said after the start while pods or claims
	// are missing. Clients keep what they know that long, which is better than devices
	// without pods.
	firstAnswer = 10 * time.Second
	// heldAgain is when what is held is asked for again after an error.
	heldAgain = time.Second
)

// Options say what an Owners is to publish, and where.
type Options struct {
	// NodeName is the node's name.
	NodeName string
	// Client may list and watch pods, and get claims.
	Client kubernetes.Interface
	// Held are the owners of what is prepared on the node, without consumers, in the
	// order of a snapshot. It is called by one goroutine.
	Held func() ([]ownership.Owner, error)
	// GPUIndex is the NVML index of the GPU with a UUID.
	GPUIndex func(uuid string) (int, bool)
	// Socket is where the ownership service listens; PodsFile keeps the node's pods
	// over a restart.
	Socket, PodsFile string
	// MappingDir is the folder for dcgm-exporter, empty for none.
	MappingDir string
}

// Owners says who holds what: it joins what is held with pods and claims whenever one of
// them changes. Nothing waits for it. All its methods may be called on nil, where nobody
// wants to know.
type Owners struct {
	o      Options
	pods   *kube.NodePods
	claims *kube.Claims
	server *server.Server
	// mapping is nil where there is nothing to write for dcgm-exporter.
	mapping *dcgm.Writer

	// wake has a value when something changed.
	wake chan struct{}

	// The rest belongs to Run. held are the last owners that Held gave, and verified is
	// when they were last known to be right.
	held     []ownership.Owner
	verified time.Time
	// said is true once something was published; unmapped is why the mapping could
	// not be written last.
	said     bool
	unmapped string
}

// New returns an Owners that has published nothing yet.
func New(options Options) *Owners {
	o := &Owners{
		o:      options,
		pods:   kube.NewNodePods(options.Client, options.NodeName, options.PodsFile),
		claims: kube.NewClaims(options.Client),
		server: server.New(),
		wake:   make(chan struct{}, 1),
	}
	if options.MappingDir != "" {
		o.mapping = dcgm.New(options.MappingDir)
	}
	return o
}

// Changed has the owners worked out again. It does not block.
func (o *Owners) Changed() {
	if o == nil {
		return
	}
	select {
	case o.wake <- struct{}{}:
	default: // They will be already.
	}
}

// Learn takes over a claim that the kubelet wants prepared.
func (o *Owners) Learn(claim *resourceapi.ResourceClaim) {
	if o != nil {
		o.claims.Learn(claim)
	}
}

// Handler answers over HTTP.
func (o *Owners) Handler() http.Handler {
	if o == nil {
		return http.NotFoundHandler()
	}
	return o.server.Handler()
}

// Run follows and publishes until ctx ends, and returns when nothing it started is
// running.
func (o *Owners) Run(ctx context.Context) {
	if o == nil {
		return
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { o.pods.Run(ctx, o.Changed) })
	workers.Go(func() { o.claims.Run(ctx, o.Changed) })
	workers.Go(func() { o.serve(ctx) })
	o.verified = time.Now()
	impatient := time.NewTimer(firstAnswer)
	defer impatient.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-impatient.C:
			o.said = true
		case <-o.wake:
		case <-again.C:
		}
		if !o.update(ctx) {
			again.Reset(heldAgain)
		}
	}
}

// serve answers on the socket until ctx ends. The driver goes on without it.
func (o *Owners) serve(ctx context.Context) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 7, Cap: time.Minute}
	_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := os.MkdirAll(filepath.Dir(o.o.Socket), 0o755)
		if err == nil {
			err = o.server.Serve(ctx, o.o.Socket)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Nobody can ask who holds what; it is tried again")
		}
		return ctx.Err() != nil, nil
	})
}

// update works out the owners and publishes them. It returns false if what is held is
// not known.
func (o *Owners) update(ctx context.Context) bool {
	var problems []string
	add := func(what, problem string) {
		if problem != "" {
			problems = append(problems, what+": "+problem)
		}
	}
	now := time.Now()
	held, err := o.o.Held()
	if err != nil {
		add("records", err.Error())
		klog.FromContext(ctx).Error(err, "The records of claims could not be read; who holds what may be stale")
	} else {
		o.held = held
	}
	pods, podProblem, verified := o.pods.Get()
	add("pods", podProblem)
	o.claims.Expect(expected(o.held, pods))
	claims, claimProblem, since := o.claims.Get()
	add("claims", claimProblem)
	if claimProblem != "" && since.Before(verified) {
		verified = since
	}
	// Before this process began, or while records could not be read, nothing was
	// known to be right.
	if err == nil && verified.After(o.verified) {
		o.verified = verified
	}
	if len(problems) > 0 && !o.said {
		return err == nil
	}
	o.said = true
	owners := ownership.Join(slices.Clone(o.held), claims, pods, nil)
	o.server.Set(owners, strings.Join(problems, "; "), o.verified)
	o.writeMapping(ctx, owners)
	klog.FromContext(ctx).V(5).Info("Ownership worked out", "owners", len(owners), "took", time.Since(now), "problems", problems)
	return err == nil
}

// expected are the claims that are held, each once, with the pods that refer to them.
func expected(held []ownership.Owner, pods []*corev1.Pod) []kube.Expected {
	var out []kube.Expected
	seen := map[types.UID]bool{}
	for _, owner := range held {
		c := owner.Claim
		if seen[c.UID] {
			continue
		}
		seen[c.UID] = true
		e := kube.Expected{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
		for _, pod := range pods {
			if !ownership.HasEnded(pod) && ownership.Refers(pod, c.Namespace, c.Name) {
				e.Pods = append(e.Pods, pod.UID)
			}
		}
		out = append(out, e)
	}
	return out
}

// writeMapping tells dcgm-exporter.
func (o *Owners) writeMapping(ctx context.Context, owners []ownership.Owner) {
	if o.mapping == nil {
		return
	}
	err := o.mapping.Write(owners, o.o.GPUIndex)
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if reason != "" && reason != o.unmapped {
		klog.FromContext(ctx).Error(err, "Owners could not be written for dcgm-exporter", "folder", o.o.MappingDir)
	}
	o.unmapped = reason
}
