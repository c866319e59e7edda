package main

import (
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/cli/flag"

	"apportion.dev/apportion/e2e/cluster"
)

// newGates is the flag of feature gates, as the programs of Kubernetes have it.
func newGates(gates *map[string]bool) pflag.Value {
	return flag.NewMapStringBool(gates)
}

// defaultNodes is the text from which ParseNodes makes the default nodes.
func defaultNodes() string {
	var items []string
	for _, node := range cluster.DefaultNodes() {
		items = append(items, node.Name+"="+strings.ReplaceAll(node.FakeGPUs, ",", "+"))
	}
	return strings.Join(items, ",")
}
