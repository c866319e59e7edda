package inventory

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// pciAddress is a PCI address with or without its domain. NVML writes the domain
// with eight digits (nvmlPciInfo_t.busId), sysfs with four.
var pciAddress = regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$`)

// NormalizePCIBusID returns a PCI address as "dddd:bb:dd.f" in lower case. It
// accepts any case, domains of four to eight digits ("00000000:07:00.0") and, as
// lspci prints it, none ("07:00.0", which is domain 0). A domain above ffff
// keeps the digits that it needs, as in sysfs.
func NormalizePCIBusID(address string) (string, error) {
	parts := pciAddress.FindStringSubmatch(strings.ToLower(strings.TrimSpace(address)))
	if parts == nil {
		return "", fmt.Errorf("%q is no PCI address of the form dddd:bb:dd.f", address)
	}
	var domain uint64
	if parts[1] != "" {
		var err error
		if domain, err = strconv.ParseUint(parts[1], 16, 32); err != nil {
			return "", fmt.Errorf("PCI domain of %q: %w", address, err)
		}
	}
	return fmt.Sprintf("%04x:%s:%s.%s", domain, parts[2], parts[3], parts[4]), nil
}
