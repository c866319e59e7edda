package memlimit

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"
)

const (
	v2Mounts     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
	v1Mounts     = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	hybridMounts = "29 23 0:25 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" + v1Mounts +
		"32 23 0:28 / /sys/fs/cgroup/unified rw shared:75 master:3 - cgroup2 cgroup2 rw\n"
	// What runc shows in a container of a hybrid host.
	insideHybrid = "453 450 0:30 /kubepods/p/c /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n" +
		"454 450 0:31 /kubepods/p/c /sys/fs/cgroup/memory ro,nosuid master:30 - cgroup cgroup rw,memory\n"
	// A node that is itself a container, and sees the hierarchy from its own cgroup.
	nestedMounts = "30 23 0:26 /docker/n /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	spaceMounts  = `30 23 0:26 / /mnt/my\040cgroups rw - cgroup2 cgroup2 rw` + "\n"
	hiddenMounts = "30 23 0:26 / /hidden rw - cgroup2 cgroup2 rw\n" + v2Mounts
)

// rootWith is a root folder with a process and the folders of cgroups.
func rootWith(process, cgroup, mounts string) fstest.MapFS {
	root := fstest.MapFS{
		"proc/" + process + "/cgroup": {Data: []byte(cgroup)},
		"proc/self/mountinfo":         {Data: []byte(mounts)},
	}
	for _, folder := range []string{
		"sys/fs/cgroup/kubepods/p/c", "sys/fs/cgroup/kubelet/p/c", "sys/fs/cgroup/memory/kubepods/p/c",
		"sys/fs/cgroup/unified/kubepods/p/c", "mnt/my cgroups/a:b/c",
	} {
		root[folder] = &fstest.MapFile{Mode: fs.ModeDir}
	}
	return root
}

func TestCgroupOfAProcess(t *testing.T) {
	const both = "4:memory:/kubepods/p/c\n0::/kubepods/p/c\n"
	tests := []struct {
		name, cgroup, mounts string
		want, wantErr        string
	}{
		{"version 2", "0::/kubepods/p/c\n", v2Mounts, "/sys/fs/cgroup/kubepods/p/c", ""},
		{"version 2, with a hierarchy for names", "1:name=systemd:/x\n0::/kubepods/p/c\n", v2Mounts, "/sys/fs/cgroup/kubepods/p/c", ""},
		{"version 2, in a namespace of its own", "0::/\n", v2Mounts, "/sys/fs/cgroup", ""},
		{"both", both, hybridMounts, "/sys/fs/cgroup/memory/kubepods/p/c", ""},
		{"both, in the container", both, insideHybrid, "/sys/fs/cgroup/memory", ""},
		{"version 1", "4:cpu,memory:/kubepods/p/c\n", v1Mounts, "/sys/fs/cgroup/memory/kubepods/p/c", ""},
		{"version 1, in a namespace of its own", "4:memory:/\n", v1Mounts, "/sys/fs/cgroup/memory", ""},
		{"a node that is a container", "0::/docker/n/kubelet/p/c\n", nestedMounts, "/sys/fs/cgroup/kubelet/p/c", ""},
		{"outside of what the node sees", "0::/docker/node2/p\n", nestedMounts, "", "no mount shows"},
		{"outside of the cgroup namespace", "0::/../../kubepods/c\n", v2Mounts, "", "outside the cgroup namespace"},
		{"removed", "0::/kubepods/p/c (deleted)\n", v2Mounts, "", "no mount shows"},
		{"nothing mounted", "0::/kubepods/p/c\n", "", "", "no mount shows"},
		{"no cgroups", "", v2Mounts, "", "in no cgroup that has memory"},
		{"a mount with a space", "0::/a:b/c\n", spaceMounts, "/mnt/my cgroups/a:b/c", ""},
		{"a mount that is hidden by another", "0::/kubepods/p/c\n", hiddenMounts, "/sys/fs/cgroup/kubepods/p/c", ""},
		{"lines that no kernel writes", "x\n0:\n\n0::/kubepods/p/c\n", "x\n" + v2Mounts, "", "not enough fields"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Of(rootWith("42", test.cgroup, test.mounts), "42")
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error is %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// A limit of a cgroup that others are in would be theirs.
func TestCgroupOfAContainerIsItsOwn(t *testing.T) {
	for _, test := range []struct{ name, container, runtime, mounts, want, wantErr string }{
		{"below the runtime's", "0::/kubepods/p/c\n", "0::/kubepods\n", v2Mounts, "/sys/fs/cgroup/kubepods/p/c", ""},
		{"the runtime's", "0::/kubepods/p/c\n", "0::/kubepods/p/c\n", v2Mounts, "", "no cgroup of its own"},
		{"the runtime's, of version 1", "4:memory:/kubepods/p/c\n0::/a\n", "4:memory:/kubepods/p/c\n0::/b\n", hybridMounts, "", "no cgroup of its own"},
		{"the root", "0::/\n", "0::/system.slice\n", v2Mounts, "", "no cgroup of its own"},
	} {
		root := rootWith("42", test.container, test.mounts)
		root["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(test.runtime)}
		got, err := OfContainer(root, 42)
		if got != test.want || (err == nil) != (test.wantErr == "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
			t.Errorf("%s: got %q, %v; want %q, %q", test.name, got, err, test.want, test.wantErr)
		}
	}
}

func TestCgroupOfAProcessThatIsGone(t *testing.T) {
	root := rootWith("42", "0::/c\n", v2Mounts)
	if _, err := OfContainer(root, 43); err == nil || !strings.Contains(err.Error(), "process 43") {
		t.Errorf("error is %v", err)
	}
	delete(root, "proc/self/mountinfo")
	if _, err := Of(root, "42"); err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("error is %v", err)
	}
}

func TestStateThatNoRuntimeWrites(t *testing.T) {
	for state, want := range map[string]string{
		"":                                      "not a container's state",
		`{"pid":0}`:                             "names no process",
		`{"pid":-1}`:                            "names no process",
		`{"pid":99999999999999999999}`:          "not a container's state",
		`[]`:                                    "not a container's state",
		`{"pid":1}x`:                            "not a container's state",
		`{"pid":1,"id":"c","status":"running"}`: `container "c" is "running"`,
		strings.Repeat(" ", 5<<20):              "larger than",
		`{"pid":"1","bundle":"/etc"}`:           "not a container's state",
	} {
		if _, err := ReadState(strings.NewReader(state)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
	broken := errors.New("broken pipe")
	if _, err := ReadState(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("error is %v, want one with %q", err, broken)
	}
	if pid, err := ReadState(strings.NewReader(`{"ociVersion":"1.0.2","id":"c","pid":42,"bundle":"/b"}`)); err != nil || pid != 42 {
		t.Errorf("got %d, %v", pid, err)
	}
}
