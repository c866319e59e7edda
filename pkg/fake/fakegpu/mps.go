package fakegpu

import _ "embed"

// mpsControlScript is nvidia-cuda-mps-control as a shell script: it must run in
// any container that has a shell.
//
//go:embed mps-control.sh
var mpsControlScript string
