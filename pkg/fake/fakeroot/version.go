package fakeroot

import (
	"fmt"
	"strconv"
	"strings"
)

// cudaVersions are the CUDA versions that came with the driver branches, as
// nvmlSystemGetCudaDriverVersion encodes them: 1000*major + 10*minor.
var cudaVersions = []struct{ branch, cuda int }{
	{615, 13040}, {610, 13030}, {595, 13020}, {590, 13010}, {580, 13000},
	{575, 12090}, {570, 12080}, {565, 12070}, {560, 12060}, {555, 12050}, {550, 12040},
	{545, 12030}, {535, 12020}, {530, 12010}, {525, 12000},
	{520, 11080}, {515, 11070}, {510, 11060}, {495, 11050}, {470, 11040}, {465, 11030}, {460, 11020},
	{450, 11000},
}

// CUDAVersion is the CUDA version of a driver version, 1000*major + 10*minor; 0 without
// a driver.
func CUDAVersion(driver string) int {
	branch := Branch(driver)
	if branch == 0 {
		return 0
	}
	for _, v := range cudaVersions {
		if branch >= v.branch {
			return v.cuda
		}
	}
	return 10020
}

// NVMLVersion is the version of the NVML library of a driver: its first number is
// NVML's own.
func NVMLVersion(driver string) string {
	return fmt.Sprintf("%d.%s", CUDAVersion(driver)/1000, driver)
}

// Branch is the first number of a driver's version, 0 without a driver.
func Branch(version string) int {
	number, _, _ := strings.Cut(version, ".")
	branch, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	return branch
}
