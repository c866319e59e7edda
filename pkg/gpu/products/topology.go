package products

// Topology says what is at the other end of a product's NVLink connections.
type Topology string

const (
	// TopologyNone is for products without NVLink.
	TopologyNone Topology = "none"
	// TopologyBridge links the GPUs of places 2n and 2n+1 where both hold the same
	// product.
	TopologyBridge Topology = "bridge"
	// TopologyMesh links GPUs with each other as the hybrid cube mesh of V100 servers
	// does: the four of places 4n to 4n+3 all with each other, and each with one of the
	// neighbouring four.
	TopologyMesh Topology = "mesh"
	// TopologySwitch links all GPUs through NVSwitches.
	TopologySwitch Topology = "switch"
)

// Topologies are all of them.
var Topologies = []Topology{TopologyNone, TopologyBridge, TopologyMesh, TopologySwitch}

// Linked says whether the GPUs of two places of a machine are linked directly. Places
// are counted from 0 in the order of PCI addresses.
func (t Topology) Linked(a, b int) bool {
	if a == b {
		return false
	}
	switch t {
	case TopologyBridge:
		return a^1 == b
	case TopologyMesh:
		return a/4 == b/4 || a^4 == b
	}
	return false
}
