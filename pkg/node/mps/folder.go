package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// folder is the folder of one GPU.
type folder struct {
	path string
	// shm is the size in bytes of the tmpfs for shared memory; 0 for a plain folder.
	shm int64
}

func (f folder) sub(name string) string { return filepath.Join(f.path, name) }

// prepare makes the folders for a new daemon. Containers have those that are there
// mounted, so they stay the same ones and only what the last daemon left is removed.
func (f folder) prepare() error {
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{
		// The folder around all is closed to everybody but root. A server that runs as a
		// client's user writes into these.
		{f.path, 0o711}, {f.sub(pipeFolder), 0o777}, {f.sub(logFolder), 0o777}, {f.sub(shmFolder), 0o777 | fs.ModeSticky},
	} {
		if err := os.MkdirAll(d.path, 0o711); err != nil {
			return fmt.Errorf("folder for MPS: %w", err)
		}
		if err := os.Chmod(d.path, d.mode); err != nil {
			return fmt.Errorf("folder for MPS: %w", err)
		}
	}
	if err := f.mountShm(); err != nil {
		return err
	}
	return errors.Join(empty(f.sub(pipeFolder)), empty(f.sub(logFolder)))
}

// mountShm mounts the tmpfs, once: containers keep it from one daemon to the next.
func (f folder) mountShm() error {
	shm := f.sub(shmFolder)
	if f.shm == 0 {
		return nil
	}
	mounted, err := mountinfo.Mounted(shm)
	if err != nil {
		return fmt.Errorf("shared memory for MPS: %w", err)
	}
	if mounted {
		return nil
	}
	if err := unix.Mount("tmpfs", shm, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("mode=1777,size=%d", f.shm)); err != nil {
		return fmt.Errorf("mount shared memory for MPS at %s: %w", shm, err)
	}
	// The host must see it, for containers get it from there.
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(shm))
	if err == nil && (len(infos) != 1 || !strings.Contains(infos[0].Optional, "shared:")) {
		err = errors.New("the host does not see it: mount the folder of MPS into this container with mountPropagation Bidirectional")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("mount shared memory for MPS at %s: %w", shm, err), unix.Unmount(shm, unix.MNT_DETACH))
	}
	return nil
}

// remove removes the folder. No daemon may run, and no container use it.
func (f folder) remove() error {
	shm := f.sub(shmFolder)
	for {
		mounted, err := mountinfo.Mounted(shm)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !mounted {
			break
		}
		if err == nil {
			err = unix.Unmount(shm, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		if err != nil {
			return fmt.Errorf("unmount shared memory of MPS at %s: %w", shm, err)
		}
	}
	if err := os.RemoveAll(f.path); err != nil {
		return fmt.Errorf("remove folder of MPS: %w", err)
	}
	return nil
}

// empty removes all in a folder.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("empty folder of MPS: %w", err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
