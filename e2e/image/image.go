package image

import (
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is one regular file of an image.
type File struct {
	// Path is where the file is in the image; absolute.
	Path string
	// Source is the file on disk whose content it has; links are followed.
	Source string
	// Mode is the file's permission bits; 0 takes those of Source.
	Mode int64
}

// Link is one symbolic link of an image.
type Link struct {
	// Path is where the link is in the image; absolute.
	Path string
	// Target is what the link says; it need not exist.
	Target string
}

// Spec says what an image holds and what it runs.
type Spec struct {
	// Name is the image's reference with its tag, such as
	// "apportion.dev/apportion:dev".
	Name  string
	Files []File
	Links []Link
	// Entrypoint and Env are those of the image's config.
	Entrypoint, Env []string
	// Libraries adds, at their own paths, the shared libraries and the loader
	// that each dynamic ELF file among Files needs on this machine.
	Libraries bool
	// ExtraLibraries are sonames that Libraries adds as well: those which a
	// program loads only while it runs, and which no ELF header names.
	ExtraLibraries []string
}

// Write makes the image and writes it to tarPath, which it replaces in one
// step. Beside the spec's content the image has a minimal /etc/passwd and
// /etc/group and an empty /tmp.
func Write(spec Spec, tarPath string) error {
	if err := write(spec, tarPath); err != nil {
		return fmt.Errorf("image %s: %w", spec.Name, err)
	}
	return nil
}

func write(spec Spec, tarPath string) (err error) {
	tag, err := name.NewTag(spec.Name, name.WithDefaultRegistry(""))
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(tarPath), ".image-")
	if err != nil {
		return fmt.Errorf("make a scratch folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()

	img, err := build(spec, filepath.Join(scratch, "layer.tar"))
	if err != nil {
		return err
	}
	whole := filepath.Join(scratch, "image.tar")
	if err := tarball.WriteToFile(whole, tag, img); err != nil {
		return fmt.Errorf("write %s: %w", whole, err)
	}
	return os.Rename(whole, tarPath)
}

// build makes the image of a spec, for the platform that this program runs on.
// The image reads layerPath, which build writes, for as long as it is used.
func build(spec Spec, layerPath string) (v1.Image, error) {
	entries, err := contents(spec)
	if err != nil {
		return nil, err
	}
	if err := writeLayer(entries, layerPath); err != nil {
		return nil, fmt.Errorf("pack the layer: %w", err)
	}
	layer, err := tarball.LayerFromFile(layerPath,
		tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("compress the layer: %w", err)
	}
	base, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS:           "linux",
		Architecture: runtime.GOARCH,
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: spec.Entrypoint,
			Env:        spec.Env,
			WorkingDir: "/",
		},
	})
	if err != nil {
		return nil, fmt.Errorf("set the config: %w", err)
	}
	return mutate.AppendLayers(base, layer)
}
