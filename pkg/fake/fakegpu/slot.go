package fakegpu

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
)

// identitySpace is the name space of the UUIDs of fake hardware.
var identitySpace = uuid.MustParse("6d1d9f4e-63bb-5a0e-9b6f-0a5d7c0f7a31")

// pciBuses are the bus numbers of the places where a GPU can be, in the order of
// PCI addresses. The even ones are those of an eight-GPU HGX baseboard.
var pciBuses = [MaxGPUs]uint32{
	0x1b, 0x2a, 0x43, 0x4a, 0x52, 0x58, 0x61, 0x6d,
	0x9d, 0xab, 0xc3, 0xca, 0xd1, 0xd8, 0xdf, 0xe7,
}

// pciRoots are the root complexes; each serves four neighbouring places. The
// first two belong to the first socket.
var pciRoots = [4]uint32{0x15, 0x50, 0x9a, 0xd0}

// slot is where in the machine a GPU is. All that a slot has follows from its
// number and the machine's size and never changes.
type slot struct {
	// number is also the GPU's minor number.
	number int
	// place is the index into pciBuses.
	place int
}

// slotAt gives the slot of a machine built with a number of bays (a power of two
// up to MaxGPUs). The bays are spread evenly over both sockets; slots beyond them
// take the places between, so a GPU that is added never moves another.
func slotAt(bays, number int) slot {
	stride := MaxGPUs / bays
	if number < bays {
		return slot{number: number, place: number * stride}
	}
	rest := number - bays
	for place := range MaxGPUs {
		if place%stride == 0 {
			continue
		}
		if rest == 0 {
			return slot{number: number, place: place}
		}
		rest--
	}
	return slot{number: number, place: MaxGPUs - 1}
}

// baysFor is the smallest machine that holds the number of GPUs.
func baysFor(gpus int) int {
	for _, bays := range []int{2, 4, 8} {
		if gpus <= bays {
			return bays
		}
	}
	return MaxGPUs
}

func (s slot) bus() uint32 { return pciBuses[s.place] }

// pciBusID is the address as sysfs writes it: "0000:1b:00.0".
func (s slot) pciBusID() string { return pciAddress(s.bus()) }

// pciAddress is the address of the only device on a bus of domain 0.
func pciAddress(bus uint32) string { return fmt.Sprintf("0000:%02x:00.0", bus) }

func (s slot) root() uint32 { return pciRoots[s.place/4] }

func (s slot) numaNode() int { return s.place / (MaxGPUs / 2) }

// gpuUUID is the UUID of the product in a slot of a node. Another card in the
// same slot is another GPU.
func gpuUUID(node string, number int, product string) string {
	return "GPU-" + uuid.NewSHA1(identitySpace, fmt.Appendf(nil, "gpu/%s/%d/%s", node, number, product)).String()
}

// gpuSerial is a 13-digit board serial number.
func gpuSerial(node string, number int, product string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "serial/%s/%d/%s", node, number, product))
	return fmt.Sprintf("16%011d", binary.BigEndian.Uint64(sum[:8])%100_000_000_000)
}

// migUUID is the UUID of the MIG device of a compute instance. As with the real
// driver, the same partition made again has the same UUID.
func migUUID(gpu string, gi gpuInstance, ci computeInstance) string {
	name := fmt.Appendf(nil, "mig/%s/%d/%d/%d/%d/%d", gpu, gi.ID, gi.Profile, gi.Placement.Start, ci.ID, ci.Profile)
	return "MIG-" + uuid.NewSHA1(identitySpace, name).String()
}
