package image

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeGo puts a "go" into PATH that runs the shell lines of body, in which
// $output is the file after -o.
func fakeGo(t *testing.T, body string) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\nall=\"$*\"\nwhile [ \"$1\" != -o ]; do shift; done\noutput=$2\n" + body + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestBuildDriver(t *testing.T) {
	repo, out := t.TempDir(), filepath.Join(t.TempDir(), "not", "there", "yet")
	fakeGo(t, `echo "$all" >> calls; echo "$CGO_LDFLAGS" >> flags; echo "program of $(basename "$output")" > "$output"`)
	var progress bytes.Buffer
	tarPath, err := BuildDriver(t.Context(), repo, out, &progress, "one", "two")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(out, "apportion.tar"); tarPath != want {
		t.Errorf("image at %s, want %s", tarPath, want)
	}
	calls, err := os.ReadFile(filepath.Join(repo, "calls"))
	if err != nil {
		t.Fatalf("not compiled in the repository: %v", err)
	}
	want := "build -buildvcs=false -ldflags=-s -w -o " + out + "/bin/apportion-kubelet-plugin -tags=one,two ./cmd/apportion-kubelet-plugin\n" +
		"build -buildvcs=false -ldflags=-s -w -o " + out + "/bin/apportion-cdi-hook -tags=one,two ./cmd/apportion-cdi-hook\n" +
		"build -buildvcs=false -ldflags=-s -w -o " + out + "/bin/apportion-mps -tags=one,two ./cmd/apportion-mps\n" +
		"build -buildvcs=false -ldflags=-s -w -o " + out + "/bin/apportion-exporter -tags=one,two ./cmd/apportion-exporter\n" +
		"build -buildvcs=false -ldflags=-s -w -o " + out + "/bin/apportion-webhook -tags=one,two ./cmd/apportion-webhook\n" +
		"build -buildvcs=false -ldflags=-s -w -o " + out + "/bin/apportion -tags=one,two ./cmd/apportion\n" +
		"build -buildvcs=false -buildmode=c-shared -ldflags=-s -w -extldflags=-Wl,-soname,libnvidia-ml.so.1 -o " + out + "/bin/libnvidia-ml.so -tags=one,two ./pkg/fake/libnvidia-ml\n" +
		"build -buildvcs=false -ldflags=-s -w -linkmode=external -extldflags=-static -o " + out + "/bin/nvidia-cdi-hook -tags=one,two github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook\n"
	if diff := cmp.Diff(want, string(calls)); diff != "" {
		t.Errorf("calls of go (-want +got):\n%s", diff)
	}

	flags, err := os.ReadFile(filepath.Join(repo, "flags"))
	if err != nil {
		t.Fatal(err)
	}
	if lazy := strings.Count(string(flags), "-Wl,-z,lazy\n"); lazy != 8 {
		t.Errorf("%d of 8 programs bind NVML's functions when they are called: %s", lazy, flags)
	}

	img := readImage(t, tarPath, "apportion.dev/apportion:dev")
	found, order := readContents(t, img)
	for _, name := range []string{"apportion-kubelet-plugin", "apportion-cdi-hook", "apportion-mps", "apportion-exporter", "apportion-webhook", "apportion", "nvidia-cdi-hook"} {
		got := found["/usr/bin/"+name]
		if got.Content != "program of "+name+"\n" || got.Mode != 0o755 {
			t.Errorf("/usr/bin/%s: %+v", name, got)
		}
	}
	at, after := slices.Index(order, "/usr/bin"), slices.Index(order, "/usr/lib")
	if after-at != 8 {
		t.Errorf("/usr/bin has other files than the seven programs: %v", order[at:])
	}
	if got := found["/usr/lib/apportion/libnvidia-ml.so"].Content; got != "program of libnvidia-ml.so\n" {
		t.Errorf("the fake library is %q", got)
	}
	if _, ok := found["/bin/sh"]; ok {
		t.Error("there is a shell in the image")
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr/bin/apportion-kubelet-plugin"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entry point (-want +got):\n%s", diff)
	}
	for _, line := range []string{"compiling nvidia-cdi-hook (8 of 8)", "wrote image apportion.dev/apportion:dev to " + tarPath} {
		if !strings.Contains(progress.String(), line+"\n") {
			t.Errorf("progress has no line %q:\n%s", line, progress.String())
		}
	}
}

// TestBuildFakeDriverHasAShell: the programs of a fake machine's driver begin with
// "#!/bin/sh" and run mkfifo, mv, rm, mkdir, chmod and cat.
func TestBuildFakeDriverHasAShell(t *testing.T) {
	fakeGo(t, `echo "program of $(basename "$output")" > "$output"`)
	busybox := filepath.Join(t.TempDir(), "its name")
	script := "#!/bin/sh\n[ \"$1\" = --list ] && printf 'busybox\\nsh\\nmkfifo\\n'\n"
	if err := os.WriteFile(busybox, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	tarPath, err := BuildFakeDriver(t.Context(), t.TempDir(), t.TempDir(), busybox, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	img := readImage(t, tarPath, DriverName)
	found, _ := readContents(t, img)
	got := map[string]seen{}
	for path, what := range found {
		if strings.HasPrefix(path, "/bin/") {
			got[path] = what
		}
	}
	want := map[string]seen{
		"/bin/busybox": {Type: tar.TypeReg, Mode: 0o755, Content: script},
		"/bin/sh":      {Type: tar.TypeSymlink, Mode: 0o777, Link: "/bin/busybox"},
		"/bin/mkfifo":  {Type: tar.TypeSymlink, Mode: 0o777, Link: "/bin/busybox"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("/bin (-want +got):\n%s", diff)
	}
	if got := found["/usr/bin/apportion-mps"].Content; got != "program of apportion-mps\n" {
		t.Errorf("/usr/bin/apportion-mps: %q", got)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"PATH=/usr/bin:/bin"}, config.Config.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestBuildFakeDriverWithoutBusybox(t *testing.T) {
	_, err := BuildFakeDriver(t.Context(), t.TempDir(), t.TempDir(), "/nonexistent/busybox", &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/busybox") {
		t.Errorf("error %v", err)
	}
}

func TestBuildDriverShowsWhatTheCompilerSaid(t *testing.T) {
	fakeGo(t, "echo main.go:1: undefined: x >&2; exit 1")
	out := t.TempDir()
	_, err := BuildDriver(t.Context(), t.TempDir(), out, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "compile apportion-kubelet-plugin") || !strings.Contains(err.Error(), "main.go:1: undefined: x") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(out, "apportion.tar")); !os.IsNotExist(err) {
		t.Errorf("there is an image after a failed build: %v", err)
	}
}
