package image

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLibrariesOfADynamicProgram takes the shell of the machine that runs the
// test, which on any glibc system needs the loader and libc.so.6.
func TestLibrariesOfADynamicProgram(t *testing.T) {
	if dynamic, err := isDynamic("/bin/sh"); err != nil || !dynamic {
		t.Skipf("/bin/sh of this machine is not a dynamic program: %v", err)
	}
	tarPath := filepath.Join(t.TempDir(), "image.tar")
	err := Write(Spec{
		Name:           "apportion.dev/sh:dev",
		Files:          []File{{Path: "/bin/sh", Source: "/bin/sh"}},
		Libraries:      true,
		ExtraLibraries: []string{"libm.so.6"},
	}, tarPath)
	if err != nil {
		t.Fatal(err)
	}
	found, order := readContents(t, readImage(t, tarPath, "apportion.dev/sh:dev"))
	for _, library := range []string{"ld-linux", "libc.so.6", "libm.so.6"} {
		at := slices.IndexFunc(order, func(p string) bool { return strings.HasPrefix(filepath.Base(p), library) })
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

// TestLibrariesAreWhereTheLoaderLooks: the loader in the image has neither this
// machine's cache nor the folder that a program was built with.
func TestLibrariesAreWhereTheLoaderLooks(t *testing.T) {
	found, err := listed(`	linux-vdso.so.1 (0x00007ffc3b5e3000)
	libfoo.so.1 => /usr/local/lib/libfoo.so.1 (0x00007f5e3d200000)
	libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f5e3d300000)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f5e3d000000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f5e3d410000)
`, []string{"libc.so.6", "libdl.so.2"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, file := range found {
		got[file.Path] = file.Source
	}
	want := map[string]string{
		"/lib/x86_64-linux-gnu/libfoo.so.1": "/usr/local/lib/libfoo.so.1",
		"/lib/x86_64-linux-gnu/libm.so.6":   "/lib/x86_64-linux-gnu/libm.so.6",
		"/lib/x86_64-linux-gnu/libc.so.6":   "/lib/x86_64-linux-gnu/libc.so.6",
		"/lib/x86_64-linux-gnu/libdl.so.2":  "/lib/x86_64-linux-gnu/libdl.so.2",
		"/lib64/ld-linux-x86-64.so.2":       "/lib64/ld-linux-x86-64.so.2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files by their path in the image (-want +got):\n%s", diff)
	}
}

func TestMissingLibraryIsNamed(t *testing.T) {
	for output, want := range map[string]string{
		"\tlibfoo.so.1 => not found\n\tlibc.so.6 => /lib64/libc.so.6 (0x7f)\n": "libfoo.so.1, which is in none of the loader's folders; install",
		"\t/lib/ld-musl-x86_64.so.1 (0x7f)\n":                                  "libc.so.6, which ldd does not list",
	} {
		if _, err := listed(output, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
