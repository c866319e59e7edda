package dcgm

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"apportion.dev/apportion/pkg/ownership"
)

const (
	uuid0 = "GPU-00000000-0000-0000-0000-000000000000"
	uuid1 = "GPU-11111111-1111-1111-1111-111111111111"
)

func index(uuid string) (int, bool) {
	i, ok := map[string]int{uuid0: 0, uuid1: 11}[uuid]
	return i, ok
}

func gpu(uuid string) ownership.Device {
	return ownership.Device{Driver: "gpu.apportion.dev", Pool: "node", Name: "gpu-" + uuid[4:12], Type: "gpu", UUID: uuid}
}

func partition(parent string, instance *int) ownership.Device {
	return ownership.Device{Driver: "gpu.apportion.dev", Pool: "node", Name: "gpu-" + parent[4:12] + "-mig", Type: "mig", UUID: "MIG-x", ParentUUID: parent, GPUInstanceID: instance}
}

func owned(device ownership.Device, consumers ...ownership.Consumer) ownership.Owner {
	return ownership.Owner{
		Device:    device,
		Claim:     ownership.ClaimRef{Namespace: "team", Name: "claim", UID: "claim-uid"},
		Request:   "gpu",
		Consumers: consumers,
	}
}

func pod(name string, containers ...string) ownership.Consumer {
	c := ownership.Consumer{Namespace: "team", Name: name, UID: "uid", State: ownership.Running}
	for _, container := range containers {
		c.Containers = append(c.Containers, ownership.Container{Name: container, Kind: ownership.RegularContainer})
	}
	return c
}

func gone(c ownership.Consumer) ownership.Consumer {
	c.State = ownership.Gone
	return c
}

func in(namespace string, c ownership.Consumer) ownership.Consumer {
	c.Namespace = namespace
	return c
}

func ptr[T any](v T) *T { return &v }

func TestWrite(t *testing.T) {
	admin := owned(gpu(uuid0), pod("watcher", "main"))
	admin.AdminAccess = true
	nasty := owned(gpu(uuid0))
	nasty.Claim.Name = "x\"} 1\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\\"
	for _, test := range []struct {
		name   string
		owners []ownership.Owner
		want   map[string]string
		errs   []string
	}{
		{name: "nobody holds anything", want: map[string]string{}},
		{
			name:   "one container",
			owners: []ownership.Owner{owned(gpu(uuid0), pod("a", "main"))},
			want:   map[string]string{"0": "team/a/main\n"},
		}, {
			name:   "the values are not repeated for each container of a pod",
			owners: []ownership.Owner{owned(gpu(uuid0), pod("a", "init", "main"))},
			want:   map[string]string{"0": "team/a\n"},
		}, {
			name:   "no container uses it",
			owners: []ownership.Owner{owned(gpu(uuid0), pod("a"))},
			want:   map[string]string{"0": "team/a\n"},
		}, {
			name:   "no pod is known",
			owners: []ownership.Owner{owned(gpu(uuid1))},
			want:   map[string]string{"11": "team/claim:claim\n"},
		}, {
			name:   "a claim shared by pods, sorted",
			owners: []ownership.Owner{owned(gpu(uuid0), pod("b", "main"), pod("a", "main"))},
			want:   map[string]string{"0": "team/a/main\nteam/b/main\n"},
		}, {
			name:   "an ended pod does not count beside one that has not",
			owners: []ownership.Owner{owned(gpu(uuid0), gone(pod("a", "main")), pod("b", "main"))},
			want:   map[string]string{"0": "team/b/main\n"},
		}, {
			name:   "an ended pod's claim still holds the device",
			owners: []ownership.Owner{owned(gpu(uuid0), gone(pod("a", "main")))},
			want:   map[string]string{"0": "team/a/main\n"},
		}, {
			name:   "admin access holds nothing",
			owners: []ownership.Owner{admin},
			want:   map[string]string{},
		}, {
			name: "shares, two of them by the same container",
			owners: []ownership.Owner{
				owned(gpu(uuid0), pod("a", "main")), owned(gpu(uuid0), pod("a", "main")), owned(gpu(uuid0), in("other", pod("a", "main"))),
			},
			want: map[string]string{"0": "other/a/main\nteam/a/main\n"},
		}, {
			name: "partitions have their own files",
			owners: []ownership.Owner{
				owned(partition(uuid1, ptr(0)), pod("a", "main")), owned(partition(uuid1, ptr(13)), pod("b", "main")),
			},
			want: map[string]string{"11.0": "team/a/main\n", "11.13": "team/b/main\n"},
		}, {
			name: "what has no name does not hold up the others",
			owners: []ownership.Owner{
				owned(partition(uuid1, nil), pod("a", "main")),
				owned(gpu("GPU-22222222"), pod("b", "main")),
				owned(partition("GPU-33333333", ptr(1)), pod("c", "main")),
				owned(gpu(uuid0), pod("d", "main")),
			},
			want: map[string]string{"0": "team/d/main\n"},
			errs: []string{"node/gpu-11111111-mig has no file", "the id of its GPU instance is not known", `the index of GPU "GPU-22222222" is not known`, `the index of GPU "GPU-33333333" is not known`},
		}, {
			name: "names cannot end the label or the line",
			owners: []ownership.Owner{
				nasty,
				owned(gpu(uuid1), in("", pod(`a/b\c`, "ä,\r\n=\x00\xff")), in("UP_per.case-1", pod(strings.Repeat("n", 300)))),
			},
			want: map[string]string{
				"0":  "team/claim:x___1_DCGM_FI_DEV_GPU_UTIL_gpu__0_\n",
				"11": "UP_per.case-1/" + strings.Repeat("n", 253) + "\n_/a_b_c/_______\n",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "jobs")
			err := New(dir).Write(test.owners, index)
			if len(test.errs) == 0 && err != nil {
				t.Fatal(err)
			}
			for _, want := range test.errs {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v lacks %q", err, want)
				}
			}
			if got := exporterReads(t, dir); !maps.Equal(got, test.want) {
				t.Errorf("the exporter reads %q, want %q", got, test.want)
			}
		})
	}
}

// exporterReads returns the files that a dcgm-exporter which knows partitions reads.
func exporterReads(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		gpu, instance, isPartition := strings.Cut(entry.Name(), ".")
		_, err := strconv.Atoi(gpu)
		if isPartition && err == nil {
			_, err = strconv.Atoi(instance)
		}
		if err != nil || entry.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = string(data)
	}
	return files
}

func write(t *testing.T, w *Writer, owners ...ownership.Owner) {
	t.Helper()
	if err := w.Write(owners, index); err != nil {
		t.Fatal(err)
	}
}

func TestFilesOfDevicesWithoutOwnersAreRemoved(t *testing.T) {
	dir := t.TempDir()
	w := New(dir)
	write(t, w, owned(gpu(uuid0), pod("a", "main")), owned(partition(uuid1, ptr(3)), pod("b", "main")))
	write(t, w, owned(partition(uuid1, ptr(4)), pod("c", "main")))
	if got, want := exporterReads(t, dir), map[string]string{"11.4": "team/c/main\n"}; !maps.Equal(got, want) {
		t.Errorf("the exporter reads %q, want %q", got, want)
	}
	write(t, w)
	if got := exporterReads(t, dir); len(got) != 0 {
		t.Errorf("the exporter reads %q, want nothing", got)
	}
}

func TestANewProcessKnowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, New(dir), owned(gpu(uuid0), pod("a", "main")), owned(gpu(uuid1), pod("b", "main")))
	for _, left := range []string{".0.tmp-0123456789abcdef-1", ".11.4.tmp-0123456789abcdef-2", "..apportion.tmp-0123456789abcdef-3"} {
		mustWrite(t, filepath.Join(dir, left), "half")
	}
	write(t, New(dir), owned(gpu(uuid1), pod("c", "main")))
	if got, want := names(t, dir), []string{".apportion", "11"}; !slices.Equal(got, want) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
	if got, want := exporterReads(t, dir), map[string]string{"11": "team/c/main\n"}; !maps.Equal(got, want) {
		t.Errorf("the exporter reads %q, want %q", got, want)
	}
}

func TestFilesOfOthersAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	others := map[string]string{"0": "4711\n", "3": "4712\n", "11.4": "4713\n"}
	for name, content := range others {
		mustWrite(t, filepath.Join(dir, name), content)
	}
	mustWrite(t, filepath.Join(dir, ".profile.tmp-1"), "")
	w := New(dir)
	err := w.Write([]ownership.Owner{owned(gpu(uuid0), pod("a", "main")), owned(gpu(uuid1), pod("b", "main"))}, index)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "0")+" was made by somebody else: remove it") {
		t.Errorf("got error %v", err)
	}
	want := maps.Clone(others)
	want["11"] = "team/b/main\n"
	if got := exporterReads(t, dir); !maps.Equal(got, want) {
		t.Errorf("the exporter reads %q, want %q", got, want)
	}
	if err := New(dir).Write(nil, index); err != nil {
		t.Fatal(err)
	}
	if got := exporterReads(t, dir); !maps.Equal(got, others) {
		t.Errorf("the exporter reads %q, want %q", got, others)
	}
	if !slices.Contains(names(t, dir), ".profile.tmp-1") {
		t.Error("a file of somebody else was removed")
	}
	if err := os.Remove(filepath.Join(dir, "0")); err != nil {
		t.Fatal(err)
	}
	write(t, w, owned(gpu(uuid0), pod("a", "main")))
}

// A manifest is only a list of names in the folder: nothing in it leads elsewhere.
func TestADamagedManifestHarmsNothing(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	mustWrite(t, outside, "keep")
	jobs := filepath.Join(dir, "jobs")
	if err := os.Mkdir(jobs, 0o755); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(jobs, manifestName), "../outside\n\x00\n0\n5.x\n/etc\n")
	mustWrite(t, filepath.Join(jobs, "0"), "team/old/main\n")
	write(t, New(jobs))
	if got, want := names(t, jobs), []string{manifestName}; !slices.Equal(got, want) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

func TestRightFilesAreNotWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	w := New(dir)
	owners := []ownership.Owner{owned(gpu(uuid0), pod("a", "main")), owned(gpu(uuid1), pod("b", "main"))}
	write(t, w, owners...)
	before := map[string]fs.FileInfo{}
	for _, name := range names(t, dir) {
		before[name] = stat(t, dir, name)
	}
	if err := os.Remove(filepath.Join(dir, "11")); err != nil {
		t.Fatal(err)
	}
	write(t, w, owners...)
	for name, info := range before {
		// The file that was lost is there again, the others are the same.
		if again := stat(t, dir, name); name != "11" && !os.SameFile(info, again) {
			t.Errorf("%s was written again", name)
		}
	}
}

func TestAFileThatCannotBeWrittenIsNotLeftWrong(t *testing.T) {
	dir := t.TempDir()
	w := New(dir)
	write(t, w, owned(gpu(uuid0), pod("a", "main")))
	// A folder in the file's place can be neither read nor replaced, but removed.
	if err := errors.Join(os.Remove(filepath.Join(dir, "0")), os.Mkdir(filepath.Join(dir, "0"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := w.Write([]ownership.Owner{owned(gpu(uuid0), pod("b", "main")), owned(gpu(uuid1), pod("c", "main"))}, index); err == nil {
		t.Error("no error")
	}
	if got, want := names(t, dir), []string{".apportion", "11"}; !slices.Equal(got, want) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
	write(t, w, owned(gpu(uuid0), pod("b", "main")), owned(gpu(uuid1), pod("c", "main")))
	if got, want := exporterReads(t, dir), map[string]string{"0": "team/b/main\n", "11": "team/c/main\n"}; !maps.Equal(got, want) {
		t.Errorf("the exporter reads %q, want %q", got, want)
	}
}

func TestAFolderThatIsAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	mustWrite(t, dir, "")
	if err := New(dir).Write(nil, index); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got error %v", err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func stat(t *testing.T, dir, name string) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func mustWrite(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
