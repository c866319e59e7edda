package exporter

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

func TestContainersAreFoundByCgroups(t *testing.T) {
	id, other := strings.Repeat("0123456789abcdef", 4), strings.Repeat("f", 64)
	pod := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2d1ba1a5_5b6d_4ac9_9c62_6d1e0d0b1e5c.slice/"
	for _, test := range []struct{ name, cgroup, want string }{
		{"version 2, systemd, containerd", "0::" + pod + "cri-containerd-" + id + ".scope\n", id},
		{"version 2, systemd, CRI-O", "0::" + pod + "crio-" + id + ".scope\n", id},
		{"version 2, systemd, CRI-O with a folder below", "0::" + pod + "crio-" + id + ".scope/container\n", id},
		{"CRI-O's monitor", "0::" + pod + "crio-conmon-" + id + ".scope\n", ""},
		{"version 2, systemd, cri-dockerd", "0::" + pod + "docker-" + id + ".scope\n", id},
		{"version 2, cgroupfs", "0::/kubepods/burstable/pod2d1ba1a5-5b6d-4ac9-9c62-6d1e0d0b1e5c/" + id + "\n", id},
		{"version 2, seen from another cgroup namespace", "0::/../../pod2d1ba1a5/cri-containerd-" + id + ".scope\n", id},
		{"version 1, systemd", "12:devices:" + pod + "cri-containerd-" + id + ".scope\n1:name=systemd:" + pod + "cri-containerd-" + id + ".scope\n0::/\n", id},
		{"version 1, cgroupfs, some hierarchies at the root", "3:misc:/\n2:memory:/kubepods/besteffort/podx/" + id + "\n", id},
		{"mixed up drivers", "0::/kubepods/podx/kubepods-podx.slice:cri-containerd:" + id + "\n", id},
		{"a container in a container", "0::" + pod + "cri-containerd-" + id + ".scope/docker/" + other + "\n", id},
		{"a node that is a container", "0::/docker/" + other + "/kubelet/kubepods/podx/" + id + "\n", id},
		{"a cgroup parent of its own", "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podx.slice/cri-containerd-" + id + ".scope\n", id},
		{"a service", "0::/system.slice/nvidia-persistenced.service\n", ""},
		{"too few digits", "0::" + pod + "cri-containerd-" + id[1:] + ".scope\n", ""},
		{"more digits", "0::" + pod + "a" + id + "\n", ""},
		{"upper case", "0::" + pod + strings.ToUpper(id) + "\n", ""},
		{"nonsense", "::\nkubepods\n", ""},
		{"nothing", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			of := ContainerOf(fstest.MapFS{"42/cgroup": {Data: []byte(test.cgroup)}})
			if got, ok := of(42); got != test.want || !ok {
				t.Errorf("container %q, %t; want %q", got, ok, test.want)
			}
		})
	}
}

// refused is a /proc that shows nothing of others' processes.
type refused struct{}

func (refused) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

func TestAProcessThatHasEndedIsInNoContainer(t *testing.T) {
	if id, ok := ContainerOf(fstest.MapFS{})(42); id != "" || !ok {
		t.Errorf("%q, %t", id, ok)
	}
	if id, ok := ContainerOf(refused{})(42); id != "" || ok {
		t.Errorf("of a process that cannot be looked up: %q, %t", id, ok)
	}
}
