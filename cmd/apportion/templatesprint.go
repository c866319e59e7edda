package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"apportion.dev/apportion/pkg/plan/catalog"
)

// listedType is an instance type as the list shows it.
type listedType struct {
	Cloud       string `json:"cloud"`
	Name        string `json:"name"`
	Arch        string `json:"arch"`
	Product     string `json:"product"`
	ProductName string `json:"productName"`
	GPUs        int    `json:"gpus"`
	// MemoryMiB is that of one GPU.
	MemoryMiB uint64 `json:"memoryMiB"`
}

// list prints the known instance types.
func (o *templatesOptions) list(cmd *cobra.Command, types []catalog.InstanceType) error {
	listed := make([]listedType, 0, len(types))
	for _, t := range types {
		listed = append(listed, listedType{
			Cloud: t.Cloud, Name: t.Name, Arch: t.Arch, Product: t.Product.Name, ProductName: t.Product.ProductName,
			GPUs: t.GPUs, MemoryMiB: t.Product.Memory.TotalMiB,
		})
	}
	if o.output.value != "table" {
		return printObject(cmd.OutOrStdout(), o.output.value, listed)
	}
	rows := [][]string{{"CLOUD", "INSTANCE TYPE", "ARCH", "GPUS", "PRODUCT", "MEMORY EACH"}}
	for _, t := range listed {
		rows = append(rows, []string{t.Cloud, t.Name, t.Arch, strconv.Itoa(t.GPUs), t.ProductName, mib(t.MemoryMiB << 20)})
	}
	return printTable(cmd.OutOrStdout(), rows)
}
