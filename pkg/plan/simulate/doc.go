// Package simulate plans where pending pods go: on nodes that exist, and on node claims
// that become instance types. It asks package allocator for devices and keeps count of
// CPU, memory, pods and other resources itself.
//
// It is a pure function of its input. It knows the Kubernetes API, but no cluster, no
// file and no cloud: instance types come with the templates of what their drivers will
// publish.
//
// Of kube-scheduler's other rules it knows node selectors, required node affinity, taints
// and resource requests. It does not know affinity between pods, topology spread, volumes,
// host ports and preemption, and says so for pods that have these.
package simulate
