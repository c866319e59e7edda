package image

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// libraries finds what the dynamic ELF files among programs need to start: the
// loader each names (PT_INTERP), the libraries each names (DT_NEEDED) and, in
// turn, those that these name. Files that are not ELF, or are static, need
// nothing. extra are sonames that are needed besides, if any program is
// dynamic. The result is sorted by path.
func libraries(programs, extra []string) ([]File, error) {
	search := newSearch(defaultFolders(), "/etc/ld.so.conf")
	seen := map[string]bool{}
	for _, program := range programs {
		object, err := readObject(program)
		if err != nil {
			return nil, err
		}
		if object == nil || object.interpreter == "" {
			continue
		}
		object.needed = append(object.needed, extra...)
		search.add(File{Path: object.interpreter, Source: object.interpreter})
		if err := search.resolve(object, seen); err != nil {
			return nil, err
		}
	}
	list := make([]File, 0, len(search.found))
	for _, file := range search.found {
		list = append(list, file)
	}
	slices.SortFunc(list, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// object is what an ELF file says about the libraries it needs.
type object struct {
	path        string
	class       elf.Class
	machine     elf.Machine
	interpreter string
	needed      []string
	// runpath are the folders that the file itself names, before all others.
	runpath []string
}

// readObject reads an ELF file; nil for a file that is not ELF.
func readObject(path string) (*object, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the libraries it needs: %w", err)
	}
	defer func() { _ = file.Close() }()
	magic := make([]byte, len(elf.ELFMAG))
	if n, _ := file.ReadAt(magic, 0); n < len(magic) || string(magic) != elf.ELFMAG {
		return nil, nil
	}
	binary, err := elf.NewFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s as ELF: %w", path, err)
	}
	result := &object{path: path, class: binary.Class, machine: binary.Machine}
	for _, segment := range binary.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, segment.Filesz)
		if _, err := segment.ReadAt(text, 0); err != nil {
			return nil, fmt.Errorf("read the loader's name in %s: %w", path, err)
		}
		result.interpreter = string(bytes.TrimRight(text, "\x00"))
	}
	if result.needed, err = binary.DynString(elf.DT_NEEDED); err != nil {
		return nil, fmt.Errorf("read the libraries that %s needs: %w", path, err)
	}
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		values, err := binary.DynString(tag)
		if err != nil {
			return nil, fmt.Errorf("read the library folders that %s names: %w", path, err)
		}
		for _, value := range values {
			origin := strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path))
			result.runpath = append(result.runpath, filepath.SplitList(origin.Replace(value))...)
		}
	}
	return result, nil
}

// defaultFolders are those in which the loader looks without any
// configuration. Debian's loader was built with its multiarch folders, those of
// Fedora and its relatives with lib64; a folder that is not there does no harm.
func defaultFolders() []string {
	var folders []string
	for _, pattern := range []string{"/lib/*-linux-gnu*", "/usr/lib/*-linux-gnu*", "/lib64", "/usr/lib64", "/lib", "/usr/lib"} {
		// Only a malformed pattern is an error.
		matches, _ := filepath.Glob(pattern)
		folders = append(folders, matches...)
	}
	return folders
}

// search finds libraries on this machine.
type search struct {
	defaults, configured []string
	// found has each file of the result, by its path in the image.
	found map[string]File
}

func newSearch(defaults []string, config string) *search {
	return &search{defaults: defaults, configured: configured(config, 0), found: map[string]File{}}
}

func (s *search) add(file File) { s.found[file.Path] = file }

// resolve adds the libraries that an object needs, and those that they need.
func (s *search) resolve(needs *object, seen map[string]bool) error {
	for _, soname := range needs.needed {
		if seen[soname] {
			continue
		}
		seen[soname] = true
		file, err := s.locate(soname, needs)
		if err != nil {
			return err
		}
		s.add(file)
		library, err := readObject(file.Source)
		if err != nil {
			return err
		}
		if err := s.resolve(library, seen); err != nil {
			return err
		}
	}
	return nil
}

// locate finds one library for an object. One that lies where only this
// machine's ld.so.conf leads is put into /lib, where every loader looks.
func (s *search) locate(soname string, needs *object) (File, error) {
	if filepath.IsAbs(soname) {
		return File{Path: soname, Source: soname}, nil
	}
	for _, folder := range slices.Concat(needs.runpath, s.defaults) {
		if path := filepath.Join(folder, soname); fits(path, needs) {
			return File{Path: path, Source: path}, nil
		}
	}
	for _, folder := range s.configured {
		if path := filepath.Join(folder, soname); fits(path, needs) {
			return File{Path: filepath.Join("/lib", soname), Source: path}, nil
		}
	}
	return File{}, fmt.Errorf("%s needs %s, which is in none of the library folders %s; install the package that has it",
		needs.path, soname, strings.Join(slices.Concat(needs.runpath, s.defaults, s.configured), ", "))
}

// fits says whether the file is a library that the object can load: one of the
// same machine and word size.
func fits(path string, needs *object) bool {
	library, err := readObject(path)
	return err == nil && library != nil && library.class == needs.class && library.machine == needs.machine
}

// maxIncludes bounds how deep ld.so.conf files may include each other.
const maxIncludes = 8

// configured reads the folders that an ld.so.conf file lists, with the files
// that it includes. What cannot be read adds nothing, as for the loader.
func configured(config string, depth int) []string {
	data, err := os.ReadFile(config)
	if err != nil || depth > maxIncludes {
		return nil
	}
	var folders []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "include":
			for _, pattern := range fields[1:] {
				if !filepath.IsAbs(pattern) {
					pattern = filepath.Join(filepath.Dir(config), pattern)
				}
				// Only a malformed pattern is an error, and it matches nothing.
				matches, _ := filepath.Glob(pattern)
				for _, match := range matches {
					folders = append(folders, configured(match, depth+1)...)
				}
			}
		default:
			folders = append(folders, fields...)
		}
	}
	return folders
}
