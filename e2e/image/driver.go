package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// DriverName is the reference of the driver's image that BuildDriver makes and
// the chart's default values with the tag "dev" name.
const DriverName = "apportion.dev/apportion:dev"

// program is one binary of the driver's image.
type program struct {
	name, pkg string
	// static links the C library in: the program runs on the host, whose C
	// library may be another one or none.
	static bool
	// library makes a C shared library of it, with the soname given.
	library string
}

// path is where the image has the program.
func (p program) path() string {
	if p.library != "" {
		return "/usr/lib/apportion/" + p.name
	}
	return "/usr/bin/" + p.name
}

// apportion-cdi-hook runs on the host as well, but opens the host's NVML and is
// therefore not static.
var driverPrograms = []program{
	{name: "apportion-kubelet-plugin", pkg: "./cmd/apportion-kubelet-plugin"},
	{name: "apportion-cdi-hook", pkg: "./cmd/apportion-cdi-hook"},
	{name: "apportion-mps", pkg: "./cmd/apportion-mps"},
	{name: "apportion-exporter", pkg: "./cmd/apportion-exporter"},
	{name: "apportion-webhook", pkg: "./cmd/apportion-webhook"},
	{name: "apportion", pkg: "./cmd/apportion"},
	fakeLibrary,
	{name: "nvidia-cdi-hook", pkg: "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook", static: true},
}

// fakeLibrary is NVML for fake GPUs, which "apportion fake create" gives to nodes.
var fakeLibrary = program{name: "libnvidia-ml.so", pkg: "./pkg/fake/libnvidia-ml", library: "libnvidia-ml.so.1"}

// nvmlLibraries are what libnvidia-ml.so.1 needs. The programs open it while
// they run, from the driver root of the host, and it finds these in the image.
var nvmlLibraries = []string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"}

// BuildDriver compiles the programs of the driver's image from the repository
// at repoRoot, with the build tags given, and writes the image DriverName to
// apportion.tar in outDir, which it makes if it is missing. It says what it is
// doing, a line a step, on progress. It needs the Go tool and a C compiler.
func BuildDriver(ctx context.Context, repoRoot, outDir string, progress io.Writer, tags ...string) (tarPath string, err error) {
	spec := Spec{Env: []string{"PATH=/usr/bin"}}
	return buildDriver(ctx, repoRoot, outDir, progress, spec, tags)
}

// BuildFakeDriver does as BuildDriver, and adds the busybox at the path given with
// its applets: the programs of a fake machine's driver are shell scripts.
func BuildFakeDriver(ctx context.Context, repoRoot, outDir, busybox string, progress io.Writer) (tarPath string, err error) {
	spec := Spec{Env: []string{"PATH=/usr/bin:" + busyboxFolder}}
	if spec.Files, spec.Links, err = Busybox(ctx, busybox); err != nil {
		return "", fmt.Errorf("build the driver's image: %w", err)
	}
	return buildDriver(ctx, repoRoot, outDir, progress, spec, nil)
}

// buildDriver adds the driver to what the spec has, and writes the image.
func buildDriver(ctx context.Context, repoRoot, outDir string, progress io.Writer, spec Spec, tags []string) (tarPath string, err error) {
	outDir, err = filepath.Abs(outDir)
	if err != nil {
		return "", fmt.Errorf("build the driver's image: %w", err)
	}
	bin := filepath.Join(outDir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("build the driver's image: %w", err)
	}
	spec.Name = DriverName
	spec.Entrypoint = []string{"/usr/bin/apportion-kubelet-plugin"}
	spec.Libraries, spec.ExtraLibraries = true, nvmlLibraries
	for i, p := range driverPrograms {
		report(progress, "compiling %s (%d of %d)", p.name, i+1, len(driverPrograms))
		start := time.Now()
		output := filepath.Join(bin, p.name)
		if err := p.compile(ctx, repoRoot, output, tags); err != nil {
			return "", fmt.Errorf("build the driver's image: %w", err)
		}
		report(progress, "compiled %s in %s", p.name, time.Since(start).Round(time.Second))
		spec.Files = append(spec.Files, File{Path: p.path(), Source: output, Mode: 0o755})
	}
	tarPath = filepath.Join(outDir, "apportion.tar")
	if err := Write(spec, tarPath); err != nil {
		return "", fmt.Errorf("build the driver's image: %w", err)
	}
	report(progress, "wrote image %s to %s", DriverName, tarPath)
	return tarPath, nil
}

// BuildFakeLibrary compiles NVML for fake GPUs from the repository at repoRoot.
func BuildFakeLibrary(ctx context.Context, repoRoot, output string) error {
	return fakeLibrary.compile(ctx, repoRoot, output, nil)
}

// report writes a line of progress, which nothing depends on.
func report(progress io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(progress, format+"\n", args...)
}

func (p program) compile(ctx context.Context, repoRoot, output string, tags []string) error {
	ldflags := "-s -w"
	if p.static {
		ldflags += " -linkmode=external -extldflags=-static"
	}
	args := []string{"build", "-buildvcs=false"}
	if p.library != "" {
		args = append(args, "-buildmode=c-shared")
		ldflags += " -extldflags=-Wl,-soname," + p.library
	}
	args = append(args, "-ldflags="+ldflags, "-o", output)
	if len(tags) > 0 {
		args = append(args, "-tags="+strings.Join(tags, ","))
	}
	cmd := exec.CommandContext(ctx, "go", append(args, p.pkg)...)
	cmd.Dir = repoRoot
	// NVML's symbols are undefined until it is loaded.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_LDFLAGS=-O2 -g -Wl,-z,lazy")
	// Shown only after a failure: NVML's header alone fills pages with warnings.
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compile %s (in %s: %s): %w\n%s", p.name, repoRoot, cmd, err, said.Bytes())
	}
	return nil
}
