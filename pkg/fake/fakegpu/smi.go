package fakegpu

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// smiTemplate is nvidia-smi as a shell script: it must run in any container that
// has a shell.
//
//go:embed smi.sh
var smiTemplate string

// smiScript is the machine's nvidia-smi.
func smiScript(st *state) string {
	cuda := cudaVersion(st.DriverVersion)
	return strings.NewReplacer(
		"@DRIVER@", st.DriverVersion,
		"@CUDA@", fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10),
		"@DEVICES@\n", smiLines(st),
	).Replace(smiTemplate)
}

// TimeSlice is the time slice that was set for a GPU with nvidia-smi
// compute-policy, as a number: 0 (the default), 1 (short), 2 (medium) or 3 (long).
func (m *Machine) TimeSlice(uuid string) (string, error) {
	data, err := os.ReadFile(filepath.Join(m.store.dir, "timeslices", filepath.Base(uuid)))
	if errors.Is(err, fs.ErrNotExist) {
		return "0", nil
	}
	if err != nil {
		return "", fmt.Errorf("the time slice of GPU %s: %w", uuid, err)
	}
	return strings.TrimSpace(string(data)), nil
}
