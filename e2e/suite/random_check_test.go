package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// What TestRandomClaimsAgainstAModel checks after each round.

// claimsNow are the test's claims that are allocated.
func (c *chaos) claimsNow() []resourceapi.ResourceClaim {
	c.t.Helper()
	list, err := client.ResourceV1().ResourceClaims(c.name).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(claim resourceapi.ResourceClaim) bool { return claim.Status.Allocation == nil })
}

// check compares claims, machines and model. Meanwhile a pod that fitted nowhere may
// start, so what is on a machine is between the claims of pods that ran before and
// all claims that are there after.
func (c *chaos) check(round int) {
	c.t.Helper()
	running := c.runningClaims()
	machines := map[string]fakegpu.Summary{}
	records := map[string]bool{}
	for _, nodeName := range []string{"node-a", "node-b"} {
		n, machine := node(c.t, nodeName)
		machines[nodeName] = summary(c.t, machine)
		files, err := filepath.Glob(n.BackingPath(claimsDir + "/*.json"))
		if err != nil {
			c.t.Fatal(err)
		}
		for _, file := range files {
			uid, _, _ := strings.Cut(filepath.Base(file), ".")
			records[uid] = true
		}
	}
	claims := c.claimsNow()

	c.checkModel(claims)
	onMachines := map[string]bool{}
	for nodeName, s := range machines {
		for _, g := range s.GPUs {
			for _, m := range g.MIG {
				onMachines[place(nodeName, g.UUID, m.Profile, m.Start)] = true
			}
		}
	}
	allowed, allowedRecords := map[string]bool{}, map[string]bool{}
	for _, claim := range claims {
		allowedRecords[string(claim.UID)] = true
		for _, p := range c.places(claim) {
			allowed[p] = true
		}
	}
	for p := range onMachines {
		if !allowed[p] {
			c.t.Errorf("round %d: %s is on the machine and of no claim", round, p)
		}
	}
	for uid := range records {
		if !allowedRecords[uid] {
			c.t.Errorf("round %d: there is a record of claim %s, which is not allocated", round, uid)
		}
	}
	for _, claim := range running {
		if !records[string(claim.UID)] {
			c.t.Errorf("round %d: claim %s of a running pod has no record", round, claim.Name)
		}
		for _, p := range c.places(claim) {
			if !onMachines[p] {
				c.t.Errorf("round %d: %s of claim %s is not on the machine", round, p, claim.Name)
			}
		}
		c.checkStatus(claim, machines)
	}
}

// runningClaims are the claims of pods that run, with their status complete.
func (c *chaos) runningClaims() []resourceapi.ResourceClaim {
	c.t.Helper()
	var claims []resourceapi.ResourceClaim
	waitFor(c.t, "the claims' status is complete", func(context.Context) (bool, error) {
		pods, err := c.pods.List(labels.Everything())
		if err != nil {
			return false, err
		}
		runs := map[string]bool{}
		for _, pod := range pods {
			runs[string(pod.UID)] = pod.Status.Phase == corev1.PodRunning
		}
		claims = slices.DeleteFunc(c.claimsNow(), func(claim resourceapi.ResourceClaim) bool {
			return !slices.ContainsFunc(claim.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return runs[string(r.UID)] })
		})
		for _, claim := range claims {
			if got, want := len(claim.Status.Devices), len(claim.Status.Allocation.Devices.Results); got != want {
				return false, fmt.Errorf("claim %s has the status of %d devices, want %d", claim.Name, got, want)
			}
		}
		return true, nil
	})
	return claims
}

// checkModel fails if the model cannot hold all claims at once.
func (c *chaos) checkModel(claims []resourceapi.ResourceClaim) {
	c.t.Helper()
	model := clusterModel{}
	for _, g := range c.gpus {
		product, err := fakegpu.LookupProduct(g.product)
		if err != nil {
			c.t.Fatal(err)
		}
		model[g.uuid] = newGPUModel(product, g.uuid)
	}
	// Several claims may have shares of one partition, which is there once.
	shared := map[string]int64{}
	for _, claim := range claims {
		for _, result := range claim.Status.Allocation.Devices.Results {
			device, ok := c.devices[result.Pool+"/"+result.Device]
			if !ok {
				c.t.Errorf("claim %s has %s, which was not published", claim.Name, result.Device)
				continue
			}
			if text(device, "type") == "mig" {
				key := result.Pool + "/" + result.Device
				memory, capacity := result.ConsumedCapacity["memory"], device.Capacity["memory"].Value
				_, again := shared[key]
				if shared[key] += memory.Value(); shared[key] > capacity.Value() {
					c.t.Errorf("with claim %s, claims have %d of the %d bytes of %s", claim.Name, shared[key], capacity.Value(), result.Device)
				}
				if again {
					continue
				}
			}
			if err := model.hold(claim.Name, result, device); err != nil {
				c.t.Error(err)
			}
		}
	}
}

// place names a partition on a machine.
func place(nodeName, gpu, profile string, start int) string {
	return fmt.Sprintf("a %s at %d of %s on %s", profile, start, gpu, nodeName)
}

// places are the partitions that a claim has.
func (c *chaos) places(claim resourceapi.ResourceClaim) []string {
	var places []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		if d := c.devices[result.Pool+"/"+result.Device]; text(d, "type") == "mig" {
			places = append(places, place(result.Pool, text(d, "parentUUID"), text(d, "profile"), startOf(d)))
		}
	}
	return places
}

// checkStatus checks that what a claim's status says that it has is on the machine,
// at the place that was allocated.
func (c *chaos) checkStatus(claim resourceapi.ResourceClaim, machines map[string]fakegpu.Summary) {
	c.t.Helper()
	for _, status := range claim.Status.Devices {
		d, uuid := c.devices[status.Pool+"/"+status.Device], uuidOf(status)
		found := false
		for _, g := range machines[status.Pool].GPUs {
			if text(d, "type") == "gpu" {
				found = found || g.UUID == uuid && uuid == text(d, "uuid")
				continue
			}
			for _, m := range g.MIG {
				at := place(status.Pool, g.UUID, m.Profile, m.Start)
				found = found || m.UUID == uuid && at == place(status.Pool, text(d, "parentUUID"), text(d, "profile"), startOf(d))
			}
		}
		if !found {
			c.t.Errorf("claim %s says that its %s is %q, which is not on %s", claim.Name, status.Device, uuid, status.Pool)
		}
	}
}
