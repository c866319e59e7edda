package main

import (
	"bytes"
	"os"
	"path/filepath"
)

// machineVariable is the environment variable that names the machine's folder.
const machineVariable = "APPORTION_FAKE_MACHINE"

// machineLibrary is the name, before the driver's version, of the file beside the library
// that names the machine's folder. It looks like one of the driver's libraries, so what
// takes those into a container takes it as well: a shared object without code, and behind
// its last zero a list of folders, which may be relative to the file's.
const machineLibrary = "libnvidia-fake-machine.so."

// machineDir is the folder of the machine of the library at a path: what the environment
// says, else the first folder with a machine that the file beside the library names. It
// is empty if there is none.
func machineDir(library string) string {
	if dir := os.Getenv(machineVariable); dir != "" {
		return dir
	}
	library, err := filepath.EvalSymlinks(library)
	if err != nil {
		return ""
	}
	folder := filepath.Dir(library)
	files, err := filepath.Glob(filepath.Join(folder, machineLibrary+"*"))
	if err != nil {
		return ""
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, dir := range filepath.SplitList(string(data[bytes.LastIndexByte(data, 0)+1:])) {
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(folder, dir)
			}
			if _, err := os.Stat(filepath.Join(dir, "state.json")); err == nil {
				return dir
			}
		}
	}
	return ""
}
