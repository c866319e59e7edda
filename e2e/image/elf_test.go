package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLibrariesOfADynamicProgram takes the shell of the machine that runs the
// test, which on any glibc system needs the loader and libc.so.6.
func TestLibrariesOfADynamicProgram(t *testing.T) {
	shell, err := readObject("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if shell == nil || shell.interpreter == "" || !slices.Contains(shell.needed, "libc.so.6") {
		t.Skip("/bin/sh of this machine is not a dynamic glibc program")
	}
	tarPath := filepath.Join(t.TempDir(), "image.tar")
	err = Write(Spec{
		Name:           "apportion.dev/sh:dev",
		Files:          []File{{Path: "/bin/sh", Source: "/bin/sh"}},
		Libraries:      true,
		ExtraLibraries: []string{"libm.so.6"},
	}, tarPath)
	if err != nil {
		t.Fatal(err)
	}
	found, order := readContents(t, readImage(t, tarPath, "apportion.dev/sh:dev"))
	if loader := found[shell.interpreter]; !strings.HasPrefix(loader.Content, "\x7fELF") {
		t.Errorf("%s, the loader, is not in the image as a file", shell.interpreter)
	}
	for _, library := range []string{"libc.so.6", "libm.so.6"} {
		at := slices.IndexFunc(order, func(p string) bool { return filepath.Base(p) == library })
		if at < 0 || !strings.HasPrefix(found[order[at]].Content, "\x7fELF") {
			t.Errorf("%s is not in the image as a file: %v", library, order)
		}
	}
}

func TestLibrariesOfWhatNeedsNone(t *testing.T) {
	script := writeFile(t, filepath.Join(t.TempDir(), "script"), "#!/bin/sh\n", 0o755)
	empty := writeFile(t, filepath.Join(t.TempDir(), "empty"), "", 0o755)
	found, err := libraries([]string{script, empty}, []string{"libm.so.6"})
	if err != nil || len(found) != 0 {
		t.Errorf("libraries %v, error %v; want none", found, err)
	}
}

func TestMissingLibraryIsNamed(t *testing.T) {
	s := newSearch([]string{"/nowhere/a"}, "/nowhere/ld.so.conf")
	err := s.resolve(&object{path: "/usr/bin/tool", needed: []string{"libfoo.so.1"}}, map[string]bool{})
	if err == nil || !strings.Contains(err.Error(), "/usr/bin/tool needs libfoo.so.1, which is in none of the library folders /nowhere/a;") {
		t.Errorf("error %v", err)
	}
}

func TestConfiguredFolders(t *testing.T) {
	dir := t.TempDir()
	config := writeFile(t, filepath.Join(dir, "ld.so.conf"), "include conf.d/*.conf\n# a comment\n/opt/last # why\n", 0o644)
	writeFile(t, filepath.Join(dir, "conf.d", "1.conf"), "/opt/one\n\n/opt/two\n", 0o644)
	writeFile(t, filepath.Join(dir, "conf.d", "2.conf"), "include "+config+"\n/opt/three\n", 0o644)
	writeFile(t, filepath.Join(dir, "conf.d", "ignored.txt"), "/opt/ignored\n", 0o644)

	found := configured(config, maxIncludes-1)
	if diff := cmp.Diff([]string{"/opt/one", "/opt/two", "/opt/three", "/opt/last"}, found); diff != "" {
		t.Errorf("folders (-want +got):\n%s", diff)
	}
	if found := configured(filepath.Join(dir, "none"), 0); found != nil {
		t.Errorf("folders of a missing file: %v", found)
	}
}

// TestLibraryFromAConfiguredFolder puts a library where only ld.so.conf leads:
// the loader in the image has no such file, so the library moves to /lib.
func TestLibraryFromAConfiguredFolder(t *testing.T) {
	shell, err := readObject("/bin/sh")
	if err != nil || shell == nil {
		t.Skip("/bin/sh of this machine is not an ELF program")
	}
	content, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	library := writeFile(t, filepath.Join(dir, "opt", "libfoo.so.1"), string(content), 0o755)
	config := writeFile(t, filepath.Join(dir, "ld.so.conf"), filepath.Dir(library)+"\n", 0o644)

	found, err := newSearch(nil, config).locate("libfoo.so.1", shell)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(File{Path: "/lib/libfoo.so.1", Source: library}, found); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	found, err = newSearch([]string{filepath.Dir(library)}, config).locate("libfoo.so.1", shell)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(File{Path: library, Source: library}, found); diff != "" {
		t.Errorf("file from a default folder (-want +got):\n%s", diff)
	}
}
