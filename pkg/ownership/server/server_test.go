package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/pkg/ownership"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// owner is of a GPU by a claim, which one container of a pod uses.
func owner(device, claim, pod string) ownership.Owner {
	return ownership.Owner{
		Device:  ownership.Device{Driver: "gpu.apportion.dev", Pool: "node", Name: device, Type: "gpu", UUID: "GPU-" + device, Fraction: 1},
		Claim:   ownership.ClaimRef{Namespace: "team", Name: claim, UID: types.UID(claim + "-uid")},
		Request: "gpu",
		Since:   noon,
		Consumers: []ownership.Consumer{{
			Namespace: "team", Name: pod, UID: types.UID(pod + "-uid"), State: ownership.Running,
			Containers: []ownership.Container{{Name: "main", Kind: ownership.RegularContainer}},
		}},
	}
}

func owners(owners ...ownership.Owner) []ownership.Owner { return owners }

// described is "device=claim/pod" of each owner.
func described(owners []ownership.Owner) string {
	var parts []string
	for _, o := range owners {
		parts = append(parts, fmt.Sprintf("%s=%s/%s", o.Device.Name, o.Claim.Name, o.Consumers[0].Name))
	}
	return strings.Join(parts, " ")
}

func TestSet(t *testing.T) {
	type set struct {
		owners         []ownership.Owner
		problem        string
		wantGeneration uint64
		wantOwners     string
		// wantTime is the number of the Set that made the owners what they are.
		wantTime int
	}
	for _, test := range []struct {
		name string
		sets []set
	}{
		{"nobody", []set{{nil, "", 1, "", 0}, {owners(), "", 1, "", 0}}},
		{"the same owners are no new generation", []set{
			{owners(owner("a", "1", "p")), "", 1, "a=1/p", 0},
			{owners(owner("a", "1", "p")), "", 1, "a=1/p", 0},
			{owners(owner("a", "1", "q")), "", 2, "a=1/q", 2},
		}},
		{"nor is a problem", []set{
			{owners(owner("a", "1", "p")), "", 1, "a=1/p", 0},
			{owners(owner("a", "1", "p")), "pods: gone", 1, "a=1/p", 0},
			{owners(owner("b", "1", "p")), "pods: gone", 2, "b=1/p", 2},
		}},
		{"nor is another order", []set{
			{owners(owner("b", "2", "p"), owner("a", "1", "p")), "", 1, "a=1/p b=2/p", 0},
			{owners(owner("a", "1", "p"), owner("b", "2", "p")), "", 1, "a=1/p b=2/p", 0},
		}},
		{"back to what was is a new generation", []set{
			{owners(owner("a", "1", "p")), "", 1, "a=1/p", 0},
			{nil, "", 2, "", 1},
			{owners(owner("a", "1", "p")), "", 3, "a=1/p", 2},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New()
				start := time.Now()
				for i, set := range test.sets {
					verified := noon.Add(time.Duration(i) * time.Second)
					s.Set(set.owners, set.problem, verified.Local())
					got := s.Snapshot()
					if got.Generation != set.wantGeneration || described(got.Owners) != set.wantOwners || got.Problem != set.problem {
						t.Errorf("set %d: got generation %d, %q, problem %q", i, got.Generation, described(got.Owners), got.Problem)
					}
					if want := start.Add(time.Duration(set.wantTime) * time.Minute).Round(0).UTC(); got.Time != want || got.Verified != verified {
						t.Errorf("set %d: got times %v and %v, want %v and %v", i, got.Time, got.Verified, want, verified)
					}
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

func TestInstancesDiffer(t *testing.T) {
	if a, b := New().Snapshot().Instance, New().Snapshot().Instance; a == b || a == "" {
		t.Errorf("instances are %q and %q", a, b)
	}
}

func TestWhatIsSetIsNotChanged(t *testing.T) {
	s := New()
	given := owners(owner("b", "2", "p"), owner("a", "1", "p"))
	s.Set(given, "", noon)
	if got := described(given); got != "b=2/p a=1/p" {
		t.Errorf("the caller's owners became %q", got)
	}
	given[0] = owner("c", "3", "p")
	if got := described(s.Snapshot().Owners); got != "a=1/p b=2/p" {
		t.Errorf("the published owners became %q", got)
	}
}

func TestHTTP(t *testing.T) {
	known := New()
	known.Set(owners(owner("a", "1", "p")), "pods: <gone>", noon)
	snapshot := known.Snapshot()
	want := fmt.Sprintf(`{"instance":%q,"generation":1,"time":%q,"verified":"2026-05-01T12:00:00Z","problem":"pods: \u003cgone\u003e","owners":[`+
		`{"device":{"driver":"gpu.apportion.dev","pool":"node","name":"a","type":"gpu","uuid":"GPU-a","fraction":1},`+
		`"claim":{"namespace":"team","name":"1","uid":"1-uid"},"request":"gpu","since":"2026-05-01T12:00:00Z",`+
		`"consumers":[{"namespace":"team","name":"p","uid":"p-uid","state":"Running","containers":[{"name":"main","kind":"regular"}]}]}]}`+"\n",
		snapshot.Instance, snapshot.Time.Format(time.RFC3339Nano))
	empty := New()
	empty.Set(nil, "", noon)
	for _, test := range []struct {
		name, method, path string
		server             *Server
		wantStatus         int
		wantBody           string
	}{
		{"a snapshot", "GET", "/ownership", known, http.StatusOK, want},
		{"nobody", "GET", "/ownership", empty, http.StatusOK, `"owners":[]}` + "\n"},
		{"not known", "GET", "/ownership", New(), http.StatusServiceUnavailable, "not known yet"},
		{"writing", "POST", "/ownership", known, http.StatusMethodNotAllowed, ""},
		{"something else", "GET", "/", known, http.StatusNotFound, ""},
		{"below it", "GET", "/ownership/a", known, http.StatusNotFound, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			test.server.Handler().ServeHTTP(recorder, httptest.NewRequest(test.method, test.path, nil))
			body := recorder.Body.String()
			if recorder.Code != test.wantStatus || !strings.Contains(body, test.wantBody) {
				t.Errorf("got status %d and\n%s\nwant status %d and\n%s", recorder.Code, body, test.wantStatus, test.wantBody)
			}
			if recorder.Code == http.StatusOK && !json.Valid(recorder.Body.Bytes()) {
				t.Errorf("not JSON: %s", body)
			}
		})
	}
}
