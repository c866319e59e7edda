// Package solver finds which devices of one concrete node a pod's claims get, or says
// why they cannot get any.
//
// It gives the answers of kube-scheduler's allocator (package structured of
// k8s.io/dynamic-resource-allocation, with the gates of Kubernetes 1.37 at their
// defaults): the same verdict and, unless [Problem.BestFit] is set, the same devices.
// That allocator tries the devices of each request in order of driver, pool, slice and
// position, request after request and claim after claim, and takes the first complete
// solution. So does this one, but it leaves out what cannot lead to a solution:
//
//   - what differs only in devices that nothing can tell apart (see symmetry.go),
//   - what was found to fail before, up to such devices (see memory.go),
//   - what leaves too little for the requests that are still open (see bounds.go).
//
// None of these changes the answer. Errors, too, are kept: kube-scheduler notices a
// selector that fails only when its search gets there, and so does this package.
//
// The solver knows the resource.k8s.io API and one node at a time. It knows nothing of
// instance types, of pods or of time, and does no I/O.
package solver
