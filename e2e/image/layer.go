package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// base is what every image has: names for root and nobody, so that programs
// which look themselves up find an answer, and a folder for temporary files.
var base = []entry{
	{path: "/etc/passwd", mode: 0o644, text: "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"},
	{path: "/etc/group", mode: 0o644, text: "root:x:0:\nnobody:x:65534:\n"},
	{path: "/tmp", mode: 0o1777, folder: true},
}

// entry is one thing in the layer: a folder, a link, a file with the text
// given here, or a file with the content of source.
type entry struct {
	path   string
	mode   int64
	folder bool
	link   string
	text   string
	source string
}

// contents lists all that the image of a spec holds, sorted by path, every
// parent folder included.
func contents(spec Spec) ([]entry, error) {
	files := slices.Clone(spec.Files)
	if spec.Libraries {
		libraries, err := libraries(sources(spec.Files), spec.ExtraLibraries)
		if err != nil {
			return nil, err
		}
		files = append(files, libraries...)
	}

	found := map[string]entry{}
	for _, e := range base {
		found[e.path] = e
	}
	own := map[string]bool{}
	for _, file := range files {
		e, err := fileEntry(file)
		if err != nil {
			return nil, err
		}
		if own[e.path] && found[e.path].source != e.source {
			return nil, fmt.Errorf("%s is in the image twice: from %s and from %s", e.path, found[e.path].source, e.source)
		}
		found[e.path], own[e.path] = e, true
	}
	for _, link := range spec.Links {
		if err := checkPath(link.Path); err != nil {
			return nil, err
		}
		if own[link.Path] {
			return nil, fmt.Errorf("%s is in the image twice: as a file or link, and as a link to %s", link.Path, link.Target)
		}
		found[link.Path], own[link.Path] = entry{path: link.Path, mode: 0o777, link: link.Target}, true
	}
	return withFolders(found)
}

func sources(files []File) []string {
	var list []string
	for _, file := range files {
		list = append(list, file.Source)
	}
	return list
}

func fileEntry(file File) (entry, error) {
	if err := checkPath(file.Path); err != nil {
		return entry{}, err
	}
	info, err := os.Stat(file.Source)
	if err != nil {
		return entry{}, fmt.Errorf("content of %s: %w", file.Path, err)
	}
	if !info.Mode().IsRegular() {
		return entry{}, fmt.Errorf("content of %s: %s is not a regular file", file.Path, file.Source)
	}
	mode := file.Mode
	if mode == 0 {
		mode = int64(info.Mode().Perm())
	}
	return entry{path: file.Path, mode: mode, source: file.Source}, nil
}

func checkPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
		return fmt.Errorf("path %q in the image: must be absolute, clean and not the root", p)
	}
	return nil
}

// withFolders adds the parent folders that are missing and sorts by path, so
// that a folder comes before what is in it.
func withFolders(found map[string]entry) ([]entry, error) {
	folders := map[string]entry{}
	for p := range found {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			if parent, ok := found[dir]; ok && !parent.folder {
				return nil, fmt.Errorf("%s is in the image, and %s below it too", dir, p)
			} else if !ok {
				folders[dir] = entry{path: dir, mode: 0o755, folder: true}
			}
		}
	}
	list := make([]entry, 0, len(found)+len(folders))
	for _, e := range found {
		list = append(list, e)
	}
	for _, e := range folders {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return list, nil
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
			return fmt.Errorf("%s: %w", e.path, err)
		}
	}
	return tw.Close()
}

// write adds the entry to the tar, owned by root and without a time.
func (e entry) write(tw *tar.Writer) error {
	header := tar.Header{
		Name:    strings.TrimPrefix(e.path, "/"),
		Mode:    e.mode,
		ModTime: time.Unix(0, 0),
	}
	switch {
	case e.folder:
		header.Typeflag = tar.TypeDir
		header.Name += "/"
	case e.link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
	case e.source != "":
		return copyFile(tw, header, e.source)
	default:
		header.Typeflag, header.Size = tar.TypeReg, int64(len(e.text))
	}
	if err := tw.WriteHeader(&header); err != nil {
		return err
	}
	_, err := io.WriteString(tw, e.text)
	return err
}

func copyFile(tw *tar.Writer, header tar.Header, source string) (err error) {
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := tw.WriteHeader(&header); err != nil {
		return err
	}
	_, err = io.Copy(tw, file)
	return err
}
