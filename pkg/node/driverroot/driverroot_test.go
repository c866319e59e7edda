package driverroot

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// dynamic is a program that needs a loader, and the loader's path.
func dynamic(t *testing.T) (data []byte, loader string) {
	t.Helper()
	for _, path := range []string{"/bin/sh", "/bin/ls", "/proc/self/exe"} {
		f, err := elf.Open(path)
		if err != nil {
			continue
		}
		f.Close()
		if loader, err = interpreter(path); err == nil && loader != "" {
			data, err = os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return data, loader
		}
	}
	t.Skip("no dynamic program here")
	return nil, ""
}

func find(t *testing.T, root string) Program {
	t.Helper()
	p, err := Find(root, "tool")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAProgramOfAWholeSystemRunsInIt(t *testing.T) {
	data, loader := dynamic(t)
	root := t.TempDir()
	// As Debian has it: links with absolute targets, which mean files of the root.
	write(t, filepath.Join(root, "usr/lib/nvidia/current/tool"), data)
	link(t, "/usr/lib/nvidia/current/tool", filepath.Join(root, "etc/alternatives/tool"))
	link(t, "/etc/alternatives/tool", filepath.Join(root, "usr/bin/tool"))
	write(t, filepath.Join(root, loader), nil)
	p := find(t, root)
	if p.Path != "/usr/lib/nvidia/current/tool" || p.Root != root || len(p.Env) != 1 || !strings.HasPrefix(p.Env[0], "PATH=/usr/lib/nvidia/current:/usr/local/sbin:") {
		t.Errorf("%+v", p)
	}
	if cmd := p.Command(t.Context(), "a"); cmd.SysProcAttr.Chroot != root || cmd.Dir != "/" {
		t.Errorf("%+v in %s", cmd.SysProcAttr, cmd.Dir)
	}
}

// The C libraries of two systems in one process crash it.
func TestAProgramOfADriversFilesAloneGetsTheDriversLibraries(t *testing.T) {
	data, _ := dynamic(t)
	root := t.TempDir()
	write(t, filepath.Join(root, "bin/tool"), data)
	write(t, filepath.Join(root, "lib64/libnvidia-ml.so.1"), nil)
	p := find(t, root)
	if p.Path != root+"/bin/tool" || p.Root != "/" || len(p.Env) != 2 || p.Env[1] != "LD_LIBRARY_PATH="+root+"/lib64" {
		t.Errorf("%+v", p)
	}
	if cmd := p.Command(t.Context()); cmd.SysProcAttr.Chroot != "" {
		t.Errorf("%+v", cmd.SysProcAttr)
	}
}

func TestAScriptRunsHere(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "usr/bin/tool"), []byte("#!/bin/sh\necho \"$1\"\n"))
	out, err := find(t, root).Command(t.Context(), "hello").Output()
	if err != nil || string(out) != "hello\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestThisSystemIsARootToo(t *testing.T) {
	p, err := Find("/", "sh")
	if err != nil || p.Root != "/" || len(p.Env) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	root := t.TempDir()
	link(t, "nothing", filepath.Join(root, "usr/bin/tool"))
	if err := os.MkdirAll(filepath.Join(root, "bin/tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Find(root, "tool")
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), "usr/bin") {
		t.Error(err)
	}
}

func TestBrief(t *testing.T) {
	for _, test := range []struct{ output, want string }{
		{"", "it said nothing"},
		{"a\n  b\n", "it said: a b"},
		{strings.Repeat("x", 501), "it said: ..." + strings.Repeat("x", 500)},
	} {
		if got := Brief([]byte(test.output)); got != test.want {
			t.Errorf("%q: %q", test.output, got)
		}
	}
}
