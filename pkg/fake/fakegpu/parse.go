package fakegpu

import (
	"strconv"
	"strings"

	"apportion.dev/apportion/pkg/fake/fakeroot"
)

// MaxGPUs is the number of slots of a machine.
const MaxGPUs = fakeroot.MaxGPUs

// ParseGPUs reads a list such as "h100-sxm5-80gb:8,l4:2" into one product name
// per GPU. A product without a number counts once; an empty list and "none" are a
// machine without GPUs. At most [MaxGPUs] are allowed.
func ParseGPUs(list string) ([]string, error) {
	list = strings.TrimSpace(list)
	if list == "" || list == "none" {
		return nil, nil
	}
	var gpus []string
	for part := range strings.SplitSeq(list, ",") {
		name, number, counted := strings.Cut(strings.TrimSpace(part), ":")
		product, err := LookupProduct(name)
		if err != nil {
			return nil, err
		}
		count := 1
		if counted {
			if count, err = strconv.Atoi(number); err != nil || count < 1 {
				return nil, inputErrorf("%q: the number of GPUs after the colon must be 1 to %d", part, MaxGPUs)
			}
		}
		if len(gpus)+count > MaxGPUs {
			return nil, inputErrorf("%q asks for more than %d GPUs", list, MaxGPUs)
		}
		for range count {
			gpus = append(gpus, product.Name)
		}
	}
	return gpus, nil
}

// GPUsForNode takes the list for one node from a table such as
// "node-a=h100-sxm5-80gb:2;node-b=none;*=t4:1". "*" stands for every node that
// has no entry; without it such a node has no GPUs. A list without "=" is for
// every node. All entries are checked, not only the node's.
func GPUsForNode(table, node string) ([]string, error) {
	if !strings.Contains(table, "=") {
		return ParseGPUs(table)
	}
	entries := map[string][]string{}
	for entry := range strings.SplitSeq(table, ";") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		name, list, ok := strings.Cut(entry, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, inputErrorf("%q is not of the form NODE=PRODUCT:NUMBER", entry)
		}
		if _, twice := entries[name]; twice {
			return nil, inputErrorf("%q has two entries for %q", table, name)
		}
		gpus, err := ParseGPUs(list)
		if err != nil {
			return nil, err
		}
		entries[name] = gpus
	}
	if gpus, ok := entries[node]; ok {
		return gpus, nil
	}
	return entries["*"], nil
}
