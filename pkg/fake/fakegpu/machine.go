package fakegpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"apportion.dev/apportion/pkg/fake/fakeroot"
	"apportion.dev/apportion/pkg/fake/internal/chassis"
)

// DefaultDriverVersion is the driver of a machine whose Spec names none.
const DefaultDriverVersion = "580.95.05"

// Spec says what machine to make.
type Spec struct {
	// Node is the name from which all identities follow.
	Node string
	// DriverVersion is DefaultDriverVersion if empty; "none" makes a machine
	// without a driver.
	DriverVersion string
	// GPUs are the names of the products, one for each GPU, at most [MaxGPUs].
	GPUs []string
	// Library is the file that the machine's drivers have as libnvidia-ml, made from
	// pkg/fake/libnvidia-ml. If it is empty, theirs has no code and loads as no NVML.
	Library string
}

// Machine is a fake machine in a folder. It is safe for concurrent use, also by
// several processes.
type Machine struct {
	store   *store
	root    fakeroot.Root
	library *library

	// files are those of the driver root as this process last left it, of the
	// state with that generation. They are used while updating is held, besides the
	// store's lock, which keeps other processes out.
	updating   sync.Mutex
	files      fakeroot.Files
	generation uint64
}

func machineAt(dir string) (*Machine, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("the folder of the fake machine: %w", err)
	}
	m := &Machine{store: &store{dir: dir}, root: fakeroot.Root{Dir: filepath.Join(dir, "root")}}
	m.library = newLibrary(m)
	return m, nil
}

// Create makes a machine in the folder. One that is already there is kept as it
// is, whatever the spec says; only the library is replaced, and files missing from its
// driver root are put back.
func Create(dir string, spec Spec) (machine *Machine, err error) {
	st, err := spec.state()
	if err != nil {
		return nil, err
	}
	m, err := machineAt(dir)
	if err != nil {
		return nil, err
	}
	st.dir = m.store.dir
	if err := os.MkdirAll(m.store.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the fake machine: %w", err)
	}
	unlock, err := m.store.lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	existing, err := m.store.read()
	switch {
	case err == nil:
		st = existing
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if spec.Library != "" {
		if err := fakeroot.KeepLibrary(m.store.dir, spec.Library); err != nil {
			return nil, err
		}
	}
	if err := m.root.Put(st.rootFiles()); err != nil {
		return nil, err
	}
	if existing == nil {
		if err := m.store.write(st); err != nil {
			return nil, err
		}
	}
	if err := m.root.Prune(st.rootFiles()); err != nil {
		return nil, err
	}
	return m, nil
}

func (s Spec) state() (*state, error) {
	if s.Node == "" {
		return nil, inputErrorf("a fake machine needs the name of its node")
	}
	if len(s.GPUs) > MaxGPUs {
		return nil, inputErrorf("a fake machine has at most %d GPUs, not %d", MaxGPUs, len(s.GPUs))
	}
	version := s.DriverVersion
	if version == "" {
		version = DefaultDriverVersion
	}
	version, err := parseDriverVersion(version)
	if err != nil {
		return nil, err
	}
	st := &state{
		Format: stateFormat, Generation: 1, Node: s.Node, DriverVersion: version,
		CreatedSeconds: time.Now().Unix(), Bays: chassis.BaysFor(len(s.GPUs)), GPUs: []gpu{},
	}
	for i, name := range s.GPUs {
		if _, err := LookupProduct(name); err != nil {
			return nil, err
		}
		st.GPUs = append(st.GPUs, gpu{Slot: i, Product: name})
	}
	return st, nil
}

// Open opens the machine in the folder.
func Open(dir string) (*Machine, error) {
	m, err := machineAt(dir)
	if err != nil {
		return nil, err
	}
	if _, err := m.store.read(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("no fake machine in %s; make one with `apportion fake create`: %w", m.store.dir, fs.ErrNotExist)
		}
		return nil, err
	}
	return m, nil
}

// Dir is the machine's folder.
func (m *Machine) Dir() string { return m.store.dir }

// NVML is the machine's NVML library. As with the C library, there is one in a
// process and its initialisation is counted: each Init needs a Shutdown, and
// calls in between are answered from the machine as it then is.
func (m *Machine) NVML() nvml.Interface { return m.library }

// DriverRoot is the folder that looks like the root of a file system with an
// NVIDIA driver.
func (m *Machine) DriverRoot() string { return m.root.Dir }

// SysFS is the machine's sysfs, what a real one has under /sys.
func (m *Machine) SysFS() fs.ReadLinkFS {
	// os.DirFS documents that its result reads links.
	return os.DirFS(filepath.Join(m.root.Dir, "sys")).(fs.ReadLinkFS)
}

// noDriver is what users write for a machine without a driver.
const noDriver = "none"

var driverVersionPattern = regexp.MustCompile(`^[0-9]{3,4}(\.[0-9]{2,3}){1,2}$`)

// parseDriverVersion gives the version as the state holds it: empty for "none".
func parseDriverVersion(version string) (string, error) {
	if version == noDriver {
		return "", nil
	}
	if !driverVersionPattern.MatchString(version) {
		return "", inputErrorf("%q is no driver version; write it as in 580.95.05, or %q for no driver", version, noDriver)
	}
	return version, nil
}

// update changes the machine. Under the lock, what the new state adds to the
// driver root is put there first and what it drops is removed last, so whoever
// reads a state, old or new, finds its files. A change that returns an error
// changes nothing.
func (m *Machine) update(change func(*state) error) (err error) {
	m.updating.Lock()
	defer m.updating.Unlock()
	unlock, err := m.store.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	current, err := m.store.read()
	if err != nil {
		return err
	}
	next := current.clone()
	if err := change(next); err != nil {
		return err
	}
	next.Generation++
	if sameRoot(current, next) {
		if err := m.store.write(next); err != nil {
			return err
		}
		if m.generation == current.Generation {
			m.generation = next.Generation
		}
		return nil
	}
	before, after := m.files, next.rootFiles()
	if before == nil || m.generation != current.Generation {
		before = current.rootFiles()
	}
	m.files = nil
	if err := m.root.Put(after.ChangedFrom(before)); err != nil {
		return err
	}
	if err := m.store.write(next); err != nil {
		return err
	}
	if err := m.root.Remove(after.DroppedFrom(before)); err != nil {
		return err
	}
	m.files, m.generation = after, next.Generation
	return nil
}
