package fakegpu

import (
	_ "embed"
	"fmt"
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
