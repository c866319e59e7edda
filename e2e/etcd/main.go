// Command etcd is the store of the local cluster. It has a module of its own
// because etcd and Kubernetes pin different versions of the same libraries.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
