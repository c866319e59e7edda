package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/e2e/cluster"
)

// TestConfigOfAPrioritizedListIsForTheDeviceThatWasTaken: the claim's configs name
// the request, and the result the alternative. There is one for each kind of device.
func TestConfigOfAPrioritizedListIsForTheDeviceThatWasTaken(t *testing.T) {
	_, machine := node(t, "node-a")
	uuids := gpus(t, machine, h100)
	partitioned, shared := uuids[0].UUID, uuids[1].UUID
	list := asks(resourceapi.DeviceRequest{Name: "gpu", FirstAvailable: []resourceapi.DeviceSubRequest{
		alternative("partition", partitionOf("7g.80gb", is("parentUUID", partitioned))),
		alternative("share", shareOf("70Gi", is("uuid", shared))),
		alternative("whole", wholeOf(is("productName", h100))),
	}})
	list = withConfig(list, gpuConfig(`"sharing":{"mps":{"activeThreadPercentage":30}}`), "gpu")
	list = withConfig(list, migConfig(`"memory":{"enforcement":"None"}`), "gpu")

	s := newSpace(t)
	s.template("list", list)
	percentage := func(pod string) string {
		return s.exec(pod, work, "echo $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
	}
	for _, want := range []struct{ pod, request, percentage string }{
		{"first", "gpu/partition", ""},
		{"second", "gpu/share", "30"},
		{"third", "gpu/whole", "30"},
	} {
		s.run(usesTemplate(want.pod, "list"))
		if got := s.resultsOf(want.pod)[0].Request; got != want.request {
			t.Fatalf("the %s pod has %s, want %s", want.pod, got, want.request)
		}
		if got := percentage(want.pod); got != want.percentage {
			t.Errorf("the pod with %s has the percentage %q, want %q", want.request, got, want.percentage)
		}
	}
	s.deletePods("first", "second", "third")
}

func TestIncompatibleSettingsOfOneGPUNameBothClaims(t *testing.T) {
	n, machine := node(t, "node-b")
	gpu := gpus(t, machine, a100)[1].UUID
	share := asks(request("gpu", shareOf("10Gi", is("uuid", gpu))))
	s := newSpace(t)
	for name, interval := range map[string]string{"short": "Short", "short-too": "Short", "long": "Long"} {
		s.claim(name, withConfig(share, gpuConfig(fmt.Sprintf(`"sharing":{"timeSlicing":{"interval":%q}}`, interval))))
	}
	s.claim("any", share)
	s.run(usesClaim("short", "short"), usesClaim("short-too", "short-too"), usesClaim("any", "any"))
	wantTimeSlice(t, n, gpu, "1")
	s.start(usesClaim("long", "long"))
	s.wantEvent("long", failedPrepare, s.name+"/long", s.name+"/short")
	// Once nobody asks for the other setting, it gets its own.
	s.deletePods("short", "short-too")
	s.nudge("long")
	s.running("long")
	wantTimeSlice(t, n, gpu, "3")
	s.deletePods("long", "any")
	wantTimeSlice(t, n, gpu, "0")
}

// wantTimeSlice checks which time slice a GPU has, as nvidia-smi counts them: 0 for
// the default, 1 to 3 for short to long.
func wantTimeSlice(t *testing.T, n *cluster.Node, gpu, want string) {
	t.Helper()
	content, err := os.ReadFile(n.BackingPath(path.Join(machineDir, "timeslices", gpu)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if got := cmp.Or(strings.TrimSpace(string(content)), "0"); got != want {
		t.Errorf("GPU %s has the time slice %s, want %s", gpu, got, want)
	}
}

func TestABadConfigKeepsThePodFromStarting(t *testing.T) {
	s := newSpace(t)
	s.refusedAtAdmission("typo", withConfig(asks(request("gpu", wholeOf(""))), gpuConfig(`"sharing":{"mps":{"activeThreadPercent":30}}`)), "activeThreadPercent")
	s.start(usesClaim("typo", "typo"))
	s.wantEvent("typo", failedPrepare, "activeThreadPercent")
}

func TestSharesOfComputeUseOneMPSDaemon(t *testing.T) {
	n, machine := node(t, "node-b")
	uuid := gpus(t, machine, a100)[0].UUID
	s := newSpace(t)
	half := wanted(gpuClass, is("uuid", uuid), "memory", "10Gi", "computePercent", "50")
	s.template("half", asks(request("gpu", half)))
	s.template("memory-only", asks(request("gpu", shareOf("10Gi", is("uuid", uuid)))))
	wantMPSDaemons(t, n, 0)
	s.run(usesTemplate("one", "half"), usesTemplate("two", "half"), usesTemplate("other", "memory-only"))
	wantMPSDaemons(t, n, 1)
	for pod, want := range map[string]string{"one": "50", "two": "50", "other": ""} {
		if got := s.exec(pod, work, "echo $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"); got != want {
			t.Errorf("pod %s has the percentage %q, want %q", pod, got, want)
		}
	}
	for _, pod := range []string{"one", "two"} {
		pipe := s.exec(pod, work, "ls $CUDA_MPS_PIPE_DIRECTORY")
		if !slices.Contains(strings.Fields(pipe), "control") {
			t.Errorf("pod %s does not reach the daemon: its pipe directory has %q", pod, pipe)
		}
	}
	// There is no more compute to reserve, though there is memory.
	s.start(usesTemplate("three", "half"))
	s.pending("three")
	s.deletePods("three", "one")
	wantMPSDaemons(t, n, 1)
	s.deletePods("two")
	wantMPSDaemons(t, n, 0)
	s.deletePods("other")
}

// wantMPSDaemons waits until so many MPS control daemons run on a node.
func wantMPSDaemons(t *testing.T, n *cluster.Node, want int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s runs %d MPS control daemons", n.Name, want), func(ctx context.Context) (bool, error) {
		output, err := n.Exec(ctx, "sh", "-c", `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <"$f"; echo; done 2>/dev/null`)
		if err != nil {
			return false, err
		}
		var daemons []string
		for line := range strings.Lines(string(output)) {
			words := strings.Fields(line)
			i := slices.IndexFunc(words, func(word string) bool { return path.Base(word) == "nvidia-cuda-mps-control" })
			// A shell that runs the script has it as its first argument.
			if (i == 0 || i == 1) && slices.Contains(words[i:], "-f") {
				daemons = append(daemons, strings.TrimSpace(line))
			}
		}
		return len(daemons) == want, fmt.Errorf("it runs %q", daemons)
	})
}
