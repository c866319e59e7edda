package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// reservedNames are those of the other folders in a cluster's folder.
var reservedNames = []string{controlPlaneName, logsFolder, pidsFolder, stateFile}

// ParseNodes reads nodes as the command line has them: names with the products of
// their fake GPUs, such as
//
//	node-a=h100-sxm5-80gb:8,node-b=a100-sxm4-40gb:2+t4:1
//
// A plus separates the products of one node.
func ParseNodes(text string) ([]NodeSpec, error) {
	var nodes []NodeSpec
	for item := range strings.SplitSeq(text, ",") {
		name, gpus, _ := strings.Cut(strings.TrimSpace(item), "=")
		nodes = append(nodes, NodeSpec{Name: name, FakeGPUs: strings.ReplaceAll(gpus, "+", ",")})
	}
	return nodes, checkNodes(nodes)
}

func checkNodes(nodes []NodeSpec) error {
	if len(nodes) > maxNodes {
		return fmt.Errorf("%d nodes are too many: at most %d", len(nodes), maxNodes)
	}
	seen := map[string]bool{}
	for _, node := range nodes {
		if problems := validation.IsDNS1123Label(node.Name); len(problems) > 0 {
			return fmt.Errorf("node name %q: %s", node.Name, strings.Join(problems, "; "))
		}
		if slices.Contains(reservedNames, node.Name) {
			return fmt.Errorf("node name %q: is the name of a part of the cluster; use another", node.Name)
		}
		if seen[node.Name] {
			return fmt.Errorf("node name %q: is there twice", node.Name)
		}
		seen[node.Name] = true
	}
	return nil
}

// withFeatureGates adds the options' feature gates to a program's arguments.
func (c *Cluster) withFeatureGates(arguments []string) []string {
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(c.options.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, c.options.FeatureGates[name]))
	}
	if len(gates) == 0 {
		return arguments
	}
	return append(arguments, "--feature-gates="+strings.Join(gates, ","))
}
