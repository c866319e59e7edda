package solver_test

import resourceapi "k8s.io/api/resource/v1"

// Selectors that can be evaluated on every device. The first is true for all.
var safeSelectors = []string{
	`true`,
	`device.driver == "gpu.example.com"`,
	`"numa" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"].numa == 0`,
	`"type" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"].type == "whole"`,
	`"pcieRoot" in device.attributes["resource.kubernetes.io"]`,
	`"memory" in device.capacity["gpu.example.com"] && device.capacity["gpu.example.com"].memory.compareTo(quantity("2")) >= 0`,
	`device.driver == "nic.example.com" || "ecc" in device.attributes[device.driver]`,
	`!("version" in device.attributes["gpu.example.com"]) || device.attributes["gpu.example.com"].version.isGreaterThan(semver("1.5.0"))`,
}

var sharingSelectors = []string{`device.allowMultipleAllocations`, `!device.allowMultipleAllocations`}

// Selectors that fail on a device that lacks what they ask for, or has another type.
var failingSelectors = []string{
	`device.attributes["gpu.example.com"].numa == 0`,
	`device.attributes["gpu.example.com"].type == "part"`,
	`device.attributes["resource.kubernetes.io"].pcieRoot == "root-0"`,
	`device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("1"))`,
	`device.attributes["gpu.example.com"].numa > 0`,
	`device.attributes["gpu.example.com"].ecc`,
	`device.attributes["other.example.com"].link == "up"`,
}

// Selectors that do not compile.
var brokenSelectors = []string{
	`device.color == "red"`,
	`device.driver ==`,
	`device.driver`,
}

func (g *generator) expressions(n int) []string {
	expressions := make([]string, 0, n)
	for range n {
		switch {
		case g.broken && oneIn(g, 4):
			expressions = append(expressions, pick(g, brokenSelectors...))
		case g.failing && oneIn(g, 2):
			expressions = append(expressions, pick(g, failingSelectors...))
		case g.shares && oneIn(g, 3):
			expressions = append(expressions, pick(g, sharingSelectors...))
		case oneIn(g, 40):
			expressions = append(expressions, `false`)
		default:
			expressions = append(expressions, pick(g, safeSelectors...))
		}
	}
	return expressions
}

func (g *generator) selectors() []resourceapi.DeviceSelector {
	if g.Intn(5) < 3 || g.puzzle && g.Intn(3) > 0 {
		return nil
	}
	var selectors []resourceapi.DeviceSelector
	for _, expression := range g.expressions(pick(g, 1, 1, 1, 1, 2)) {
		selectors = append(selectors, selector(expression))
	}
	return selectors
}

func selector(expression string) resourceapi.DeviceSelector {
	return resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}
}
