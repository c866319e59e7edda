package inventory

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseVersion reads a version as the driver writes it: "580.95.05", "13.0". One
// to three numbers have a reading as semantic version; missing ones are 0 and
// leading zeros go, as semver.org 2.0.0 has neither. A version without such a reading
// has only its Raw form.
func ParseVersion(raw string) Version {
	raw = strings.TrimSpace(raw)
	v := Version{Raw: raw}
	parts := strings.Split(raw, ".")
	if len(parts) > 3 {
		return v
	}
	var numbers [3]uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 63)
		if err != nil {
			return v
		}
		numbers[i] = n
	}
	v.Semver = fmt.Sprintf("%d.%d.%d", numbers[0], numbers[1], numbers[2])
	return v
}

// cudaVersion reads NVML's CUDA version, 1000*major + 10*minor.
func cudaVersion(v int) Version {
	if v <= 0 {
		return Version{}
	}
	return ParseVersion(fmt.Sprintf("%d.%d", v/1000, v%1000/10))
}

func computeCapability(major, minor int) Version {
	if major <= 0 || minor < 0 {
		return Version{}
	}
	return ParseVersion(fmt.Sprintf("%d.%d", major, minor))
}
