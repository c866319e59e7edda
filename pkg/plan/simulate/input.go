package simulate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"apportion.dev/apportion/pkg/plan/allocator"
)

// Input is what a plan depends on. Nothing of it is changed.
type Input struct {
	// Nodes are those that exist.
	Nodes []*corev1.Node
	// Slices are as published, DeviceTaintRules as written.
	Slices     []*resourceapi.ResourceSlice
	TaintRules []*resourceapi.DeviceTaintRule
	Classes    []*resourceapi.DeviceClass
	// Claims are all ResourceClaims, of which the status says what is allocated.
	Claims         []*resourceapi.ResourceClaim
	ClaimTemplates []*resourceapi.ResourceClaimTemplate
	// Pods are all pods. Those that have no node and are not finished are planned for;
	// those on nodes take what they request.
	Pods []*corev1.Pod
	// InstanceTypes are what new nodes may become, with names of their own.
	InstanceTypes []*InstanceType
}

// InstanceType is what a new node may become.
type InstanceType struct {
	allocator.InstanceType
	// Allocatable is what pods get of its nodes. Of cpu, memory, ephemeral-storage and
	// pods, what is not named is not limited; of anything else there is none.
	Allocatable corev1.ResourceList
	// Taints are those of its nodes.
	Taints []corev1.Taint
}

// Options are choices.
type Options struct {
	// Policy is allocator.Predict if empty.
	Policy allocator.Policy
	// Budget limits a search, in search nodes; allocator.DefaultBudget if 0.
	Budget int
	// KeepTerminating counts what pods that are being deleted hold as held. Otherwise it
	// is free, as it soon will be.
	KeepTerminating bool
}

// Validate complains about what the caller could have known, as [Make] and [Explain] do.
func (in *Input) Validate() error {
	names := map[string]bool{}
	extended := in.extendedResources()
	for _, t := range in.InstanceTypes {
		if t.Name == "" || names[t.Name] {
			return fmt.Errorf("instance type %q is there twice or has no name: give each its own", t.Name)
		}
		names[t.Name] = true
		for name := range t.Allocatable {
			if class := extended.GetDeviceClass(name); class != nil {
				return fmt.Errorf("instance type %s: its allocatable names %s, which comes from devices of DeviceClass %s: leave it out", t.Name, name, class.Name)
			}
		}
	}
	nodes := map[string]bool{}
	for _, n := range in.Nodes {
		if nodes[n.Name] {
			return fmt.Errorf("node %s is there twice: give each its own name", n.Name)
		}
		nodes[n.Name] = true
	}
	return nil
}

// warnings say what in the input is not taken into account, in one line each.
func (in *Input) warnings() []string {
	var warnings []string
	nodes := map[string]bool{}
	for _, n := range in.Nodes {
		nodes[n.Name] = true
	}
	var unknown []string
	for _, s := range in.Slices {
		if s.Spec.NodeName != nil && !nodes[*s.Spec.NodeName] {
			nodes[*s.Spec.NodeName] = true
			unknown = append(unknown, *s.Spec.NodeName)
		}
	}
	if len(unknown) > 0 {
		warnings = append(warnings, "Not used, as there are ResourceSlices but no Node objects: nodes "+some(unknown, 3))
	}
	return warnings
}

// some names the first of many.
func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
