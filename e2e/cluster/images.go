package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"apportion.dev/apportion/e2e/image"
)

// BusyboxImage is an image for workloads: busybox with links for all its applets
// (sh, ls, cat, sleep, ...). Every node has it.
const BusyboxImage = "apportion.dev/busybox:dev"

const busybox = "busybox"

func imagePath(bin, name string) string { return filepath.Join(bin, name+".tar") }

// images makes the images that every cluster has.
func (b *builder) images(ctx context.Context) error {
	pauseFile := filepath.Join(b.bin, pause)
	err := b.imageOf(pause, pauseFile, image.Spec{
		Name:       PauseImage,
		Files:      []image.File{{Path: "/pause", Source: pauseFile, Mode: 0o755}},
		Entrypoint: []string{"/pause"},
	})
	if err != nil {
		return err
	}
	return b.busyboxImage(ctx)
}

func (b *builder) busyboxImage(ctx context.Context) error {
	if err := b.requirePackage(ctx, busybox, "busybox-static"); err != nil {
		return err
	}
	program, err := exec.LookPath(busybox)
	if err != nil {
		return err
	}
	spec, err := busyboxSpec(ctx, program)
	if err != nil {
		return err
	}
	return b.imageOf(busybox, program, spec)
}

// BuildBusybox makes BusyboxImage as a tar in a folder, for clusters other than
// those of this package, and returns the tar's path.
func BuildBusybox(ctx context.Context, folder string, log io.Writer) (tarPath string, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	return imagePath(folder, busybox), (&builder{bin: folder, log: log}).busyboxImage(ctx)
}

func busyboxSpec(ctx context.Context, program string) (image.Spec, error) {
	files, links, err := image.Busybox(ctx, program)
	return image.Spec{
		Name:       BusyboxImage,
		Files:      files,
		Links:      links,
		Entrypoint: []string{"/bin/sh"},
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
		Libraries:  true, // for a busybox that is not static
	}, err
}

// imageOf makes the image name.tar if it is missing or something in it changed.
func (b *builder) imageOf(name, program string, spec image.Spec) error {
	info, err := os.Stat(program)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%+v %d %d", spec, info.Size(), info.ModTime().UnixNano())
	return b.once(name+".tar", key, func(path string) error {
		_, _ = fmt.Fprintf(b.log, "making the image %s\n", spec.Name)
		return image.Write(spec, path)
	})
}
