package inventory

import (
	"io/fs"
	"os"
	"path/filepath"
)

// SysFS returns the sysfs of the machine whose NVIDIA driver is installed below a
// folder. A driver root that is a whole system has one of its own, as the host's root
// folder and that of NVIDIA's driver container do, and it shows the same devices as
// /sys; that is read where there is none. As the driver may be installed later than this
// process starts, it is looked for at each access.
func SysFS(driverRoot string) fs.ReadLinkFS { return sysfs(filepath.Join(driverRoot, "sys")) }

// sysfs is the path of a driver root's own sysfs, which may not exist.
type sysfs string

// fs is the sysfs that is read.
func (s sysfs) fs() fs.FS {
	if _, err := os.Stat(filepath.Join(string(s), "bus/pci/devices")); err == nil {
		return os.DirFS(string(s))
	}
	return os.DirFS("/sys")
}

// Open, ReadLink and Lstat implement [fs.ReadLinkFS].
func (s sysfs) Open(name string) (fs.File, error)      { return s.fs().Open(name) }
func (s sysfs) ReadLink(name string) (string, error)   { return fs.ReadLink(s.fs(), name) }
func (s sysfs) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(s.fs(), name) }
