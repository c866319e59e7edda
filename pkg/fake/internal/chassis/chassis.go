// Package chassis says where in a fake machine its GPUs are, and who they are: their
// addresses, UUIDs and serial numbers follow from the slot and the node's name.
package chassis

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"

	"apportion.dev/apportion/pkg/fake/fakeroot"
)

// Identities is the name space of the UUIDs of fake hardware.
var Identities = uuid.MustParse("6d1d9f4e-63bb-5a0e-9b6f-0a5d7c0f7a31")

// pciBuses are the bus numbers of the places where a GPU can be, in the order of
// PCI addresses. The even ones are those of an eight-GPU HGX baseboard.
var pciBuses = [fakeroot.MaxGPUs]uint32{
	0x1b, 0x2a, 0x43, 0x4a, 0x52, 0x58, 0x61, 0x6d,
	0x9d, 0xab, 0xc3, 0xca, 0xd1, 0xd8, 0xdf, 0xe7,
}

// pciRoots are the root complexes; each serves four neighbouring places. The
// first two belong to the first socket.
var pciRoots = [4]uint32{0x15, 0x50, 0x9a, 0xd0}

// Slot is where in the machine a GPU is. All that a slot has follows from its
// number and the machine's size and never changes.
type Slot struct {
	// Number is also the GPU's minor number.
	Number int
	// Place is the index into pciBuses.
	Place int
}

// At gives the slot of a machine built with a number of bays (a power of two
// up to fakeroot.MaxGPUs). The bays are spread evenly over both sockets; slots beyond them
// take the places between, so a GPU that is added never moves another.
func At(bays, number int) Slot {
	stride := fakeroot.MaxGPUs / bays
	if number < bays {
		return Slot{Number: number, Place: number * stride}
	}
	rest := number - bays
	for place := range fakeroot.MaxGPUs {
		if place%stride == 0 {
			continue
		}
		if rest == 0 {
			return Slot{Number: number, Place: place}
		}
		rest--
	}
	return Slot{Number: number, Place: fakeroot.MaxGPUs - 1}
}

// BaysFor is the smallest machine that holds the number of GPUs.
func BaysFor(gpus int) int {
	for _, bays := range []int{2, 4, 8} {
		if gpus <= bays {
			return bays
		}
	}
	return fakeroot.MaxGPUs
}

// Bus is the bus number of the GPU.
func (s Slot) Bus() uint32 { return pciBuses[s.Place] }

// PCIBusID is the address as sysfs writes it: "0000:1b:00.0".
func (s Slot) PCIBusID() string { return PCIAddress(s.Bus()) }

// PCIAddress is the address of the only device on a bus of domain 0.
func PCIAddress(bus uint32) string { return fmt.Sprintf("0000:%02x:00.0", bus) }

// Root is the bus number of the root complex.
func (s Slot) Root() uint32 { return pciRoots[s.Place/4] }

// NUMANode is the NUMA node of the socket.
func (s Slot) NUMANode() int { return s.Place / (fakeroot.MaxGPUs / 2) }

// GPUUUID is the UUID of the product in a slot of a node. Another card in the
// same slot is another GPU.
func GPUUUID(node string, number int, product string) string {
	return "GPU-" + uuid.NewSHA1(Identities, fmt.Appendf(nil, "gpu/%s/%d/%s", node, number, product)).String()
}

// Serial is a 13-digit board serial number.
func Serial(node string, number int, product string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "serial/%s/%d/%s", node, number, product))
	return fmt.Sprintf("16%011d", binary.BigEndian.Uint64(sum[:8])%100_000_000_000)
}
