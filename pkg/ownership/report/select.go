package report

import (
	"fmt"
	"slices"
	"strings"

	"apportion.dev/apportion/pkg/ownership"
)

// selected are the owners that are asked for.
func (o *Options) selected(v View) []ownership.Owner {
	var owners []ownership.Owner
	for _, owner := range v.owners {
		if o.GPU != "" && !v.hardware.is(owner.Device, o.GPU) {
			continue
		}
		if o.Pod != "" && !slices.ContainsFunc(owner.Consumers, o.isPod) {
			continue
		}
		owners = append(owners, owner)
	}
	return owners
}

func (o *Options) isPod(c ownership.Consumer) bool {
	return c.Name == o.podName() && (o.Namespace == "" || c.Namespace == o.Namespace)
}

// podName is the name of the pod without a namespace.
func (o *Options) podName() string { return o.Pod[strings.Index(o.Pod, "/")+1:] }

// checkNames complains about names that stand for nothing: a typing mistake must
// not read as a free GPU. It is for a view with no owners to show.
func (o *Options) checkNames(v View) error {
	switch {
	case o.GPU != "" && v.hardware != nil && !v.hardware.has(o.GPU):
		where := "the cluster"
		if o.Node != "" {
			where = "node " + o.Node
		}
		return fmt.Errorf("%s has no GPU or partition %q: give a UUID as nvidia-smi shows it, or a device name; %q lists what is in use", where, o.GPU,
			o.Program+" owners -o wide")
	case o.Pod != "" && v.hasPod != nil && !v.hasPod(o.Namespace, o.podName()):
		where := "any namespace"
		if o.Namespace != "" {
			where = "namespace " + o.Namespace
		}
		return fmt.Errorf("there is no pod %q in %s", o.podName(), where)
	case o.Node != "" && v.hardware != nil && len(v.hardware.gpus) == 0:
		return fmt.Errorf("node %q has no GPU of driver %s: see kubectl get resourceslices --field-selector spec.driver=%s",
			o.Node, o.Driver, o.Driver)
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
