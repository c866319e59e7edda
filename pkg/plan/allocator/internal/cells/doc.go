// Package cells divides the labels that a node which does not exist yet may get into
// parts that selectors tell apart.
//
// Which devices a node reaches depends on its labels. A node claim leaves labels open,
// so it is looked at as several concrete nodes: a [Space] holds the selectors that
// matter, [Space.Grid] the parts of it that nodes with given [Labels] may fall into.
// Parts for which the splitting selectors say the same are one [Region]; a region stands
// for all its nodes. [Grid.Boxes] turns regions back into requirements that a node claim
// can be given.
//
// The package knows node selectors and labels, and nothing of devices or claims.
package cells
