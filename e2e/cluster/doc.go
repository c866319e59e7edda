// Package cluster runs a real Kubernetes cluster on one Linux machine without
// Docker and without a registry of images: etcd, the API server, the controller
// manager and the scheduler on one simulated machine, and a kubelet and a
// containerd on each simulated node.
//
// A simulated machine is a set of Linux namespaces (mounts, processes, network)
// held by one small process. Each has its own loopback, so every program listens
// on its standard port; its own process ids, so the end of the holder ends
// everything on the machine; and its own folders, bind-mounted over the standard
// places such as /var/lib/kubelet and /etc/cdi, so charts with standard host paths
// serve all nodes. What the cluster leaves on the host is small and listed: one
// network interface, one control group in each hierarchy, one folder, and the
// folders that had to be made as places to mount on. Down removes them all.
//
// The package knows how a cluster is built and started, and nothing of the driver
// but how to install its chart and image. It needs root, and it must not change
// the host's own services, mounts, kernel settings or addresses.
package cluster
