package ownership

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const testDriver = "gpu.example.com"

// parse reads objects from YAML documents. Those that have no namespace get "team".
func parse[T any](t testing.TB, documents string) []*T {
	t.Helper()
	objects := []*T{}
	for document := range strings.SplitSeq(documents, "\n---") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		object := new(T)
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

func parsePods(t testing.TB, documents string) []*corev1.Pod {
	t.Helper()
	pods := parse[corev1.Pod](t, documents)
	for _, pod := range pods {
		if pod.Namespace == "" {
			pod.Namespace = "team"
		}
	}
	return pods
}

func parseClaims(t testing.TB, documents string) []*resourceapi.ResourceClaim {
	t.Helper()
	claims := parse[resourceapi.ResourceClaim](t, documents)
	for _, claim := range claims {
		if claim.Namespace == "" {
			claim.Namespace = "team"
		}
	}
	return claims
}

// hold is a claim's hold on a device for a request: "claim uid request device".
func hold(text string) Owner {
	f := strings.Fields(text)
	return Owner{
		Device:  Device{Driver: testDriver, Pool: "node", Name: f[3], Type: "gpu"},
		Claim:   ClaimRef{Namespace: "team", Name: f[0], UID: types.UID(f[1])},
		Request: f[2],
	}
}

func holding(texts ...string) []Owner {
	var held []Owner
	for _, text := range texts {
		held = append(held, hold(text))
	}
	return held
}

// say describes who uses what: for each owner "device request: pod(uid)[State]
// kind:container=id ...; pod ...".
func say(owners []Owner) []string {
	lines := []string{}
	for _, o := range owners {
		var consumers []string
		for _, c := range o.Consumers {
			text := fmt.Sprintf("%s(%s)[%s]", c.Name, c.UID, c.State)
			if c.Namespace != "team" {
				text = c.Namespace + "/" + text
			}
			for _, container := range c.Containers {
				text += fmt.Sprintf(" %s:%s", container.Kind, container.Name)
				if container.ID != "" {
					text += "=" + container.ID
				}
			}
			consumers = append(consumers, text)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s: %s", o.Device.Name, o.Request, strings.Join(consumers, "; "))))
	}
	return lines
}
