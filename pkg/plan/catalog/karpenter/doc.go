// Package karpenter gives Karpenter what pkg/plan/catalog knows about the devices of an
// instance type, for authors of cloud providers.
//
// Karpenter (sigs.k8s.io/karpenter, tried with v1.14.1) provisions nodes for pods with
// resource claims only if the cloud provider says in InstanceType.DynamicResources which
// devices a node of the type will have. Fill it in where instance types are made:
//
//	it.DynamicResources, err = karpenter.DynamicResources(templates)
//
// The templates come from pkg/plan/catalog, or from any other source for other drivers: put
// those of all drivers of the instance type into one call.
//
// # What is lost
//
// Some of what a template can say has no place in Karpenter. What would make Karpenter
// start nodes on which kube-scheduler then places nothing is an error of
// [DynamicResources]: taints with an effect, node resources that devices take, groups
// of compatible devices, devices that other nodes reach, too. The rest is left out, and
// costs at most a node that could have been used:
//
//   - binding conditions, bindsToNode: Karpenter does not wait for them, kube-scheduler does;
//   - taints without an effect (None), which only inform;
//   - list attributes are handed over, but matchAttribute never holds for them.
//
// Karpenter's allocator itself differs from kube-scheduler's in ways that no template
// can mend. It refuses firstAvailable and distinctAttribute. A second share of a device
// that consumes counters does not fit, so plan with one share per GPU or publish
// shareable GPUs without partitions. A capacity request does not keep a claim from a
// device that is not shareable, and admin access takes the device. pkg/plan/allocator has
// none of this.
//
// It is a module of its own so that nobody else needs Karpenter's dependencies. It knows
// the types of both sides and nothing of GPUs, clouds or clusters.
package karpenter
