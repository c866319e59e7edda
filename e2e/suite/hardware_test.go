package suite

import (
	"context"
	"fmt"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"apportion.dev/apportion/e2e/cluster"
	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// What nodes publish, and what their fake machines have.

// text is a device's attribute, empty if it has none of that name.
func text(d resourceapi.Device, attribute resourceapi.QualifiedName) string {
	if value := d.Attributes[attribute].StringValue; value != nil {
		return *value
	}
	return ""
}

// published lists the devices of a node in the order of publishing.
func published(ctx context.Context, nodeName string) ([]resourceapi.Device, error) {
	list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + nodeName,
	})
	if err != nil {
		return nil, err
	}
	var devices []resourceapi.Device
	for _, slice := range list.Items {
		devices = append(devices, slice.Spec.Devices...)
	}
	return devices, nil
}

// waitPublished waits until the node's devices are as they should be.
func waitPublished(t *testing.T, nodeName, what string, right func([]resourceapi.Device) error) {
	t.Helper()
	waitFor(t, nodeName+" publishes "+what, func(ctx context.Context) (bool, error) {
		devices, err := published(ctx, nodeName)
		if err == nil {
			err = right(devices)
		}
		return err == nil, err
	})
}

// gpus are the GPUs of a node's fake machine, by slot, that are of a product.
func gpus(t *testing.T, machine *fakegpu.Machine, product string) []fakegpu.GPUSummary {
	t.Helper()
	return slices.DeleteFunc(summary(t, machine).GPUs, func(g fakegpu.GPUSummary) bool { return g.ProductName != product })
}

// gpu is one GPU of a fake machine as it is now.
func gpu(t *testing.T, machine *fakegpu.Machine, uuid string) fakegpu.GPUSummary {
	t.Helper()
	for _, g := range summary(t, machine).GPUs {
		if g.UUID == uuid {
			return g
		}
	}
	t.Fatalf("the machine has no GPU %s", uuid)
	return fakegpu.GPUSummary{}
}

// profilesOf are the profiles of the partitions that a GPU has, sorted.
func profilesOf(g fakegpu.GPUSummary) []string {
	var profiles []string
	for _, m := range g.MIG {
		profiles = append(profiles, m.Profile)
	}
	slices.Sort(profiles)
	return profiles
}

// partitionsOn lists what a node's GPUs have of partitions and of the mode for
// them. A GPU whose mode is off has no instance of any kind.
func partitionsOn(n *cluster.Node) ([]string, error) {
	machine, err := fakegpu.Open(n.BackingPath(machineDir))
	if err != nil {
		return nil, err
	}
	return partitionsOf(machine)
}

func partitionsOf(machine *fakegpu.Machine) ([]string, error) {
	s, err := machine.Summary()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, g := range s.GPUs {
		for _, m := range g.MIG {
			found = append(found, fmt.Sprintf("%s: a %s at %d of %s (%s)", s.Node, m.Profile, m.Start, g.UUID, m.UUID))
		}
		if g.MIGMode != "" && g.MIGMode != "off" {
			found = append(found, fmt.Sprintf("%s: MIG mode of %s is %s", s.Node, g.UUID, g.MIGMode))
		}
	}
	return found, nil
}
