package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/gpu/inventory"
)

// printInventory prints what a node would publish for people.
func printInventory(out io.Writer, nodeName string, node inventory.Node, model *devicemodel.Model) error {
	if _, err := fmt.Fprintf(out, "Node %s, driver %s, CUDA %s\n", nodeName,
		orDash(node.DriverVersion.Raw), orDash(node.CUDADriverVersion.Raw)); err != nil {
		return err
	}
	gpus := map[string]inventory.GPU{}
	for _, gpu := range node.GPUs {
		gpus[gpu.UUID] = gpu
	}
	rows := [][]string{{"DEVICE", "PRODUCT", "UUID", "PCI ADDRESS", "NUMA", "MEMORY", "MIG", "NVLINK", "PARTITIONS", "STATE"}}
	for _, d := range model.Devices {
		if d.Partition != nil && d.MIGDevice == "" {
			continue // Their number stands at the GPU.
		}
		gpu := gpus[d.GPUUUID]
		rows = append(rows, []string{
			d.API.Name, orDash(gpu.ProductName), d.GPUUUID, orDash(d.PCIBusID), number(gpu.NUMANode),
			memory(d.MemoryBytes), migState(gpu.MIG), orDash(nvlinkDomain(d)), partitions(model, d), cmp.Or(d.Problem, "ok"),
		})
	}
	if len(rows) == 1 {
		fmt.Fprintln(out, "No devices")
	} else if err := printTable(out, rows); err != nil {
		return err
	}
	for _, s := range model.Skipped {
		if _, err := fmt.Fprintf(out, "Not published: GPU %s: %s\n", cmp.Or(s.UUID, orDash(s.PCIBusID)), s.Reason); err != nil {
			return err
		}
	}
	return nil
}

// partitions is how many partitions can be made of a GPU, or that the device is one
// which somebody made.
func partitions(model *devicemodel.Model, d devicemodel.Device) string {
	if d.MIGDevice != "" {
		return "made by hand"
	}
	n := 0
	for _, other := range model.DevicesOf(d.GPUUUID) {
		if other.Partition != nil && other.MIGDevice == "" {
			n++
		}
	}
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%d possible", n)
}

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

func memory(bytes int64) string {
	if bytes <= 0 {
		return "unknown"
	}
	return mib(uint64(bytes))
}

// migState is "no" for a GPU without MIG, else its mode.
func migState(m inventory.MIG) string {
	switch {
	case m.Capable == nil:
		return "unknown"
	case !*m.Capable:
		return "no"
	case m.Enabled != nil && *m.Enabled:
		return "on"
	}
	return "off"
}

func nvlinkDomain(d devicemodel.Device) string {
	value := d.API.Attributes[devicemodel.AttributeNVLinkDomain]
	switch {
	case value.StringValue != nil:
		return *value.StringValue
	case value.IntValue != nil:
		return strconv.FormatInt(*value.IntValue, 10)
	}
	return ""
}
