// Package suite holds the end-to-end tests: the driver's image and chart on a
// real API server, scheduler, kubelet and container runtime, with fake GPUs.
//
// The tests need root. They start a cluster of their own, or use the one in
// E2E_CLUSTER_DIR and leave it running. Run them with "make e2e".
package suite
