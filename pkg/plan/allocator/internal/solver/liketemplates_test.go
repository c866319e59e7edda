package solver_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/plan/allocator/internal/solver"
)

// asTemplate takes one pool out of the slices of a case and gives it back as what a
// template says of it. It must be one that is the node's alone, whole and valid, and the
// last of its driver, which is where templates come. Nothing if there is none.
func asTemplate(c Case) (rest []*resourceapi.ResourceSlice, driver, pool string, template []solver.TemplateSlice) {
	last := map[string]string{}
	for _, slice := range c.Slices {
		last[slice.Spec.Driver] = max(last[slice.Spec.Driver], slice.Spec.Pool.Name)
	}
	for _, driver := range slices.Sorted(maps.Keys(last)) {
		var own, rest []*resourceapi.ResourceSlice
		fits := true
		for _, slice := range c.Slices {
			if slice.Spec.Driver != driver || slice.Spec.Pool.Name != last[driver] {
				rest = append(rest, slice)
				continue
			}
			own = append(own, slice)
			fits = fits && slice.Spec.NodeName != nil && *slice.Spec.NodeName == c.Node.Name && slice.Spec.Pool.Generation == own[0].Spec.Pool.Generation
		}
		for _, slice := range own {
			fits = fits && slice.Spec.Pool.ResourceSliceCount == int64(len(own))
		}
		if !fits {
			continue
		}
		slices.SortFunc(own, func(a, b *resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
		for _, slice := range own {
			template = append(template, solver.TemplateSlice{Devices: slice.Spec.Devices, SharedCounters: slice.Spec.SharedCounters})
		}
		return rest, driver, last[driver], template
	}
	return nil, "", "", nil
}

// solveTemplate asks the solver about a case in which one pool is a template.
func solveTemplate(t *testing.T, cache *solver.Cache, c Case, template *solver.Template) Answer {
	t.Helper()
	pools, err := solver.NewSnapshot(cache, c.Slices).Pools(c.Node)
	if err != nil {
		return answerOf(solver.Solution{}, err)
	}
	claims, err := solver.Compile(cache, c.Claims, c.ClassMap())
	if err != nil {
		return answerOf(solver.Solution{}, err)
	}
	return answerOf(solver.Solve(context.Background(), solver.Problem{
		Pools: pools.WithTemplates(template), Node: c.Node, Usage: solver.NewUsage(c.Allocated()), Claims: claims, Budget: budget,
	}))
}

// TestTemplatesAnswerLikeSlices takes a pool as a template for what it will publish, and
// compares with what kube-scheduler says once it has published it.
func TestTemplatesAnswerLikeSlices(t *testing.T) {
	scheduler, cache := newScheduler(), solver.NewCache()
	tried := 0
	for seed := range uint64(defaultCases / 30) {
		c := Generate(Seeded(seed))
		rest, driver, pool, content := asTemplate(c)
		if content == nil {
			continue
		}
		template, err := solver.NewTemplate(cache, driver, pool, content, nil)
		if err != nil {
			continue // such a pool is invalid: TestMinimalCases has one
		}
		want := scheduler.Allocate(c, c.Node)
		before := c
		c.Slices = rest
		if text := Difference(want, solveTemplate(t, cache, c, template)); text != "" && want.Verdict != Cut {
			t.Fatalf("seed %d, pool %s/%s as a template: %s\nkube-scheduler: %s\n%s", seed, driver, pool, text, want, before.YAML())
		}
		tried++
	}
	t.Logf("%d cases have a pool that can be a template", tried)
	if tried < defaultCases/200 {
		t.Errorf("only %d cases have a pool that can be a template", tried)
	}
}

// TestBindingsAnswerLikeAttributes takes away an attribute from a template, says instead
// which devices will share its value, and compares with what kube-scheduler says once
// the value is known.
func TestBindingsAnswerLikeAttributes(t *testing.T) {
	scheduler, cache := newScheduler(), solver.NewCache()
	tried := 0
	for seed := range uint64(defaultCases / 15) {
		c := Generate(Seeded(seed))
		if !matchesRoot(c) || needsValue(c) {
			continue
		}
		_, driver, pool, content := asTemplate(c)
		if content == nil {
			continue
		}
		c.Slices = slices.DeleteFunc(c.Slices, func(slice *resourceapi.ResourceSlice) bool {
			return slice.Spec.Driver != driver || slice.Spec.Pool.Name != pool
		})
		bindings := bind(content)
		template, err := solver.NewTemplate(cache, driver, pool, content, bindings)
		if err != nil {
			continue
		}
		want := scheduler.Allocate(c, c.Node)
		before := c
		c.Slices = nil
		if text := Difference(want, solveTemplate(t, cache, c, template)); text != "" && want.Verdict != Cut {
			t.Fatalf("seed %d: %s\nkube-scheduler: %s\nbindings: %v\n%s", seed, text, want, bindings, before.YAML())
		}
		tried++
	}
	t.Logf("%d cases ask for a shared PCIe root of a template", tried)
	if tried < defaultCases/1000 {
		t.Errorf("only %d cases ask for a shared PCIe root of a template", tried)
	}
}

// bind removes the PCIe root from the devices and tells who share one.
func bind(template []solver.TemplateSlice) []solver.Binding {
	groups := map[string][]string{}
	for i := range template {
		devices := slices.Clone(template[i].Devices)
		for j := range devices {
			root, found := devices[j].Attributes[pcieRoot]
			if found {
				groups[*root.StringValue] = append(groups[*root.StringValue], devices[j].Name)
			}
			devices[j].Attributes = maps.Clone(devices[j].Attributes)
			delete(devices[j].Attributes, pcieRoot)
		}
		template[i].Devices = devices
	}
	var bindings []solver.Binding
	for _, root := range slices.Sorted(maps.Keys(groups)) {
		bindings = append(bindings, solver.Binding{Attribute: pcieRoot, Devices: groups[root]})
	}
	return bindings
}

// needsValue says whether a case asks more of a PCIe root than that it is the same.
func needsValue(c Case) bool {
	distinct := slices.ContainsFunc(constraints(c), func(constraint resourceapi.DeviceConstraint) bool {
		return constraint.DistinctAttribute != nil && *constraint.DistinctAttribute == pcieRoot
	})
	return distinct || slices.ContainsFunc(selectors(c), func(selector resourceapi.DeviceSelector) bool {
		return strings.Contains(selector.CEL.Expression, `["resource.kubernetes.io"]`)
	})
}

func selectors(c Case) []resourceapi.DeviceSelector {
	var all []resourceapi.DeviceSelector
	for _, class := range c.Classes {
		all = append(all, class.Spec.Selectors...)
	}
	for _, claim := range c.Claims {
		for _, request := range claim.Spec.Devices.Requests {
			if request.Exactly != nil {
				all = append(all, request.Exactly.Selectors...)
			}
			for _, sub := range request.FirstAvailable {
				all = append(all, sub.Selectors...)
			}
		}
	}
	return all
}

func matchesRoot(c Case) bool {
	return slices.ContainsFunc(constraints(c), func(constraint resourceapi.DeviceConstraint) bool {
		return constraint.MatchAttribute != nil && *constraint.MatchAttribute == pcieRoot
	})
}

func constraints(c Case) []resourceapi.DeviceConstraint {
	var all []resourceapi.DeviceConstraint
	for _, claim := range c.Claims {
		all = append(all, claim.Spec.Devices.Constraints...)
	}
	return all
}
