package image

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// libraries finds what the dynamic ELF files among programs need to start on this
// machine, the loader included, as the loader itself does (ldd). Files that are not
// ELF, or are static, need nothing. extra are sonames of the C library's own parts
// that are needed besides, if any program is dynamic. The result is sorted by path.
//
// A library that the loader finds by its cache or by the program's run path is put
// beside the C library, where the loader looks without either.
func libraries(programs, extra []string) ([]File, error) {
	found := map[string]File{}
	for _, program := range programs {
		dynamic, err := isDynamic(program)
		if err != nil {
			return nil, err
		}
		if !dynamic {
			continue
		}
		// LC_ALL keeps "not found" untranslated.
		cmd := exec.Command("ldd", program)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		output, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("list the libraries that %s needs: %w: %s", program, err, bytes.TrimSpace(output))
		}
		files, err := listed(string(output), extra)
		if err != nil {
			return nil, fmt.Errorf("%s needs %w", program, err)
		}
		for _, file := range files {
			found[file.Path] = file
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b File) int { return strings.Compare(a.Path, b.Path) }), nil
}

// isDynamic says whether a file is an ELF file that names libraries.
func isDynamic(path string) (bool, error) {
	file, err := elf.Open(path)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the libraries it needs: %w", err)
	}
	needed, err := file.ImportedLibraries()
	if err = errors.Join(err, file.Close()); err != nil {
		return false, fmt.Errorf("read the libraries that %s needs: %w", path, err)
	}
	return len(needed) > 0, nil
}

// listed reads what ldd printed of one program: lines "libc.so.6 => /lib64/libc.so.6
// (0x7f...)", and without an arrow the kernel's own library and those with a path, such
// as the loader.
func listed(output string, extra []string) ([]File, error) {
	const cLibrary = "libc.so.6"
	found := map[string]string{}
	var files []File
	for lines := bufio.NewScanner(strings.NewReader(output)); lines.Scan(); {
		name, source, arrow := strings.Cut(strings.TrimSpace(lines.Text()), " => ")
		if !arrow {
			source = name
		}
		source, _, _ = strings.Cut(source, " (")
		switch {
		case source == "not found":
			return nil, fmt.Errorf("%s, which is in none of the loader's folders; install the package that has it", name)
		case arrow:
			found[name] = source
		case filepath.IsAbs(source):
			files = append(files, File{Path: source, Source: source})
		}
	}
	folder := filepath.Dir(found[cLibrary])
	if found[cLibrary] == "" {
		return nil, fmt.Errorf("%s, which ldd does not list; build on a machine with glibc", cLibrary)
	}
	for _, name := range extra {
		if found[name] == "" {
			found[name] = filepath.Join(folder, name)
		}
	}
	for name, source := range found {
		files = append(files, File{Path: filepath.Join(folder, name), Source: source})
	}
	return files, nil
}
