package simulate

import (
	"cmp"
	"context"
	"slices"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
)

func taintRule(name string, selector *resourceapi.DeviceTaintSelector) *resourceapi.DeviceTaintRule {
	return &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: selector,
			Taint:          resourceapi.DeviceTaint{Key: "example.com/" + name, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}
}

// The taints are those of the tracker, which kube-scheduler uses.
func TestTaintRulesAsTheTrackerAppliesThem(t *testing.T) {
	var published []*resourceapi.ResourceSlice
	for _, name := range []string{"a", "b"} {
		published = append(published, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: "gpu.example.com", Pool: resourceapi.ResourcePool{Name: "pool-" + name},
				Devices: []resourceapi.Device{{Name: "gpu-0"}, {Name: "gpu-1", Taints: []resourceapi.DeviceTaint{{Key: "own"}}}},
			},
		})
	}
	rules := []*resourceapi.DeviceTaintRule{
		taintRule("none", nil),
		taintRule("all", &resourceapi.DeviceTaintSelector{}),
		taintRule("driver", &resourceapi.DeviceTaintSelector{Driver: new("gpu.example.com")}),
		taintRule("other-driver", &resourceapi.DeviceTaintSelector{Driver: new("nic.example.com")}),
		taintRule("pool", &resourceapi.DeviceTaintSelector{Pool: new("pool-b")}),
		taintRule("device", &resourceapi.DeviceTaintSelector{Pool: new("pool-a"), Device: new("gpu-1")}),
	}
	for _, which := range [][]*resourceapi.DeviceTaintRule{nil, rules, rules[3:4], rules[5:]} {
		var objects []runtime.Object
		for _, slice := range published {
			objects = append(objects, slice)
		}
		for _, rule := range which {
			objects = append(objects, rule)
		}
		if d := diff.Diff(taintsOf(tracked(t, objects)), taintsOf(withTaintRules(published, which))); d != "" {
			t.Errorf("%d rules: %s", len(which), d)
		}
	}
	if len(published[0].Spec.Devices[0].Taints) != 0 {
		t.Errorf("the input was changed")
	}
}

// tracked are the slices as the tracker gives them.
func tracked(t *testing.T, objects []runtime.Object) []*resourceapi.ResourceSlice {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(fake.NewClientset(objects...), 0)
	resources := factory.Resource().V1()
	defer cancel()
	tr, err := tracker.StartTracker(ctx, tracker.Options{
		EnableDeviceTaintRules: true, SliceInformer: resources.ResourceSlices(), TaintInformer: resources.DeviceTaintRules(),
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), tr.HasSynced) {
		t.Fatal("the tracker does not synchronize")
	}
	result, err := tr.ListPatchedResourceSlices()
	tr.Stop()
	cancel()
	factory.Shutdown()
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// taintsOf are the keys of taints by slice and device, in order.
func taintsOf(all []*resourceapi.ResourceSlice) map[string][]string {
	result := map[string][]string{}
	for _, slice := range all {
		for _, device := range slice.Spec.Devices {
			keys := []string{}
			for _, taint := range device.Taints {
				keys = append(keys, taint.Key)
			}
			slices.SortFunc(keys, cmp.Compare[string])
			result[slice.Name+"/"+device.Name] = keys
		}
	}
	return result
}
