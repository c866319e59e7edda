package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

const demoDir = "../../demo"

// TestDemoFitsTheChart: the manifests for newcomers are valid, ask for what the
// chart installs by default, and each is in the list of the demo's README.
func TestDemoFitsTheChart(t *testing.T) {
	classes, extended := map[string]bool{}, map[corev1.ResourceName]bool{}
	for _, class := range every[*resourcev1.DeviceClass](decode(t, mustRender(t, release, ""))) {
		classes[class.Name] = true
		if name := class.Spec.ExtendedResourceName; name != nil {
			extended[corev1.ResourceName(*name)] = true
		}
	}
	readme, err := os.ReadFile(filepath.Join(demoDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(demoDir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("manifests of the demo: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if !strings.Contains(string(readme), "| ["+filepath.Base(file)+"]") {
				t.Error("is not in the list of demo/README.md")
			}
			manifests, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects := decode(t, manifests)
			for _, template := range every[*resourcev1.ResourceClaimTemplate](objects) {
				checkClaim(t, template.Spec.Spec, classes)
			}
			for _, claim := range every[*resourcev1.ResourceClaim](objects) {
				checkClaim(t, claim.Spec, classes)
			}
			pods := every[*corev1.Pod](objects)
			if len(pods) == 0 {
				t.Error("has no pod")
			}
			for _, pod := range pods {
				for _, container := range pod.Spec.Containers {
					for name := range container.Resources.Limits {
						if !extended[name] {
							t.Errorf("pod %s asks for %s, which no class of the chart serves", pod.Name, name)
						}
					}
				}
			}
		})
	}
}

func checkClaim(t *testing.T, spec resourcev1.ResourceClaimSpec, classes map[string]bool) {
	t.Helper()
	check := func(class string, selectors []resourcev1.DeviceSelector) {
		if !classes[class] {
			t.Errorf("class %q is not the chart's", class)
		}
		for _, selector := range selectors {
			compiled := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(selector.CEL.Expression, dracel.Options{})
			if compiled.Error != nil {
				t.Errorf("selector %s: %v", selector.CEL.Expression, compiled.Error)
			}
		}
	}
	for _, request := range spec.Devices.Requests {
		if request.Exactly != nil {
			check(request.Exactly.DeviceClassName, request.Exactly.Selectors)
		}
		for _, alternative := range request.FirstAvailable {
			check(alternative.DeviceClassName, alternative.Selectors)
		}
	}
}
