package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// seen is one thing found in an image when it is read back.
type seen struct {
	Type    byte
	Mode    int64
	Content string
	Link    string
}

func writeFile(t *testing.T, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func readImage(t *testing.T, tarPath, imageName string) v1.Image {
	t.Helper()
	tag, err := name.NewTag(imageName)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(tarPath, &tag)
	if err != nil {
		t.Fatalf("read the image back: %v", err)
	}
	return img
}

func readContents(t *testing.T, img v1.Image) (map[string]seen, []string) {
	t.Helper()
	flat := mutate.Extract(img)
	defer func() { _ = flat.Close() }()
	found, order := map[string]seen{}, []string{}
	for reader := tar.NewReader(flat); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found, order
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(time.Unix(0, 0)) || header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s: time %v, owner %d:%d; want the epoch and root", header.Name, header.ModTime, header.Uid, header.Gid)
		}
		path := "/" + strings.Trim(header.Name, "/")
		found[path] = seen{Type: header.Typeflag, Mode: header.Mode, Content: string(content), Link: header.Linkname}
		order = append(order, path)
	}
}

func TestWriteAndReadBack(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "tool"), "#!tool", 0o755)
	conf := writeFile(t, filepath.Join(dir, "conf"), "a=b\n", 0o600)
	alias := filepath.Join(dir, "alias")
	if err := os.Symlink("tool", alias); err != nil {
		t.Fatal(err)
	}
	tarPath := filepath.Join(dir, "image.tar")
	err := Write(Spec{
		Name: "apportion.dev/test:dev",
		Files: []File{
			{Path: "/usr/bin/tool", Source: alias},
			{Path: "/etc/tool/conf", Source: conf, Mode: 0o644},
		},
		Links:      []Link{{Path: "/bin/sh", Target: "/usr/bin/tool"}},
		Entrypoint: []string{"/usr/bin/tool", "-x"},
		Env:        []string{"B=2", "A=1"},
	}, tarPath)
	if err != nil {
		t.Fatal(err)
	}

	img := readImage(t, tarPath, "apportion.dev/test:dev")
	found, order := readContents(t, img)
	want := map[string]seen{
		"/bin":           {Type: tar.TypeDir, Mode: 0o755},
		"/bin/sh":        {Type: tar.TypeSymlink, Mode: 0o777, Link: "/usr/bin/tool"},
		"/etc":           {Type: tar.TypeDir, Mode: 0o755},
		"/etc/group":     {Type: tar.TypeReg, Mode: 0o644, Content: "root:x:0:\nnobody:x:65534:\n"},
		"/etc/passwd":    {Type: tar.TypeReg, Mode: 0o644, Content: "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"},
		"/etc/tool":      {Type: tar.TypeDir, Mode: 0o755},
		"/etc/tool/conf": {Type: tar.TypeReg, Mode: 0o644, Content: "a=b\n"},
		"/tmp":           {Type: tar.TypeDir, Mode: 0o1777},
		"/usr":           {Type: tar.TypeDir, Mode: 0o755},
		"/usr/bin":       {Type: tar.TypeDir, Mode: 0o755},
		"/usr/bin/tool":  {Type: tar.TypeReg, Mode: 0o755, Content: "#!tool"},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if !slices.IsSorted(order) {
		t.Errorf("the layer is not sorted: %v", order)
	}

	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("platform %s/%s, want linux/%s", config.OS, config.Architecture, runtime.GOARCH)
	}
	if diff := cmp.Diff([]string{"/usr/bin/tool", "-x"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entry point (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"B=2", "A=1"}, config.Config.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".image-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("scratch folders left behind: %v, %v", left, err)
	}
}

// TestDigestDependsOnContentOnly makes one image twice, from files with other
// names, times and order.
func TestDigestDependsOnContentOnly(t *testing.T) {
	digest := func(first, second string, mtime time.Time, swap bool) string {
		dir := t.TempDir()
		files := []File{
			{Path: "/a", Source: writeFile(t, filepath.Join(dir, first), "one", 0o755)},
			{Path: "/b", Source: writeFile(t, filepath.Join(dir, second), "two", 0o755)},
		}
		for _, file := range files {
			if err := os.Chtimes(file.Source, mtime, mtime); err != nil {
				t.Fatal(err)
			}
		}
		if swap {
			slices.Reverse(files)
		}
		tarPath := filepath.Join(dir, "image.tar")
		if err := Write(Spec{Name: "apportion.dev/test:dev", Files: files}, tarPath); err != nil {
			t.Fatal(err)
		}
		hash, err := readImage(t, tarPath, "apportion.dev/test:dev").Digest()
		if err != nil {
			t.Fatal(err)
		}
		return hash.String()
	}
	first := digest("x", "y", time.Unix(1700000000, 0), false)
	second := digest("other", "names", time.Unix(1800000000, 0), true)
	if first != second {
		t.Errorf("digests differ: %s and %s", first, second)
	}
}

func TestWriteRejects(t *testing.T) {
	dir := t.TempDir()
	one := writeFile(t, filepath.Join(dir, "one"), "1", 0o644)
	two := writeFile(t, filepath.Join(dir, "two"), "2", 0o644)
	const imageName = "apportion.dev/test:dev"
	for _, test := range []struct {
		name string
		spec Spec
		want string
	}{
		{"bad name", Spec{Name: "Not A Name"}, "Not A Name"},
		{"relative path", Spec{Name: imageName, Files: []File{{Path: "usr/bin/x", Source: one}}}, `"usr/bin/x"`},
		{"path that climbs", Spec{Name: imageName, Files: []File{{Path: "/usr/../x", Source: one}}}, `"/usr/../x"`},
		{"no such file", Spec{Name: imageName, Files: []File{{Path: "/x", Source: dir + "/none"}}}, "/none"},
		{"a folder as file", Spec{Name: imageName, Files: []File{{Path: "/x", Source: dir}}}, "not a regular file"},
		{"one path twice", Spec{Name: imageName, Files: []File{{Path: "/x", Source: one}, {Path: "/x", Source: two}}}, "/x is in the image twice"},
		{"a file as folder", Spec{Name: imageName, Files: []File{{Path: "/x", Source: one}, {Path: "/x/y", Source: two}}}, "/x is in the image, and /x/y below it"},
		{"a link over a file", Spec{Name: imageName, Files: []File{{Path: "/x", Source: one}}, Links: []Link{{Path: "/x", Target: "y"}}}, "/x is in the image twice"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tarPath := filepath.Join(t.TempDir(), "image.tar")
			err := Write(test.spec, tarPath)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if _, err := os.Stat(tarPath); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is there after an error (%v)", tarPath, err)
			}
		})
	}
}
