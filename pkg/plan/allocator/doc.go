// Package allocator decides which devices a pod's claims get on a node that exists, or
// on one that does not exist yet: a node claim that may still become any of several
// instance types.
//
// It is what an autoscaler asks. For one concrete node it answers what kube-scheduler
// would (package structured of k8s.io/dynamic-resource-allocation with the gates of
// Kubernetes 1.37 at their defaults). A node claim is searched as the concrete nodes
// that it may become: one for each instance type and each part of the label space in
// which the same devices can be reached. Those that look alike are searched once.
//
// An [Allocator] serves one scheduling loop. For each pod, [Allocator.Allocate] is asked
// for one target after the other, or for many at once by as many goroutines, and one of
// the results is given to [Allocator.Commit]. What is committed is reserved on each
// alternative that the target may still become. The alternatives exclude each other, so
// within the target each has its own devices; other targets have to do without whatever
// any of them took. [Allocator.Release], [Allocator.Narrow] and [Allocator.Forget] give
// back what the target cannot become any more. These and Commit are for one goroutine at
// a time, while no Allocate runs.
//
// The package does no I/O and reads no clock, environment variable or feature gate. It
// knows the resource.k8s.io API and nothing of GPUs or of clouds.
package allocator
