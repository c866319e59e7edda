package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// nodeFolders are the standard places that each node has for itself.
var nodeFolders = []string{
	"/etc/cdi",
	"/etc/cni",
	"/run/cdi",
	"/run/containerd",
	"/run/mount",
	"/var/lib/apportion",
	"/var/lib/cni",
	"/var/lib/containerd",
	"/var/lib/kubelet",
	"/var/log/containers",
	"/var/log/pods",
}

// volatileFolders are those of nodeFolders that a boot empties.
var volatileFolders = []string{"/run/cdi", "/run/containerd", "/run/mount"}

// nodeSettings are the kernel settings that the kubelet changes. Each node gets
// files of its own over them, so that the host's stay as they are.
var nodeSettings = []string{
	"/proc/sys/vm/overcommit_memory",
	"/proc/sys/vm/panic_on_oom",
	"/proc/sys/kernel/panic",
	"/proc/sys/kernel/panic_on_oops",
	"/proc/sys/kernel/keys/root_maxkeys",
	"/proc/sys/kernel/keys/root_maxbytes",
}

// bootIDFile says which boot this is; each node has its own.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// backing returns where the node's file path lies in its folder root.
func backing(root, path string) string {
	// /var/run is a link to /run on every distribution.
	if rest, ok := strings.CutPrefix(filepath.Clean(path), "/var/run"); ok && (rest == "" || rest[0] == '/') {
		path = "/run" + rest
	}
	return filepath.Join(root, path)
}

// mountNode puts the node's own folders and files, kept under root, over the
// standard places. It runs inside the node's machine.
func mountNode(root string) error {
	for _, folder := range nodeFolders {
		if err := bind(backing(root, folder), folder); err != nil {
			return err
		}
	}
	for _, setting := range append(slices.Clone(nodeSettings), bootIDFile) {
		err := bind(backing(root, setting), setting)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s over %s: %w", source, target, err)
	}
	// A group of its own: else what is mounted below target shows up in source too.
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", target, "", propagation, ""); err != nil {
			return fmt.Errorf("share the mounts below %s: %w", target, err)
		}
	}
	return nil
}

// prepareNodeFiles makes the folders and files under root that mountNode mounts.
// The settings start as copies of the host's.
func prepareNodeFiles(root, bootID string) error {
	for _, folder := range nodeFolders {
		if err := os.MkdirAll(backing(root, folder), 0o755); err != nil {
			return err
		}
	}
	for _, setting := range nodeSettings {
		value, err := os.ReadFile(setting)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := writeFile(backing(root, setting), value, 0o644); err != nil {
			return err
		}
	}
	return writeFile(backing(root, bootIDFile), []byte(bootID+"\n"), 0o644)
}

// mountPoints are the folders that had to be made on the host because there was
// nothing to mount on. The list is kept in a file of the cluster's folder, written
// before a folder is made.
type mountPoints struct{ path string }

// list returns the folders, each after the one it is in.
func (m mountPoints) list() ([]string, error) {
	data, err := os.ReadFile(m.path)
	return strings.Fields(string(data)), ignoreNotExist(err)
}

// add puts folders on the list.
func (m mountPoints) add(folders []string) error {
	all, err := m.list()
	if err != nil {
		return err
	}
	all = append(all, folders...)
	slices.Sort(all) // a folder comes before what is in it
	return writeFile(m.path, []byte(strings.Join(slices.Compact(all), "\n")+"\n"), 0o644)
}

// make makes the folders that are missing.
func (m mountPoints) make(folders []string) error {
	var missing []string
	for _, folder := range folders {
		for parent := folder; !exists(parent); parent = filepath.Dir(parent) {
			missing = append(missing, parent)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	if err := m.add(missing); err != nil {
		return err
	}
	for _, folder := range missing {
		if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// remove removes the folders that make made, unless somebody put something there.
func (m mountPoints) remove() error {
	folders, err := m.list()
	if err != nil {
		return err
	}
	slices.Reverse(folders)
	for _, folder := range folders {
		err := os.Remove(folder)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return ignoreNotExist(os.Remove(m.path))
}

// handOver makes the folders those of another cluster.
func (m mountPoints) handOver(heir mountPoints) error {
	folders, err := m.list()
	if err != nil || len(folders) == 0 {
		return err
	}
	if err := heir.add(folders); err != nil {
		return err
	}
	return ignoreNotExist(os.Remove(m.path))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
