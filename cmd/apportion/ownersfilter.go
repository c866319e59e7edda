package main

import (
	"fmt"
	"slices"
	"strings"

	"apportion.dev/apportion/pkg/ownership"
)

// selected are the owners that the flags ask for.
func (o *ownersOptions) selected(v view) []ownership.Owner {
	var owners []ownership.Owner
	for _, owner := range v.owners {
		if o.gpu != "" && !v.hardware.is(owner.Device, o.gpu) {
			continue
		}
		if o.podName != "" && !slices.ContainsFunc(owner.Consumers, o.isPod) {
			continue
		}
		owners = append(owners, owner)
	}
	return owners
}

func (o *ownersOptions) isPod(c ownership.Consumer) bool {
	return c.Name == o.podName && (o.podNamespace == "" || c.Namespace == o.podNamespace)
}

// checkNames complains about names of which there is nothing: a slip of the pen must
// not read as a free GPU. It is for a view with no owners to show.
func (o *ownersOptions) checkNames(v view) error {
	switch {
	case o.gpu != "" && v.hardware != nil && !v.hardware.has(o.gpu):
		where := "the cluster"
		if o.node != "" {
			where = "node " + o.node
		}
		return fmt.Errorf("%s has no GPU or partition %q: give a UUID as nvidia-smi shows it, or a device name; %q lists what is in use", where, o.gpu,
			o.program+" owners -o wide")
	case o.podName != "" && v.hasPod != nil && !v.hasPod(o.podNamespace, o.podName):
		where := "any namespace"
		if o.podNamespace != "" {
			where = "namespace " + o.podNamespace
		}
		return fmt.Errorf("there is no pod %q in %s", o.podName, where)
	case o.node != "" && v.hardware != nil && len(v.hardware.gpus) == 0:
		return fmt.Errorf("node %q has no GPU of driver %s: see kubectl get resourceslices --field-selector spec.driver=%s",
			o.node, o.driverName, o.driverName)
	}
	return nil
}

// is says whether a name is that of a device, or of the GPU on which it lies: its UUID
// or its device name, in any case of letters. It works without hardware.
func (h *hardware) is(d ownership.Device, name string) bool {
	return slices.ContainsFunc([]string{d.Name, d.UUID, d.ParentUUID, h.gpuOf(d).name}, func(known string) bool {
		return known != "" && strings.EqualFold(known, name)
	}) || h.hasUUID(h.gpuOf(d), name)
}

// has says whether a name is that of a published device.
func (h *hardware) has(name string) bool {
	return slices.ContainsFunc(h.devices, func(d ownership.Device) bool { return h.is(d, name) })
}
