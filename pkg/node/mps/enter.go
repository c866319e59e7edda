package mps

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// room is where an isolated program runs: a mount namespace of its own with a
// GPU's folders in the places where clients have them. It travels as JSON from the
// supervisor to the process that becomes the program.
type room struct {
	// Root is the folder that becomes the root folder, or "/".
	Root string `json:"root"`
	// Folder is the GPU's folder.
	Folder string `json:"folder"`
	// Argv is the program, by its path within Root, and its arguments.
	Argv []string `json:"argv"`
}

// Enter turns this process, which must be alone in its mount namespace, into the
// program that the JSON from a [Supervisor] describes. It returns only if that
// fails.
func Enter(description string) error {
	var r room
	if err := json.Unmarshal([]byte(description), &r); err != nil {
		return fmt.Errorf("what to run: %w", err)
	}
	if len(r.Argv) == 0 {
		return errors.New("what to run: no program")
	}
	if err := r.furnish(); err != nil {
		return err
	}
	if r.Root != "/" {
		if err := unix.Chroot(r.Root); err != nil {
			return fmt.Errorf("make %s the root folder: %w", r.Root, err)
		}
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Exec(r.Argv[0], r.Argv, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", r.Argv[0], err)
	}
	return nil
}

// furnish mounts the GPU's folders.
func (r room) furnish() error {
	// What is unmounted on the host is to go here too; what is mounted here is to
	// stay here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts from the host: %w", err)
	}
	// The folders are opened first: what is mounted may hide them.
	sources := map[string]int{pipeInside: -1, logInside: -1, shmInside: -1}
	for inside, folder := range map[string]string{pipeInside: pipeFolder, logInside: logFolder, shmInside: shmFolder} {
		path := filepath.Join(r.Folder, folder)
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		sources[inside] = fd
	}
	// The root may be read-only, and may not have the folders.
	tmp, err := securejoin.SecureJoin(r.Root, "tmp")
	if err == nil {
		err = unix.Mount("tmpfs", tmp, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755,size=1m")
	}
	if err != nil {
		return fmt.Errorf("mount a folder at %s: %w", tmp, err)
	}
	for _, inside := range []string{pipeInside, logInside, shmInside} {
		target, err := securejoin.SecureJoin(r.Root, inside)
		if err == nil && strings.HasPrefix(inside, "/tmp/") {
			err = os.Mkdir(target, 0o755)
		}
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", sources[inside]), target, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("mount %s of %s at %s: %w", inside, r.Folder, target, err)
		}
	}
	return nil
}
