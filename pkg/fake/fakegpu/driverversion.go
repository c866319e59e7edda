package fakegpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

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

// cudaVersions are the CUDA versions that came with the driver branches, as
// nvmlSystemGetCudaDriverVersion encodes them: 1000*major + 10*minor.
var cudaVersions = []struct{ branch, cuda int }{
	{615, 13040}, {610, 13030}, {595, 13020}, {590, 13010}, {580, 13000},
	{575, 12090}, {570, 12080}, {565, 12070}, {560, 12060}, {555, 12050}, {550, 12040},
	{545, 12030}, {535, 12020}, {530, 12010}, {525, 12000},
	{520, 11080}, {515, 11070}, {510, 11060}, {495, 11050}, {470, 11040}, {465, 11030}, {460, 11020},
	{450, 11000},
}

// cudaVersion is the CUDA version of a driver version.
func cudaVersion(driver string) int {
	branch, err := strconv.Atoi(strings.SplitN(driver, ".", 2)[0])
	if err != nil {
		return 0
	}
	for _, v := range cudaVersions {
		if branch >= v.branch {
			return v.cuda
		}
	}
	return 10020
}

// nvmlVersion is the version of the NVML library of a driver: its first number is
// NVML's own.
func nvmlVersion(driver string) string {
	return fmt.Sprintf("%d.%s", cudaVersion(driver)/1000, driver)
}
