package cdi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/specs-go"
)

// clockTick is more than the kernel's clock for files lags behind the time.
const clockTick = 20 * time.Millisecond

// folders tells one state of folders from another. The kernel notes the time of a
// change when something in a folder is added, removed or renamed, and nobody can
// set that time.
type folders map[string]folderStamp

type folderStamp struct {
	device, inode uint64
	changed       unix.Timespec
}

func stampOf(path string) (folderStamp, error) {
	var stat unix.Stat_t
	for {
		err := unix.Stat(path, &stat)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return folderStamp{device: uint64(stat.Dev), inode: stat.Ino, changed: stat.Ctim}, err
	}
}

// foldersOf are the folders, as this process sees them, that edits found since
// asked refer to, without those that are in known.
func foldersOf(edits *specs.ContainerEdits, asked time.Time, known folders) (folders, error) {
	var paths []string
	for _, m := range edits.Mounts {
		if m.HostPath != os.DevNull {
			paths = append(paths, m.HostPath)
		}
	}
	for _, d := range edits.DeviceNodes {
		path := d.HostPath
		if path == "" {
			path = d.Path
		}
		paths = append(paths, path)
	}
	found := folders{}
	for _, path := range paths {
		folder := filepath.Dir(path)
		if _, ok := known[folder]; ok {
			continue
		}
		if _, ok := found[folder]; ok {
			continue
		}
		stamp, err := stampOf(folder)
		if err != nil {
			return nil, fmt.Errorf("look at the folder %s of the driver's files: %w", folder, err)
		}
		// It may have changed after it was read, or may change again within one tick
		// of the clock: what was found there holds for this time only.
		if time.Unix(stamp.changed.Unix()).After(asked.Add(-clockTick)) {
			stamp = folderStamp{}
		}
		found[folder] = stamp
	}
	return found, nil
}

func (f folders) unchanged() bool {
	for path, was := range f {
		if is, err := stampOf(path); err != nil || is != was {
			return false
		}
	}
	return true
}
