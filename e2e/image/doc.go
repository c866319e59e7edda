// Package image makes container images from files on disk, without Docker and
// without a registry: one layer, written as the tar that "docker load",
// "kind load image-archive" and "ctr images import" read.
//
// The same files give the same image digest: the layer is sorted, carries no
// times and no owners but root. The package knows how ELF programs find their
// shared libraries, and which programs the driver's image holds; it knows
// nothing of Kubernetes or of the cluster that the image is for.
package image
