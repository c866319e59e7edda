package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"apportion.dev/apportion/pkg/ownership"
)

// Claims knows the claims that a node has prepared. It neither lists nor watches: a
// claim is read once, and again only while the pods that it is reserved for
// (status.reservedFor) are not those that refer to it on the node. The scheduler
// reserves a claim before it binds the pod, so the two agree as soon as the pod is
// there; and where they do there is nothing to learn.
type Claims struct {
	client kubernetes.Interface
	queue  workqueue.TypedRateLimitingInterface[types.UID]

	mu     sync.Mutex
	claims map[types.UID]*knownClaim
}

// Expected is a claim that is prepared on the node.
type Expected struct {
	Namespace, Name string
	UID             types.UID
	// Pods are the UIDs of the pods on the node that refer to it and have not ended.
	Pods []types.UID
}

type knownClaim struct {
	Expected
	// claim is pruned; nil if it was not read yet, or is gone. It is another one, which
	// has its name now, if replaced.
	claim          *resourceapi.ResourceClaim
	gone, replaced bool
	// wanted is true once the claim was expected, learned when it was learned of.
	wanted  bool
	learned time.Time
	// err is why it could not be read, since failing.
	err     error
	failing time.Time
}

// learnedFor is how long a claim is kept that nobody expects yet.
const learnedFor = 5 * time.Minute

// claimReads is how many claims are read at once, and claimTime how long each may
// take. Retries begin after claimRetry and are at most claimRetryMost apart.
const (
	claimReads     = 4
	claimTime      = 10 * time.Second
	claimRetry     = 500 * time.Millisecond
	claimRetryMost = 30 * time.Second
)

// NewClaims returns a set that knows no claim. It may get claims.
func NewClaims(client kubernetes.Interface) *Claims {
	return &Claims{
		client: client, claims: map[types.UID]*knownClaim{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](claimRetry, claimRetryMost)),
	}
}

// Run reads claims until ctx ends, and returns when nothing it started is running. It
// calls changed when [Claims.Get] may answer otherwise; changed must not block.
func (c *Claims) Run(ctx context.Context, changed func()) {
	var workers sync.WaitGroup
	for range claimReads {
		workers.Go(func() {
			for {
				uid, stop := c.queue.Get()
				if stop {
					return
				}
				if c.readClaim(ctx, uid) {
					changed()
				}
				c.queue.Done(uid)
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
}

// Learn takes over a claim that somebody else has just read.
func (c *Claims) Learn(claim *resourceapi.ResourceClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.claims[claim.UID]
	if k == nil {
		k = &knownClaim{Expected: Expected{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}}
		c.claims[claim.UID] = k
	}
	k.learned = time.Now()
	k.take(claim)
}

// take takes over the claim unless a newer one is known.
func (k *knownClaim) take(claim *resourceapi.ResourceClaim) {
	k.err, k.gone = nil, false
	if k.claim != nil && !k.replaced {
		order, err := resourceversion.CompareResourceVersion(claim.ResourceVersion, k.claim.ResourceVersion)
		if err == nil && order < 0 {
			return
		}
	}
	k.claim, k.replaced = ownership.PruneClaim(claim), false
}

// Expect says which claims are prepared now. Others are forgotten, except those that
// were learned of lately and have not been expected yet.
func (c *Claims) Expect(expected []Expected) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := map[types.UID]bool{}
	for _, e := range expected {
		now[e.UID] = true
		e.Pods = slices.Sorted(slices.Values(e.Pods))
		k := c.claims[e.UID]
		if k == nil {
			k = &knownClaim{}
			c.claims[e.UID] = k
		}
		same := k.wanted && slices.Equal(k.Pods, e.Pods)
		k.Expected, k.wanted = e, true
		k.gone = k.gone && same // Its name may be another's now.
		if !same && !k.settled() {
			// What is waiting for its next try is tried at once.
			c.queue.Forget(e.UID)
			c.queue.Add(e.UID)
		}
	}
	for uid, k := range c.claims {
		if !now[uid] && (k.wanted || time.Since(k.learned) > learnedFor) {
			delete(c.claims, uid)
			c.queue.Forget(uid)
		}
	}
}

// settled says whether reading the claim again would tell nothing new.
func (k *knownClaim) settled() bool {
	if k.gone {
		return true
	}
	if k.claim == nil || k.replaced {
		return false
	}
	var pods []types.UID
	groups := false
	for _, r := range k.claim.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			pods = append(pods, r.UID)
		} else {
			groups = true // A PodGroup: its pods are not named.
		}
	}
	for _, uid := range pods {
		if !slices.Contains(k.Pods, uid) {
			return false
		}
	}
	return groups || len(k.Pods) == len(pods)
}

// readClaim reads a claim that is not settled, and says whether something changed.
func (c *Claims) readClaim(ctx context.Context, uid types.UID) bool {
	c.mu.Lock()
	k := c.claims[uid]
	if k == nil || !k.wanted || k.settled() {
		c.queue.Forget(uid)
		c.mu.Unlock()
		return false
	}
	namespace, name := k.Namespace, k.Name
	c.mu.Unlock()

	ask, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	claim, err := c.client.ResourceV1().ResourceClaims(namespace).Get(ask, name, metav1.GetOptions{})
	if ctx.Err() != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k = c.claims[uid]
	if k == nil {
		return false
	}
	switch {
	case err == nil && claim.UID == uid:
		k.take(claim)
	case err == nil:
		k.claim, k.replaced, k.gone, k.err = ownership.PruneClaim(claim), true, false, nil
	case apierrors.IsNotFound(err):
		k.claim, k.replaced, k.gone, k.err = nil, false, true, nil
	default:
		if k.err == nil {
			k.failing = time.Now()
		}
		k.err = err
	}
	if k.settled() {
		c.queue.Forget(uid)
	} else {
		c.queue.AddRateLimited(uid)
	}
	return true
}

// Get returns what is known of the expected claims, by namespace, name and UID: their
// names, what they were allocated and who reserved them. They are shared: callers must
// not change them. A claim that is gone is missing; in place of one whose name another
// claim has now there is that one.
//
// problem says which claims may be stale or are missing, and why; it is empty if they
// are right. since is when the first of them could not be read; zero if there is none,
// or if it has never been read.
func (c *Claims) Get() (claims []*resourceapi.ResourceClaim, problem string, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var problems []string
	never := false
	for _, k := range c.claims {
		if !k.wanted {
			continue
		}
		if k.claim != nil {
			claims = append(claims, k.claim)
		}
		if k.settled() {
			continue
		}
		switch {
		case k.err != nil:
			problems = append(problems, fmt.Sprintf("%s/%s: %v", k.Namespace, k.Name, k.err))
			if since.IsZero() || k.failing.Before(since) {
				since = k.failing
			}
		case k.claim == nil:
			problems = append(problems, fmt.Sprintf("%s/%s: not read yet", k.Namespace, k.Name))
		}
		never = never || k.claim == nil
	}
	if never {
		since = time.Time{}
	}
	slices.SortFunc(claims, func(a, b *resourceapi.ResourceClaim) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
	slices.Sort(problems)
	return claims, strings.Join(problems, "; "), since
}
