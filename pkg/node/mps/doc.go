// Package mps gives shares of a GPU a part of its compute, through NVIDIA's
// Multi-Process Service (MPS): one control daemon a GPU, started for the first claim
// that wants it and stopped after the last.
//
// A [Supervisor] runs the daemons, in a container of its own: GPU work of MPS
// clients dies with its daemon, so a restart of the plugin must not touch it. The
// plugin asks it through a [Client], and [Edits] are what a container needs to use a
// daemon. They talk HTTP and JSON over a Unix socket that only root reaches.
//
// The package knows GPUs and claims by their UIDs. It does not know Kubernetes
// objects, amounts or policy: who may have how much is decided elsewhere.
//
// # Folders
//
// Below the supervisor's folder, each GPU has one named by its UUID, with
//
//	pipe  the daemon's sockets, /tmp/nvidia-mps in containers, read-only there
//	shm   shared memory, a tmpfs of bounded size, /dev/shm in containers
//	log   the daemon's and its server's logs
//
// An isolated daemon (see [Options.Isolate]) has a mount namespace, in which these
// folders are where the containers see them. So the paths of its sockets stay below
// the 107 bytes that Linux allows, a server that runs as another user reaches them
// although the supervisor's folder is closed to it, and daemons of two GPUs share no
// memory.
//
// # What MPS does not protect
//
// MPS is for processes that trust each other, says its documentation, and this
// package does not make more of it:
//
//   - A fault of one client ends all clients on the GPU.
//   - The percentage is in the container's environment, and a process can raise its
//     own. A memory limit of MPS ("pinned device memory") as well; the driver's
//     own limit of a share is NVML's.
//   - Clients of a GPU share one /dev/shm: a client that runs as root, or as the same
//     user, can read and change what another one puts there.
//   - Whoever reaches the control socket can send the daemon commands, such as "quit".
//     The supervisor starts a daemon again that ends so; its clients are lost.
//   - With [Options.MultiUser], the daemon's server works for all users as root. Without
//     it, users wait for each other: a client of one user starts when the last
//     client of the other has ended.
//
// What it does protect: a container sees the sockets and the memory of its own GPU's
// daemon alone, not the host's shared memory or processes. It cannot replace the
// daemon's sockets or plant links for a daemon that is root to follow, because it has
// that folder read-only; Linux lets it connect to a socket there all the same. The
// supervisor's own folder and socket are closed to all but root.
package mps
