package kube

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/ktesting"
)

// claimRig is a running set of claims.
type claimRig struct {
	t       *testing.T
	api     *apiServer
	claims  *Claims
	changes chan struct{}
}

func newClaimRig(t *testing.T, objects ...runtime.Object) *claimRig {
	t.Helper()
	r := &claimRig{t: t, api: newAPIServer(objects...), changes: make(chan struct{}, 1)}
	r.claims = NewClaims(r.api)
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		r.claims.Run(ctx, func() {
			select {
			case r.changes <- struct{}{}:
			default:
			}
		})
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// eventually waits until claims are reserved as wanted ("claim: pod pod, claim: pod")
// and the problem has the part, or there is none if that is empty.
func (r *claimRig) eventually(want, problemPart string) {
	r.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		claims, problem, _ := r.claims.Get()
		got := reservations(claims)
		if got == want && strings.Contains(problem, problemPart) && (problemPart != "" || problem == "") {
			return
		}
		select {
		case <-r.changes:
		case <-deadline.C:
			r.t.Fatalf("claims are %q with problem %q, want %q with %q", got, problem, want, problemPart)
		}
	}
}

func reservations(claims []*resourceapi.ResourceClaim) string {
	var all []string
	for _, claim := range claims {
		var pods []string
		for _, r := range claim.Status.ReservedFor {
			pods = append(pods, r.Name)
		}
		slices.Sort(pods)
		all = append(all, string(claim.UID)+": "+strings.Join(pods, " "))
	}
	return strings.Join(all, ", ")
}

func newClaim(uid, version string, pods ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim", UID: types.UID(uid), ResourceVersion: version}}
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID("uid-" + pod)})
	}
	return claim
}

func expect(uid string, pods ...string) Expected {
	e := Expected{Namespace: "team", Name: "claim", UID: types.UID(uid)}
	for _, pod := range pods {
		e.Pods = append(e.Pods, types.UID("uid-"+pod))
	}
	return e
}

func (r *claimRig) update(claim *resourceapi.ResourceClaim) {
	r.t.Helper()
	if err := r.api.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), claim, "team"); err != nil {
		r.t.Fatal(err)
	}
}

func TestAClaimIsReadOnceWhereReservationsAndPodsAgree(t *testing.T) {
	r := newClaimRig(t, newClaim("c1", "1", "a"))
	r.claims.Expect([]Expected{expect("c1", "a")})
	r.eventually("c1: a", "")
	r.claims.Expect([]Expected{expect("c1", "a")})
	r.claims.Expect([]Expected{expect("c1", "a")})
	if n := r.api.count("get", "resourceclaims"); n != 1 {
		t.Errorf("the claim was read %d times, want once", n)
	}
	r.claims.Expect(nil)
	r.eventually("", "")
}

func TestAClaimThatIsPreparedNeedNotBeRead(t *testing.T) {
	r := newClaimRig(t)
	r.claims.Learn(newClaim("c1", "1", "a"))
	r.eventually("", "") // It is not prepared yet.
	r.claims.Expect(nil)
	r.claims.Expect([]Expected{expect("c1", "a")})
	r.eventually("c1: a", "")
	if n := r.api.count("get", "resourceclaims"); n != 0 {
		t.Errorf("the claim was read %d times, want never", n)
	}
}

func TestASecondPodOfAClaimIsNoticed(t *testing.T) {
	r := newClaimRig(t, newClaim("c1", "1", "a"))
	r.claims.Expect([]Expected{expect("c1", "a")})
	r.eventually("c1: a", "")
	r.update(newClaim("c1", "2", "a", "b"))
	r.claims.Expect([]Expected{expect("c1", "a", "b")})
	r.eventually("c1: a b", "")
}

// The pod's end is noticed here before its reservation is taken back.
func TestAClaimIsReadUntilItsReservationIsTakenBack(t *testing.T) {
	r := newClaimRig(t, newClaim("c1", "1", "a", "b"))
	r.claims.Expect([]Expected{expect("c1", "a", "b")})
	r.eventually("c1: a b", "")
	r.claims.Expect([]Expected{expect("c1", "a")})
	r.eventually("c1: a b", "")
	r.update(newClaim("c1", "2", "a"))
	r.eventually("c1: a", "")
}

func TestAClaimReservedForAGroupNeedNotNameItsPods(t *testing.T) {
	claim := newClaim("c1", "1")
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "group", UID: "uid-group"}}
	r := newClaimRig(t, claim)
	r.claims.Expect([]Expected{expect("c1", "a", "b")})
	r.eventually("c1: group", "")
	if n := r.api.count("get", "resourceclaims"); n != 1 {
		t.Errorf("the claim was read %d times, want once", n)
	}
}

func TestTheAPIServerIsAwayForAMinute(t *testing.T) {
	r := newClaimRig(t, newClaim("c1", "1", "a"))
	r.claims.Expect([]Expected{expect("c1", "a")})
	r.eventually("c1: a", "")
	r.api.setDown(true)
	// What agrees is right all the same.
	r.claims.Expect([]Expected{expect("c1", "a")})
	r.eventually("c1: a", "")
	r.update(newClaim("c1", "2", "a", "b"))
	before := time.Now()
	r.claims.Expect([]Expected{expect("c1", "a", "b")})
	r.eventually("c1: a", "team/claim: connection refused")
	if _, _, since := r.claims.Get(); since.Before(before) {
		t.Errorf("it is said to be stale since %s, want after %s", since, before)
	}
	r.api.setDown(false)
	r.eventually("c1: a b", "")
}

func TestAClaimThatWasNeverReadIsMissing(t *testing.T) {
	r := newClaimRig(t, newClaim("c1", "1", "a"))
	r.api.setDown(true)
	r.claims.Expect([]Expected{expect("c1", "a")})
	r.eventually("", "team/claim: connection refused")
	if _, _, since := r.claims.Get(); !since.IsZero() {
		t.Errorf("it is said to have been right until %s, want never", since)
	}
}

func TestAClaimThatIsGoneIsMissing(t *testing.T) {
	r := newClaimRig(t)
	r.claims.Expect([]Expected{expect("c1")})
	r.eventually("", "")
}

func TestAnotherClaimOfTheNameIsGivenInPlaceOfOneThatIsGone(t *testing.T) {
	r := newClaimRig(t, newClaim("c2", "7", "b"))
	r.claims.Expect([]Expected{expect("c1", "a")})
	r.eventually("c2: b", "")
	// Its reservations are followed.
	r.update(newClaim("c2", "8"))
	r.eventually("c2: ", "")
}

func TestAnOlderClaimDoesNotReplaceANewerOne(t *testing.T) {
	r := newClaimRig(t)
	r.claims.Learn(newClaim("c1", "10", "a", "b"))
	r.claims.Learn(newClaim("c1", "9", "a"))
	r.claims.Expect([]Expected{expect("c1", "a", "b")})
	r.eventually("c1: a b", "")
}
