// Package admission is the validating admission webhook for the parameters that users
// write for this driver in ResourceClaims, ResourceClaimTemplates and
// DeviceClasses. It refuses, when the object is written, what the driver would
// refuse later on the node, with the same code.
//
// It knows the objects' shape, the certificate that it serves with, and the two
// objects that hold the certificate: a Secret, shared by all replicas, and the
// webhook's own configuration. It must not know what parameters mean: that is
// api/resource's, and it must not know devices or nodes.
package admission
