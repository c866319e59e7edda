package driver

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
	"k8s.io/klog/v2"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
	"apportion.dev/apportion/pkg/node/prepare"
	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/dcgm"
	"apportion.dev/apportion/pkg/ownership/kube"
	"apportion.dev/apportion/pkg/ownership/server"
)

const (
	// firstAnswer is how long nothing is said after the start while pods or claims
	// are missing. Who watches keeps what it knows so long, which is better than
	// devices without pods.
	firstAnswer = 10 * time.Second
	// recordsAgain is when records are read again that could not be read.
	recordsAgain = time.Second
)

// owners says who holds what: it joins the records of prepared claims with pods and
// claims whenever one of them changes. Nothing waits for it. All its methods may be
// called on nil, where nobody wants to know.
type owners struct {
	config   Config
	records  func() ([]*prepare.Record, error)
	hardware func() (inventory.Node, *devicemodel.Model)
	pods     *kube.NodePods
	claims   *kube.Claims
	server   *server.Server
	// mapping is nil where dcgm-exporter is not to be told.
	mapping *dcgm.Writer

	// wake has a value when something changed.
	wake chan struct{}

	// The rest belongs to run. facts are the last ones known of devices, held the
	// owners of the last records read, and verified is when these were right.
	facts    deviceFacts
	held     []ownership.Owner
	verified time.Time
	// said is true once something was published; unmapped is why the mapping could
	// not be written last.
	said     bool
	unmapped string
}

func (d *Driver) newOwners() *owners {
	if !d.config.Ownership {
		return nil
	}
	o := &owners{
		config:  d.config,
		records: func() ([]*prepare.Record, error) { return d.preparer.Prepared() },
		hardware: func() (inventory.Node, *devicemodel.Model) {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.node, d.model
		},
		pods:   kube.NewNodePods(d.Client, d.config.NodeName, filepath.Join(d.config.Dir(), "pods.json")),
		claims: kube.NewClaims(d.Client),
		server: server.New(),
		wake:   make(chan struct{}, 1),
		facts:  newDeviceFacts(),
	}
	if dir := d.config.DCGMJobMappingDir; dir != "" {
		o.mapping = dcgm.New(dir)
	}
	return o
}

// changed has the owners worked out again. It does not block.
func (o *owners) changed() {
	if o == nil {
		return
	}
	select {
	case o.wake <- struct{}{}:
	default: // They will be anyway.
	}
}

// learn takes over a claim that the kubelet wants prepared.
func (o *owners) learn(claim *resourceapi.ResourceClaim) {
	if o != nil {
		o.claims.Learn(claim)
	}
}

// handler answers over HTTP.
func (o *owners) handler() http.Handler {
	if o == nil {
		return http.NotFoundHandler()
	}
	return o.server.Handler()
}

// run follows and publishes until ctx ends.
func (o *owners) run(ctx context.Context) {
	if o == nil {
		return
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { o.pods.Run(ctx, o.changed) })
	workers.Go(func() { o.claims.Run(ctx, o.changed) })
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
			again.Reset(recordsAgain)
		}
	}
}

// serve answers on the socket until ctx ends. That it cannot is no reason for the
// driver to stop.
func (o *owners) serve(ctx context.Context) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 7, Cap: time.Minute}
	_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		socket := o.config.OwnershipSocket()
		err := os.MkdirAll(filepath.Dir(socket), 0o755)
		if err == nil {
			err = o.server.Serve(ctx, socket)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Nobody can ask who holds what; it is tried again")
		}
		return ctx.Err() != nil, nil
	})
}

// update works out the owners and publishes them. It returns false if the records
// could not be read.
func (o *owners) update(ctx context.Context) bool {
	var problems []string
	add := func(what, problem string) {
		if problem != "" {
			problems = append(problems, what+": "+problem)
		}
	}
	now := time.Now()
	node, model := o.hardware()
	o.facts.learn(node, model)
	records, err := o.records()
	if err != nil {
		add("records", err.Error())
		klog.FromContext(ctx).Error(err, "The records of claims could not be read; who holds what may be stale")
	} else {
		o.facts.forget(node, records)
		o.held = held(o.config.DriverName, records, o.facts)
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
	o.writeMapping(ctx, owners, node)
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
func (o *owners) writeMapping(ctx context.Context, owners []ownership.Owner, node inventory.Node) {
	if o.mapping == nil {
		return
	}
	err := o.mapping.Write(owners, func(uuid string) (int, bool) {
		for _, gpu := range node.GPUs {
			if gpu.UUID == uuid {
				return gpu.Index, true
			}
		}
		return 0, false
	})
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if reason != "" && reason != o.unmapped {
		klog.FromContext(ctx).Error(err, "Owners could not be written for dcgm-exporter", "folder", o.config.DCGMJobMappingDir)
	}
	o.unmapped = reason
}
