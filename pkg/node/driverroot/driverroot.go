// Package driverroot runs the programs of an NVIDIA driver installation from a
// container that sees the installation below a folder, its driver root.
//
// A driver root is either a whole system (the host's files, or those of a driver
// container), with the C library that its programs were linked for, or no more than
// the driver's own files. A program of a whole system runs with that system as its
// root folder: libraries of two systems do not mix. Another one runs among the files
// of this container, with the driver's libraries.
//
// The package knows where distributions put programs. It knows nothing of what they
// do.
package driverroot

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	securejoin "github.com/cyphar/filepath-securejoin"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

// folders are where distributions and driver containers put programs, relative to
// the driver root.
var folders = []string{
	"usr/bin",
	"bin",
	"usr/local/nvidia/bin",
	"usr/local/bin",
	"opt/bin",
	"opt/nvidia/bin",
	"home/kubernetes/bin/nvidia/bin",
	"usr/lib/wsl/lib",
	"run/current-system/sw/bin",
}

// searchPath is the PATH within a system.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// waitDelay is how long a program that was killed may keep its output open through
// processes of its own.
const waitDelay = 2 * time.Second

// Program is a program of a driver installation, and how to run it.
type Program struct {
	// Path is the program within Root.
	Path string
	// Root is the folder that is the program's root folder, "/" if it runs among
	// this container's files.
	Root string
	// Env is the least environment that it needs.
	Env []string
}

// Find looks for a program in the usual folders of the driver root. The error is
// fs.ErrNotExist where there is none.
func Find(root, name string) (Program, error) {
	for _, folder := range folders {
		path, err := securejoin.SecureJoin(root, filepath.Join(folder, name))
		if err != nil {
			return Program{}, fmt.Errorf("look for %s in the driver root %s: %w", name, root, err)
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			return Program{}, fmt.Errorf("look for %s in the driver root %s: %w", name, root, err)
		case info.Mode().IsRegular():
			return program(filepath.Clean(root), path)
		}
	}
	return Program{}, fmt.Errorf("no %s in the usual folders of the driver root %s (%s): %w",
		name, root, strings.Join(folders, ", "), fs.ErrNotExist)
}

// program says how to run the file that is at path, below root.
func program(root, path string) (Program, error) {
	loader, err := interpreter(path)
	if err != nil {
		return Program{}, fmt.Errorf("read the program %s: %w", path, err)
	}
	here := Program{Path: path, Root: "/", Env: []string{"PATH=" + filepath.Dir(path) + ":" + searchPath}}
	if root == "/" {
		return here, nil
	}
	if loader != "" {
		within, err := securejoin.SecureJoin(root, loader)
		if err != nil {
			return Program{}, fmt.Errorf("look for %s in the driver root %s: %w", loader, root, err)
		}
		if _, err := os.Stat(within); err == nil {
			inside := strings.TrimPrefix(path, root)
			return Program{Path: inside, Root: root, Env: []string{"PATH=" + filepath.Dir(inside) + ":" + searchPath}}, nil
		}
	}
	library, err := inventory.FindLibrary("", root)
	if err == nil {
		here.Env = append(here.Env, "LD_LIBRARY_PATH="+filepath.Dir(library))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Program{}, err
	}
	return here, nil
}

// interpreter is the dynamic loader that an ELF program names; empty for a static
// program and for a script.
func interpreter(path string) (string, error) {
	f, err := elf.Open(path)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		data, err := io.ReadAll(p.Open())
		return strings.TrimRight(string(data), "\x00"), err
	}
	return "", nil
}

// Command is the program with those arguments, in a process group of its own that
// is killed when ctx ends.
func (p Program) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := Group(ctx, p.Path, args...)
	cmd.Env = p.Env
	cmd.Dir = "/"
	if p.Root != "/" {
		cmd.SysProcAttr.Chroot = p.Root
	}
	return cmd
}

// Group is a command in a process group of its own that is killed when ctx ends,
// with all that is in it.
func Group(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	cmd.WaitDelay = waitDelay
	return cmd
}

// Brief is a program's output as part of an error: in one line, and its end if it
// is long.
func Brief(output []byte) string {
	const most = 500
	text := strings.Join(strings.Fields(string(output)), " ")
	if len(text) > most {
		text = "..." + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	if text == "" {
		return "it said nothing"
	}
	return "it said: " + text
}
