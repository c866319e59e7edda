package dcgm

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"apportion.dev/apportion/internal/atomicfile"
	"apportion.dev/apportion/pkg/ownership"
)

// manifestName is the file that lists the names of the files which are ours. It is
// written before a file is made and after it is removed, so that a crash leaves none
// of ours unlisted. dcgm-exporter passes it over, as its name is not a number.
const manifestName = ".apportion"

// The exporter may run as another user, and what it reads it shows to all.
const (
	fileMode   = 0o644
	folderMode = 0o755
)

var (
	deviceFile = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)
	unfinished = regexp.MustCompile(`^\.([0-9]+(\.[0-9]+)?|\` + manifestName + `)\.tmp-`)
)

// Writer keeps the files of one folder, and touches no others in it.
type Writer struct {
	dir string

	mu sync.Mutex
	// made are the names of the files that are ours, nil until they are read.
	made map[string]bool
}

// New returns the writer of a folder, which the first Write makes if need be. One
// process writes to a folder at a time.
func New(dir string) *Writer { return &Writer{dir: dir} }

// Write makes the files say who the owners are, and removes its files of devices that
// nobody holds. index gives the NVML index of the GPU with a UUID. Nothing happens to
// files that are right already. A file that cannot be written is removed: no owner is
// better than a wrong one. The error joins what went wrong with each file; the other
// files are right. It can be called from several goroutines.
func (w *Writer) Write(owners []ownership.Owner, index func(uuid string) (int, bool)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.open(); err != nil {
		return fmt.Errorf("job mapping for dcgm-exporter: %w", err)
	}
	files, errs := contents(owners, index)
	errs = append(errs, w.claim(files)...)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.put(name, files[name]); err != nil {
			errs = append(errs, err)
			delete(files, name)
		}
	}
	errs = append(errs, w.removeAllBut(files)...)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("job mapping for dcgm-exporter: %w", err)
	}
	return nil
}

// open makes the folder, reads which of its files are ours and removes what a killed
// writer left unfinished.
func (w *Writer) open() error {
	if err := os.MkdirAll(w.dir, folderMode); err != nil {
		return err
	}
	if w.made != nil {
		return nil
	}
	data, err := os.ReadFile(w.path(manifestName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if unfinished.MatchString(entry.Name()) {
			if err := os.Remove(w.path(entry.Name())); err != nil {
				return err
			}
		}
	}
	w.made = map[string]bool{}
	for name := range strings.FieldsSeq(string(data)) {
		if deviceFile.MatchString(name) {
			w.made[name] = true
		}
	}
	return nil
}

// claim lists the names as ours before the files are made. It takes those from files
// that are there and were made by somebody else.
func (w *Writer) claim(files map[string]string) []error {
	var errs []error
	made := maps.Clone(w.made)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if made[name] {
			continue
		}
		switch _, err := os.Lstat(w.path(name)); {
		case errors.Is(err, fs.ErrNotExist):
			made[name] = true
			continue
		case err != nil:
			errs = append(errs, err)
		default:
			errs = append(errs, fmt.Errorf("%s was made by somebody else: remove it, or choose another folder", w.path(name)))
		}
		delete(files, name)
	}
	if err := w.list(made); err != nil {
		maps.DeleteFunc(files, func(name, _ string) bool { return !w.made[name] })
		errs = append(errs, err)
	}
	return errs
}

func (w *Writer) put(name, content string) error {
	old, err := os.ReadFile(w.path(name))
	if err == nil && string(old) == content {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.WriteVolatile(w.path(name), []byte(content), fileMode)
}

// removeAllBut removes our files other than those given.
func (w *Writer) removeAllBut(files map[string]string) []error {
	var errs []error
	made := maps.Clone(w.made)
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if _, wanted := files[name]; wanted {
			continue
		}
		if err := os.Remove(w.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		delete(made, name)
	}
	if err := w.list(made); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// list makes the manifest say which files are ours.
func (w *Writer) list(made map[string]bool) error {
	if maps.Equal(made, w.made) {
		return nil
	}
	names := slices.Sorted(maps.Keys(made))
	if err := atomicfile.Write(w.path(manifestName), []byte(strings.Join(names, "\n")+"\n"), fileMode); err != nil {
		return err
	}
	w.made = made
	return nil
}

func (w *Writer) path(name string) string { return filepath.Join(w.dir, name) }
