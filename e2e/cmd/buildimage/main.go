// Command buildimage builds the driver's container image without Docker: it
// compiles the programs and writes the image as a tar for "docker load",
// "kind load image-archive" or "ctr images import --local".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"apportion.dev/apportion/e2e/image"
)

func main() {
	output := flag.String("o", "apportion.tar", "`file` to write the image to")
	repo := flag.String("C", "", "root `folder` of the repository to build (default: the one around the current folder)")
	tags := flag.String("tags", "", "comma-separated `build tags`")
	flag.Usage = func() {
		_, _ = fmt.Fprintf(flag.CommandLine.Output(), "Builds the image %s.\n\nExample:\n  go run ./cmd/buildimage -o apportion.tar\n\nFlags:\n", image.DriverName)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "buildimage: unknown argument %q; see -help\n", flag.Arg(0))
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *output, *repo, *tags)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "buildimage:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, output, repo, tags string) error {
	if repo == "" {
		found, err := repoRoot(ctx)
		if err != nil {
			return err
		}
		repo = found
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	// On the file system of the output, so that the tar can be moved there.
	scratch, err := os.MkdirTemp(filepath.Dir(output), ".buildimage-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	var list []string
	if tags != "" {
		list = strings.Split(tags, ",")
	}
	tarPath, err := image.BuildDriver(ctx, repo, scratch, os.Stderr, list...)
	if err != nil {
		return err
	}
	if err := os.Rename(tarPath, output); err != nil {
		return err
	}
	fmt.Println(output)
	return nil
}

// repoRoot finds the repository around the current folder: the module itself,
// or the one that the nested module of the tests lies in.
func repoRoot(ctx context.Context) (string, error) {
	const module = "apportion.dev/apportion"
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository (name it with -C): %w", err)
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	switch path {
	case module:
		return dir, nil
	case module + "/e2e":
		return filepath.Dir(dir), nil
	default:
		return "", fmt.Errorf("the current folder is in module %s, not in %s; name the repository with -C", path, module)
	}
}
