package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// printMachine prints a fake machine for people.
func printMachine(out io.Writer, s fakegpu.Summary) error {
	cuda := ""
	if s.CUDAVersion > 0 {
		cuda = fmt.Sprintf(", CUDA %d.%d", s.CUDAVersion/1000, s.CUDAVersion%1000/10)
	}
	if _, err := fmt.Fprintf(out, "Node %s, driver %s%s\n", s.Node, driverOrNone(s.DriverVersion), cuda); err != nil {
		return err
	}
	if len(s.MissingSymbols) > 0 {
		fmt.Fprintf(out, "Functions missing from the NVML library: %s\n", strings.Join(s.MissingSymbols, ", "))
	}
	if len(s.GPUs) == 0 {
		_, err := fmt.Fprintln(out, "No GPUs")
		return err
	}
	rows := [][]string{{"INDEX", "SLOT", "PRODUCT", "UUID", "PCI ADDRESS", "STATE", "MEMORY", "UTILIZATION", "MIG"}}
	for _, g := range s.GPUs {
		rows = append(rows, []string{
			strconv.Itoa(g.Index), strconv.Itoa(g.Slot), g.Product, g.UUID, g.PCIBusID, stateOf(g),
			fmt.Sprintf("%d/%s", g.MemoryUsedBytes>>20, mib(g.MemoryTotalBytes)),
			fmt.Sprintf("%d%%", g.UtilizationPercent), orDash(g.MIGMode),
		})
	}
	if err := printTable(out, rows); err != nil {
		return err
	}
	return printParts(out, s)
}

// stateOf is a GPU's state with the properties that fail.
func stateOf(g fakegpu.GPUSummary) string {
	state := g.State
	for _, property := range slices.Sorted(maps.Keys(g.Failures)) {
		state += fmt.Sprintf(", %s fails (%s)", property, g.Failures[property])
	}
	return state
}

// printParts prints the partitions and processes, if there are any.
func printParts(out io.Writer, s fakegpu.Summary) error {
	partitions := [][]string{{"GPU", "GPU INSTANCE", "PROFILE", "START", "MIG DEVICE"}}
	processes := [][]string{{"GPU", "PID", "TYPE", "MEMORY", "MIG DEVICE", "NAME"}}
	for _, g := range s.GPUs {
		for _, p := range g.MIG {
			partitions = append(partitions, []string{
				strconv.Itoa(g.Index), strconv.Itoa(p.GPUInstance), p.Profile, strconv.Itoa(p.Start), p.UUID,
			})
		}
		for _, p := range g.Load.Processes {
			kind := "compute"
			if p.Graphics {
				kind = "graphics"
			}
			processes = append(processes, []string{
				strconv.Itoa(g.Index), strconv.FormatUint(uint64(p.PID), 10), kind, mib(p.MemoryBytes),
				orDash(p.MIGDevice), orDash(p.Name),
			})
		}
	}
	for _, rows := range [][][]string{partitions, processes} {
		if len(rows) == 1 {
			continue
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
		if err := printTable(out, rows); err != nil {
			return err
		}
	}
	return nil
}

// printProducts prints what GPUs there can be.
func printProducts(out io.Writer, products []fakegpu.Product) error {
	rows := [][]string{{"NAME", "PRODUCT", "ARCHITECTURE", "MEMORY", "NVLINK", "MIG PROFILES"}}
	for _, p := range products {
		var profiles []string
		if p.MIG != nil {
			for _, q := range p.MIG.Profiles {
				profiles = append(profiles, q.Name)
			}
		}
		rows = append(rows, []string{
			p.Name, p.ProductName, p.Architecture, fmt.Sprintf("%d MiB", p.Memory.TotalMiB), string(p.NVLink.Topology),
			orDash(strings.Join(profiles, ", ")),
		})
	}
	return printTable(out, rows)
}
