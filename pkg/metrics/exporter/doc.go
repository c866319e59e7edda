// Package exporter publishes measurements of GPUs, partitions and shares as Prometheus
// metrics, with those who hold them.
//
// It is given samples ([Exporter.Update]) and owners ([Exporter.SetOwners]) and makes
// series of both. A value is published under whoever held the device when the value was
// read. What a scrape gets lies ready: it costs no call, no list and no copy.
//
// The package does not know how the hardware is read, where owners come from, nor
// whether the GPUs are real.
package exporter
