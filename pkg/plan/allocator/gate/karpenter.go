package gate

import "strings"

// RequestedDriversAnnotation is Karpenter's annotation of a NodeClaim with the names of
// DRA drivers, separated by commas (DRADriversAnnotationKey of its API since v1.14). Karpenter
// writes there the drivers of all devices that it planned for the pods of the NodeClaim,
// on any instance type that the NodeClaim could still become, and also those of devices
// that were already published. So it may name drivers that the launched node never runs;
// Ready waits only for those that the node's own templates promise.
const RequestedDriversAnnotation = "karpenter.sh/requested-dra-drivers"

// RequestedDrivers are the drivers that a NodeClaim's annotations name, and whether the
// annotation is there. Karpenter sets it only if there are any.
func RequestedDrivers(annotations map[string]string) (drivers map[string]bool, ok bool) {
	value, ok := annotations[RequestedDriversAnnotation]
	if !ok {
		return nil, false
	}
	drivers = make(map[string]bool)
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name != "" {
			drivers[name] = true
		}
	}
	return drivers, true
}
