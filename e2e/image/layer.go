package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// entry is one thing in the layer: its header, whose name is the absolute path, and
// for a file either its text or where its content is on disk.
type entry struct {
	header       tar.Header
	text, source string
}

// base is what every image has: names for root and nobody, so that programs which
// look themselves up find an answer, and a folder for temporary files.
func base() []entry {
	return []entry{
		textFile("/etc/passwd", "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"),
		textFile("/etc/group", "root:x:0:\nnobody:x:65534:\n"),
		folder("/tmp", 0o1777),
	}
}

func textFile(path, text string) entry {
	return entry{header: tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o644, Size: int64(len(text))}, text: text}
}

func folder(path string, mode int64) entry {
	return entry{header: tar.Header{Typeflag: tar.TypeDir, Name: path, Mode: mode}}
}

// contents lists all that the image of a spec holds, sorted by path, every
// parent folder included.
func contents(spec Spec) ([]entry, error) {
	files := slices.Clone(spec.Files)
	if spec.Libraries {
		var programs []string
		for _, file := range spec.Files {
			programs = append(programs, file.Source)
		}
		libraries, err := libraries(programs, spec.ExtraLibraries)
		if err != nil {
			return nil, err
		}
		files = append(files, libraries...)
	}
	found := map[string]entry{}
	add := func(e entry) error {
		p := e.header.Name
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
			return fmt.Errorf("path %q in the image: must be absolute, clean and not the root", p)
		}
		if before, ok := found[p]; ok && before.from() != e.from() {
			return fmt.Errorf("%s is in the image twice: from %s and from %s", p, before.from(), e.from())
		}
		found[p] = e
		return nil
	}
	for _, file := range files {
		e, err := file.entry()
		if err == nil {
			err = add(e)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, link := range spec.Links {
		e := entry{header: tar.Header{Typeflag: tar.TypeSymlink, Name: link.Path, Mode: 0o777, Linkname: link.Target}}
		if err := add(e); err != nil {
			return nil, err
		}
	}
	for _, e := range base() {
		if _, ok := found[e.header.Name]; !ok {
			found[e.header.Name] = e
		}
	}
	return withFolders(found)
}

// from is where an entry comes from, for messages.
func (e entry) from() string {
	if e.header.Typeflag == tar.TypeSymlink {
		return "a link to " + e.header.Linkname
	}
	return e.source
}

func (f File) entry() (entry, error) {
	info, err := os.Stat(f.Source)
	if err != nil {
		return entry{}, fmt.Errorf("content of %s: %w", f.Path, err)
	}
	if !info.Mode().IsRegular() {
		return entry{}, fmt.Errorf("content of %s: %s is not a regular file", f.Path, f.Source)
	}
	mode := f.Mode
	if mode == 0 {
		mode = int64(info.Mode().Perm())
	}
	return entry{header: tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: mode, Size: info.Size()}, source: f.Source}, nil
}

// withFolders adds the parent folders that are missing and sorts by path, so
// that a folder comes before what is in it.
func withFolders(found map[string]entry) ([]entry, error) {
	for _, p := range slices.Sorted(maps.Keys(found)) {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			if parent, ok := found[dir]; !ok {
				found[dir] = folder(dir, 0o755)
			} else if parent.header.Typeflag != tar.TypeDir {
				return nil, fmt.Errorf("%s is in the image, and %s below it too", dir, p)
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b entry) int { return strings.Compare(a.header.Name, b.header.Name) }), nil
}

// writeLayer writes the entries as a tar file.
func writeLayer(entries []entry, layerPath string) (err error) {
	file, err := os.Create(layerPath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	tw := tar.NewWriter(file)
	for _, e := range entries {
		if err := e.write(tw); err != nil {
			return fmt.Errorf("%s: %w", e.header.Name, err)
		}
	}
	return tw.Close()
}

// write adds the entry to the tar, owned by root and without a time.
func (e entry) write(tw *tar.Writer) error {
	header := e.header
	header.Name = strings.TrimPrefix(header.Name, "/")
	if header.Typeflag == tar.TypeDir {
		header.Name += "/"
	}
	header.ModTime = time.Unix(0, 0)
	if err := tw.WriteHeader(&header); err != nil {
		return err
	}
	if e.source == "" {
		_, err := io.WriteString(tw, e.text)
		return err
	}
	file, err := os.Open(e.source)
	if err != nil {
		return err
	}
	_, err = io.Copy(tw, file)
	return errors.Join(err, file.Close())
}
