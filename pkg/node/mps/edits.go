package mps

import (
	"fmt"
	"path/filepath"

	"tags.cncf.io/container-device-interface/specs-go"
)

// Where containers, and isolated daemons, see the folders of a GPU. The first is
// CUDA's default, so that a process that was started without its container's
// environment still finds the daemon.
const (
	pipeInside = "/tmp/nvidia-mps"
	shmInside  = "/dev/shm"
	logInside  = "/tmp/nvidia-log"
)

// The folders of a GPU, below the one named by its UUID.
const (
	pipeFolder = "pipe"
	shmFolder  = "shm"
	logFolder  = "log"
)

// SocketName is the name of the supervisor's socket in its folder.
const SocketName = "mps.sock"

// Edits are what a container needs to be a client of the GPU's daemon: dir is the
// supervisor's folder on the host, gpu the UUID with which the daemon was acquired,
// percent the part of the GPU's threads that it may use (1 to 100; 0 for no limit) and
// pinned the device memory that it may use, from [PinnedLimit], empty for no limit.
//
// A process can be the client of one daemon only, and sees only that one's GPU. So
// a container can use MPS on one GPU, and no other GPU beside it.
//
// The container's /dev/shm becomes that of the daemon's clients, also where the pod
// has a volume there.
func Edits(dir, gpu string, percent int, pinned string) specs.ContainerEdits {
	env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + pipeInside}
	if percent > 0 {
		env = append(env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", percent))
	}
	if pinned != "" {
		// The only device that a client of this daemon has.
		env = append(env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0="+pinned)
	}
	return specs.ContainerEdits{
		Env: env,
		Mounts: []*specs.Mount{
			{
				HostPath: filepath.Join(dir, gpu, pipeFolder), ContainerPath: pipeInside,
				Type: "bind", Options: []string{"ro", "nosuid", "nodev", "noexec", "bind"},
			},
			{
				HostPath: filepath.Join(dir, gpu, shmFolder), ContainerPath: shmInside,
				Type: "bind", Options: []string{"rw", "nosuid", "nodev", "noexec", "bind"},
			},
		},
	}
}

// PinnedLimit is an amount of memory in bytes as MPS takes it: whole MiB ("10240M"),
// rounded down, at least one. It is empty for 0, which means no limit.
func PinnedLimit(bytes int64) string {
	if bytes <= 0 {
		return ""
	}
	return fmt.Sprintf("%dM", max(bytes>>20, 1))
}
