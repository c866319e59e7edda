package mps

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"
)

const anyGPU = "GPU-00000000-0000-4000-8000-000000000000"

func TestWithoutASupervisorMPSIsNotAvailable(t *testing.T) {
	c := New(filepath.Join(shortDir(t), SocketName))
	for name, err := range map[string]error{
		"acquire": c.Acquire(t.Context(), anyGPU, "claim-a"),
		"release": c.Release(t.Context(), anyGPU, "claim-a"),
		"retain":  c.Retain(t.Context(), func(string, types.UID) bool { return false }),
	} {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A claim that can do without MPS went on without it whenever the container started
// again.
func TestASupervisorThatIsStartingAgainIsNotUnavailable(t *testing.T) {
	socket := filepath.Join(shortDir(t), SocketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false) // As of a process that is killed.
	must(t, l.Close())
	if err := New(socket).Acquire(t.Context(), anyGPU, "claim-a"); err == nil || errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

func TestEdits(t *testing.T) {
	mounts := []*specs.Mount{
		{
			HostPath: "/d/mps/" + anyGPU + "/pipe", ContainerPath: "/tmp/nvidia-mps",
			Type: "bind", Options: []string{"ro", "nosuid", "nodev", "noexec", "bind"},
		},
		{
			HostPath: "/d/mps/" + anyGPU + "/shm", ContainerPath: "/dev/shm",
			Type: "bind", Options: []string{"rw", "nosuid", "nodev", "noexec", "bind"},
		},
	}
	for _, test := range []struct {
		name    string
		percent int
		pinned  string
		env     []string
	}{
		{"no limits", 0, "", nil},
		{"percent", 25, "", []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25"}},
		{"both", 100, PinnedLimit(10 << 30), []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Edits("/d/mps", anyGPU, test.percent, test.pinned)
			want := specs.ContainerEdits{Env: append([]string{"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"}, test.env...), Mounts: mounts}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if err := (&cdi.ContainerEdits{ContainerEdits: &got}).Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPinnedLimitIsWholeMebibytes(t *testing.T) {
	for _, test := range []struct {
		bytes int64
		want  string
	}{{0, ""}, {-1, ""}, {1, "1M"}, {1<<20 - 1, "1M"}, {3<<20 - 1, "2M"}, {40 << 30, "40960M"}} {
		if got := PinnedLimit(test.bytes); got != test.want {
			t.Errorf("%d: %q, want %q", test.bytes, got, test.want)
		}
	}
}
