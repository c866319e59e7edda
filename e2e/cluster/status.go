package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WriteStatus writes tables of the cluster's programs, nodes and published devices.
func (c *Cluster) WriteStatus(ctx context.Context, w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "PROGRAM\tPID\tLOG")
	for _, p := range c.processes() {
		pid := "not running"
		if id := p.pid(); id != 0 {
			pid = fmt.Sprint(id)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", p.name, pid, p.logPath())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	fmt.Fprintln(table, "\nNODE\tREADY\tADDRESS\tKUBELET\tRUNTIME")
	for _, node := range nodes.Items {
		ready, address := "yes", ""
		if err := nodeReady(&node); err != nil {
			ready = "no"
		}
		if known := c.Node(node.Name); known != nil {
			address = known.Address()
		}
		info := node.Status.NodeInfo
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", node.Name, ready, address, info.KubeletVersion, info.ContainerRuntimeVersion)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	slices, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the ResourceSlices: %w", err)
	}
	writeSlices(table, slices.Items)
	return table.Flush()
}

func writeSlices(w io.Writer, list []resourceapi.ResourceSlice) {
	if len(list) == 0 {
		fmt.Fprintln(w, "\nNo ResourceSlices: no driver has published devices.")
		return
	}
	slices.SortFunc(list, func(a, b resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	fmt.Fprintln(w, "\nSLICE\tDRIVER\tPOOL\tDEVICES\tCOUNTERS")
	for _, slice := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", slice.Name, slice.Spec.Driver, slice.Spec.Pool.Name, len(slice.Spec.Devices), len(slice.Spec.SharedCounters))
	}
}
