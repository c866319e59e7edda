// Package fakegpu is NVIDIA hardware that does not exist: a machine with GPUs
// behind the same interfaces through which real ones are read.
//
// A [Machine] lives in a folder. The folder holds one JSON file with its state
// (which GPUs there are, their MIG partitions, load and faults) and a driver root
// (versioned libraries, device nodes, nvidia-smi, procfs and sysfs) as a driver
// installation leaves it. Every process that opens the folder sees the same
// machine; changes go under a lock and are seen whole.
//
// [Machine.NVML] implements go-nvml's nvml.Interface over that state: the calls
// of an inventory, of nvcdi and of an exporter, with MIG under the real placement
// rules. A call that is not implemented returns ERROR_NOT_SUPPORTED. Identities
// (UUIDs, serials, PCI addresses) follow from the node's name, so a machine made
// again is the same machine.
//
// Programs allocate memory of a GPU or a MIG device with an [Allocator], and keep it
// busy. What a cgroup may allocate can be limited through NVML from driver 615 on; limits
// follow the cgroup's folder, not its name, and memory and work end with the process
// that has them. Power, energy, utilization and what GPM measures follow from the load
// and the work of processes over time.
//
// Faults are methods: a lost GPU, a property that fails, an XID, another driver
// version, a GPU plugged in or pulled out, a MIG partition made by hand.
//
// The package knows NVML, the files of a driver installation and facts about GPU
// products. It knows nothing of Kubernetes, claims or who uses the machine.
package fakegpu
