package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlSoname is the name under which the driver installs NVML.
const nvmlSoname = "libnvidia-ml.so.1"

// libraryFolders are where distributions and driver containers put NVML,
// relative to the driver root.
func libraryFolders() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	folders := []string{"usr/lib64"}
	if triplet != "" {
		folders = append(folders, "usr/lib/"+triplet, "usr/lib/"+triplet+"/nvidia/current", "lib/"+triplet)
	}
	return append(folders,
		"lib64",
		"usr/lib",
		"lib",
		"usr/local/nvidia/lib64",
		"usr/local/lib",
		"opt/nvidia/lib64",
		"home/kubernetes/bin/nvidia/lib64",
		"usr/lib/wsl/lib",
	)
}

// FindLibrary returns the path of libnvidia-ml.so.1. An explicit path is taken as
// it is and must exist; without one the usual library folders of the driver root
// ("/" if empty) are searched. The error says where it looked.
func FindLibrary(explicit, driverRoot string) (string, error) {
	if explicit != "" {
		if _, err := os.Stat(explicit); err != nil {
			return "", fmt.Errorf("NVML library: %w", err)
		}
		return explicit, nil
	}
	if driverRoot == "" {
		driverRoot = "/"
	}
	for _, folder := range libraryFolders() {
		path, err := resolveInRoot(driverRoot, filepath.Join(folder, nvmlSoname))
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("NVML library in driver root %s: %w", driverRoot, err)
		}
	}
	return "", fmt.Errorf("%s is in none of the usual library folders of the driver root %s (%s): %w",
		nvmlSoname, driverRoot, strings.Join(libraryFolders(), ", "), fs.ErrNotExist)
}

// resolveInRoot returns the path under root of a file that exists. A link with an
// absolute target means a path under root, as it does to the host itself.
func resolveInRoot(root, name string) (string, error) {
	path := filepath.Join(root, name)
	for range 8 { // a chain of links is short; a loop is none
		info, err := os.Lstat(path)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			if _, err := os.Stat(path); err != nil {
				return "", err
			}
			return path, nil
		}
		path = filepath.Join(root, target)
	}
	return "", fmt.Errorf("%s: too many levels of links", filepath.Join(root, name))
}

// Library is NVML, looked for anew at each Init until it is found, so that a
// process may start before the driver is installed. It may be used as soon as an
// Init has succeeded; every user calls Init and Shutdown for itself.
//
// Once loaded, a library stays for the life of the process: the dynamic linker
// binds the program's undefined symbols to it and never unloads it again. After
// the driver was replaced [Library.Replaced] is true, and a new process is needed.
type Library struct {
	nvml.Interface

	find func() (string, error)

	mu     sync.Mutex
	path   string
	loaded fs.FileInfo
	err    error
}

var _ nvml.Interface = (*Library)(nil)

// OpenLibrary returns the library that [FindLibrary] finds. It loads nothing yet
// and does not fail; Init does.
func OpenLibrary(explicit, driverRoot string) *Library {
	return &Library{
		Interface: nvml.New(nvml.WithLibraryPath(nvmlSoname)),
		find:      func() (string, error) { return FindLibrary(explicit, driverRoot) },
	}
}

// Init loads and initialises NVML. It returns ERROR_LIBRARY_NOT_FOUND while there
// is none; LoadError says more.
func (l *Library) Init() nvml.Return {
	if ret := l.locate(); ret != nvml.SUCCESS {
		return ret
	}
	return l.Interface.Init()
}

// InitWithFlags is Init with NVML's flags.
func (l *Library) InitWithFlags(flags uint32) nvml.Return {
	if ret := l.locate(); ret != nvml.SUCCESS {
		return ret
	}
	return l.Interface.InitWithFlags(flags)
}

// locate replaces the interface once, before the first Init that can succeed. So
// whoever has initialised the library sees only the one found.
func (l *Library) locate() nvml.Return {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path != "" {
		return nvml.SUCCESS
	}
	path, err := l.find()
	if err == nil {
		l.loaded, err = os.Stat(path)
	}
	if l.err = err; err != nil {
		return nvml.ERROR_LIBRARY_NOT_FOUND
	}
	l.path = path
	l.Interface = nvml.New(nvml.WithLibraryPath(path))
	return nvml.SUCCESS
}

// Path is the path of the library, empty until it was found.
func (l *Library) Path() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.path
}

// LoadError says why the library was not found at the last Init.
func (l *Library) LoadError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Replaced says whether the file at the library's path is another one than at
// the time it was found.
func (l *Library) Replaced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		return false
	}
	now, err := os.Stat(l.path)
	if err != nil {
		return false
	}
	return !os.SameFile(now, l.loaded) || !now.ModTime().Equal(l.loaded.ModTime())
}
