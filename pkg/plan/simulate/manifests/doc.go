// Package manifests reads Kubernetes objects that scheduling depends on from YAML and
// JSON files, as the API server would have them: with its defaults, of the newest
// version, and with the pods that workload controllers would make.
//
// It knows files and the API, and nothing of how pods are placed.
package manifests
