package ownership

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

// full is an owner of which every field says something.
func full() Owner {
	return Owner{
		Device: Device{
			Driver: "d", Pool: "p", Name: "n", Type: "mig", UUID: "MIG-1", ParentUUID: "GPU-1", Profile: "1g.10gb",
			GPUInstanceID: ptr.To(7), ShareID: "s", Fraction: 0.125,
		},
		Claim:   ClaimRef{Namespace: "ns", Name: "c", UID: "c1"},
		Request: "r", AdminAccess: true, Consumed: map[string]string{"memory": "1Gi"}, MemoryLimitBytes: ptr.To[int64](1 << 30),
		Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Consumers: []Consumer{{
			Namespace: "ns", Name: "p", UID: "p1", Node: "node", State: Running,
			Workload:   &Workload{APIVersion: "apps/v1", Kind: "Deployment", Name: "w"},
			Labels:     map[string]string{"memory": "1Gi"},
			Containers: []Container{{Name: "c", Kind: RegularContainer, ID: "id", Started: true}},
		}},
	}
}

// mutate visits each leaf of a value, changes it and calls then with its path.
func mutate(v reflect.Value, path string, then func(path string)) {
	set := func(to any) {
		before := reflect.New(v.Type()).Elem()
		before.Set(v)
		v.Set(reflect.ValueOf(to).Convert(v.Type()))
		then(path)
		v.Set(before)
	}
	switch v.Kind() {
	case reflect.String:
		set(v.String() + "x")
	case reflect.Bool:
		set(!v.Bool())
	case reflect.Int, reflect.Int64:
		set(v.Int() + 1)
	case reflect.Float64:
		set(v.Float() / 2)
	case reflect.Pointer:
		mutate(v.Elem(), path, then)
		before := v.Elem().Interface()
		v.SetZero()
		then(path + " nil")
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(reflect.ValueOf(before))
		v.Set(p)
	case reflect.Slice:
		mutate(v.Index(0), path+"[0]", then)
		before := v.Interface()
		v.Set(v.Slice(0, 0))
		then(path + " empty")
		v.Set(reflect.ValueOf(before))
	case reflect.Map:
		set(map[string]string{"memory": "2Gi"})
		set(map[string]string{"memory": "1Gi", "shares": "1"})
		set(map[string]string{})
	case reflect.Struct:
		if t, ok := v.Interface().(time.Time); ok {
			set(t.Add(1))
			return
		}
		for i := range v.NumField() {
			mutate(v.Field(i), path+"."+v.Type().Field(i).Name, then)
		}
	default:
		panic("a field of a kind that the test does not know: " + path)
	}
}

// A field that is added to the types must be compared too.
func TestEqualComparesEveryField(t *testing.T) {
	a, b := []Owner{full()}, []Owner{full()}
	if !Equal(a, b) {
		t.Fatal("equal owners are said to differ")
	}
	n := 0
	mutate(reflect.ValueOf(&b[0]).Elem(), "owner", func(path string) {
		n++
		if Equal(a, b) || Equal(b, a) {
			t.Errorf("owners that differ in %s are said to be equal", path)
		}
		if x, y := mustJSON(t, a), mustJSON(t, b); x == y {
			t.Errorf("owners that differ in %s are the same in JSON", path)
		}
	})
	if n < 39 {
		t.Errorf("only %d fields were changed", n)
	}
	if !Equal(a, b) {
		t.Fatal("the test did not put back what it changed")
	}
}

func TestEqual(t *testing.T) {
	o := full()
	elsewhere := full()
	elsewhere.Since = elsewhere.Since.In(time.FixedZone("elsewhere", 3600))
	for _, test := range []struct {
		name string
		a, b []Owner
		want bool
	}{
		{"nothing", nil, []Owner{}, true},
		{"more", []Owner{o}, []Owner{o, o}, false},
		{"no map and an empty one", []Owner{{}}, []Owner{{Consumed: map[string]string{}, Consumers: []Consumer{}}}, true},
		{"one moment in two zones", []Owner{o}, []Owner{elsewhere}, true},
	} {
		if got := Equal(test.a, test.b); got != test.want {
			t.Errorf("%s: equal is %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSort(t *testing.T) {
	owner := func(driver, pool, name, share, namespace, claim, uid, request string) Owner {
		var o Owner
		mustUnmarshal(t, map[string]any{
			"device":  map[string]any{"driver": driver, "pool": pool, "name": name, "shareID": share},
			"claim":   map[string]any{"namespace": namespace, "name": claim, "uid": uid},
			"request": request,
		}, &o)
		return o
	}
	want := []Owner{
		owner("a", "z", "z", "z", "z", "z", "z", "z"),
		owner("b", "a", "z", "z", "z", "z", "z", "z"),
		owner("b", "b", "a", "z", "z", "z", "z", "z"),
		owner("b", "b", "b", "", "z", "z", "z", "z"),
		owner("b", "b", "b", "b", "a", "z", "z", "z"),
		owner("b", "b", "b", "b", "b", "a", "z", "z"),
		owner("b", "b", "b", "b", "b", "b", "a", "z"),
		owner("b", "b", "b", "b", "b", "b", "b", "a"),
		owner("b", "b", "b", "b", "b", "b", "b", "b"),
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		got := slices.Clone(want)
		random.Shuffle(len(got), func(i, k int) { got[i], got[k] = got[k], got[i] })
		Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("sorted (-want +got):\n%s", diff)
		}
	}
}

func TestSortLeavesOthersTheirConsumers(t *testing.T) {
	shared := []Consumer{{Namespace: "b", Name: "a"}, {Namespace: "a", Name: "b", UID: "2"}, {Namespace: "a", Name: "b", UID: "1"}}
	owners := []Owner{{Consumers: shared}}
	Sort(owners)
	want := []Consumer{{Namespace: "a", Name: "b", UID: "1"}, {Namespace: "a", Name: "b", UID: "2"}, {Namespace: "b", Name: "a"}}
	if diff := cmp.Diff(want, owners[0].Consumers); diff != "" {
		t.Errorf("consumers (-want +got):\n%s", diff)
	}
	if shared[0].Namespace != "b" {
		t.Error("Sort changed a slice that is not its own")
	}
}

func TestDiffAndApply(t *testing.T) {
	a, b, c := hold("c c1 gpu gpu-1"), hold("d c2 gpu gpu-2"), hold("e c3 gpu gpu-3")
	b2 := b
	b2.Consumers = []Consumer{{Name: "p"}}
	again := hold("c c9 gpu gpu-1")
	for _, test := range []struct {
		name          string
		before, after []Owner
		changed       []Owner
		removed       []Key
	}{
		{"nothing", nil, nil, nil, nil},
		{"the same", []Owner{a, b}, []Owner{a, b}, nil, nil},
		{"first", nil, []Owner{a, b}, []Owner{a, b}, nil},
		{"last", []Owner{a, b}, []Owner{}, nil, []Key{a.Key(), b.Key()}},
		{"one of each", []Owner{a, b}, []Owner{b2, c}, []Owner{b2, c}, []Key{a.Key()}},
		{"a claim of the same name", []Owner{a}, []Owner{again}, []Owner{again}, []Key{a.Key()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed, removed := Diff(test.before, test.after)
			if diff := cmp.Diff(test.changed, changed); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.removed, removed); diff != "" {
				t.Errorf("removed (-want +got):\n%s", diff)
			}
			before := slices.Clone(test.before)
			got := Apply(test.before, changed, removed)
			if !Equal(got, test.after) || got == nil {
				t.Errorf("applied, it is %v, want %v", got, test.after)
			}
			if !Equal(before, test.before) {
				t.Errorf("Apply changed what was before: %v", test.before)
			}
		})
	}
}

func TestApplyWithoutDiff(t *testing.T) {
	a, b := hold("c c1 gpu gpu-1"), hold("d c2 gpu gpu-2")
	other := hold("x c3 gpu gpu-9")
	unknown := other.Key()
	got := Apply([]Owner{a}, []Owner{b, a, b}, []Key{a.Key(), unknown, unknown})
	if diff := cmp.Diff([]Owner{a, b}, got); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
}

func mustJSON(t testing.TB, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func mustUnmarshal(t testing.TB, from, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(mustJSON(t, from)), to); err != nil {
		t.Fatal(err)
	}
}
